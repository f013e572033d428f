"""From the bytes of a chat completion request to values that need no further checks."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast

import msgspec

from sglr_dataplane.api.schema import refusals
from sglr_dataplane.api.schema.fields import CHAT_FIELDS
from sglr_dataplane.api.schema.grammars import grammar_of
from sglr_dataplane.api.schema.messages import check_messages
from sglr_dataplane.api.schema.thinking import template_kwargs_of
from sglr_dataplane.api.schema.tools import ToolBody, choice_of, tools_of
from sglr_dataplane.job import Constraint
from sglr_dataplane.prompt.constraint import tool_constraint
from sglr_dataplane.prompt.conversation import Conversation, Message, Tool, ToolChoice
from sglr_dataplane.prompt.json_values import path_of_nul
from sglr_dataplane.prompt.sampling import SamplingParameters, check_ranges


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream carries beside the answer."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    """Refused: only the last chunk can say it."""


class ChatBody(SamplingParameters, frozen=True, kw_only=True):
    """The honoured fields, as they are sent; null and absent are the same."""

    model: str
    messages: list[Message]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[ToolBody] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    functions: list[dict[str, Any]] | None = None
    function_call: Any = None
    response_format: Any = None
    regex: Any = None
    ebnf: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_grammar: Any = None
    guided_choice: Any = None
    structured_outputs: Any = None
    chat_template_kwargs: Any = None
    reasoning_effort: Any = None
    reasoning: Any = None
    thinking: Any = None
    separate_reasoning: bool | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    seed: int | None = None


_REFUSED = {name: field for name, field in CHAT_FIELDS.items() if field.fate == "refused"}
_refused_values = attrgetter(*_REFUSED)
_SAMPLING = SamplingParameters.__struct_fields__
_sampling_values = attrgetter(*_SAMPLING)
_NOTHING = (None,) * len(_REFUSED)

# The table decides what is refused, so these fields are made from it.
_Body = msgspec.defstruct(
    "_Body", [(name, Any, None) for name in _REFUSED], bases=(ChatBody,), frozen=True, kw_only=True
)
_DECODER = cast("msgspec.json.Decoder[ChatBody]", msgspec.json.Decoder(_Body))  # a subclass of it


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat completion request that is valid for some model."""

    model: str
    """A backend's name or alias, as the client wrote it."""
    conversation: Conversation
    sampling: SamplingParameters
    """In range for any model; ids are still to be checked against the vocabulary."""
    constraint: Constraint | None = None
    parallel_tool_calls: bool = True
    stream: bool = False
    include_usage: bool = False
    separate_reasoning: bool = True
    """False: thoughts stay in the content, with their markers."""
    seed: int | None = None
    """Without effect, so that an answer must say so when it is set."""


def decode_chat(body: bytes) -> ChatRequest:
    """Return the request in *body*.

    Raises:
        InvalidJsonError: *body* is not JSON.
        InvalidRequestError: It is no valid request; *param* is the path of what is wrong.
    """
    try:
        return _checked(body, _decoded(body))
    except RecursionError as error:
        raise refusals.too_deep() from error


def _checked(body: bytes, sent: ChatBody) -> ChatRequest:
    _refuse_nul(body)
    _refuse_unserved(sent)
    _check_stream(sent)
    check_messages(sent.messages)
    check_ranges(sent)
    tools = tools_of(sent.tools, sent.functions)
    choice = choice_of(sent.tool_choice, sent.function_call, tools)
    parallel = sent.parallel_tool_calls is not False
    return ChatRequest(
        model=sent.model,
        conversation=_conversation(sent, tools, choice),
        sampling=_sampling(sent),
        constraint=_constraint(sent, tool_constraint(tools, choice, parallel=parallel)),
        parallel_tool_calls=parallel,
        stream=bool(sent.stream),
        include_usage=bool(sent.stream_options and sent.stream_options.include_usage),
        separate_reasoning=sent.separate_reasoning is not False,
        seed=sent.seed,
    )


def _decoded(body: bytes) -> ChatBody:
    try:
        if not body.isascii():
            body.decode()  # the decoder skips over unknown fields without reading their text
        return _DECODER.decode(body)
    except msgspec.ValidationError as error:
        raise refusals.of_validation(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refusals.of_text(body, error) from error


def _refuse_nul(body: bytes) -> None:
    if b"\\u0000" not in body:  # JSON has no other way to write it; "\\u0000" may be text too
        return
    value = msgspec.json.decode(body)
    known = {name: item for name, item in value.items() if name in CHAT_FIELDS}
    path = path_of_nul(known)
    if path is not None:
        raise refusals.invalid(path, "a NUL character (\\u0000) cannot be part of a request")


def _refuse_unserved(sent: ChatBody) -> None:
    values = _refused_values(sent)
    if values == _NOTHING:
        return
    for (name, field), value in zip(_REFUSED.items(), values, strict=True):
        if value is not None and not any(_same(value, neutral) for neutral in field.neutral):
            raise refusals.invalid(name, f"it is not supported: {field.note}")


def _same(value: Any, neutral: Any) -> bool:
    """Return whether they are equal and of one kind: JSON's false is no 0."""
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)


def _check_stream(sent: ChatBody) -> None:
    if sent.stream_options is None:
        return
    if not sent.stream:
        raise refusals.invalid("stream_options", "it is only allowed when 'stream' is true")
    if sent.stream_options.continuous_usage_stats:
        raise refusals.invalid(
            "stream_options.continuous_usage_stats",
            "it is not supported: usage is told once, at the end",
        )


def _conversation(sent: ChatBody, tools: tuple[Tool, ...], choice: ToolChoice) -> Conversation:
    if sent.continue_final_message and sent.add_generation_prompt:
        raise refusals.invalid(
            "add_generation_prompt", "it cannot be true together with 'continue_final_message'"
        )
    return Conversation(
        messages=tuple(sent.messages),
        tools=tools,
        choice=choice,
        template_kwargs=template_kwargs_of(
            sent.chat_template_kwargs, sent.reasoning_effort, sent.reasoning, sent.thinking
        ),
        add_generation_prompt=sent.add_generation_prompt is not False,
        continue_final_message=bool(sent.continue_final_message),
    )


def _sampling(sent: ChatBody) -> SamplingParameters:
    """Return those fields alone: the body holds the messages too."""
    return SamplingParameters(**dict(zip(_SAMPLING, _sampling_values(sent), strict=True)))


def _constraint(sent: ChatBody, of_tools: Constraint | None) -> Constraint | None:
    grammar = grammar_of(
        {
            "response_format": sent.response_format,
            "regex": sent.regex,
            "ebnf": sent.ebnf,
            "guided_json": sent.guided_json,
            "guided_regex": sent.guided_regex,
            "guided_grammar": sent.guided_grammar,
            "guided_choice": sent.guided_choice,
            "structured_outputs": sent.structured_outputs,
        }
    )
    if grammar is not None and of_tools is not None:
        # sglang refuses this too: the output cannot keep to both grammars.
        raise refusals.invalid(
            "tool_choice",
            "a required tool call cannot be combined with response_format or a grammar",
        )
    return grammar or of_tools
