"""From the bytes of a chat completion request to values that need no further checks."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, Final

import msgspec

from sglr_dataplane.api.schema import refusals
from sglr_dataplane.api.schema.bodies import BodyReader
from sglr_dataplane.api.schema.common import (
    MAX_TOP_LOGPROBS,
    SEED_WARNING,
    UNTOLD,
    GeneratingBody,
    StreamUsage,
    Thoughts,
    constraint_part,
    stream_usage,
)
from sglr_dataplane.api.schema.fields import CHAT_FIELDS
from sglr_dataplane.api.schema.messages import check_messages
from sglr_dataplane.api.schema.thinking import template_kwargs_of
from sglr_dataplane.api.schema.tools import ToolBody, choice_of, tools_of
from sglr_dataplane.job import Constraint, LogprobsWish
from sglr_dataplane.prompt.constraint import tool_constraint
from sglr_dataplane.prompt.conversation import (
    NO_CALLS,
    NO_KWARGS,
    Conversation,
    Message,
    Tool,
    ToolChoice,
)
from sglr_dataplane.prompt.ranges import integer_in
from sglr_dataplane.prompt.sampling import SamplingParameters, in_range


class ChatBody(GeneratingBody, frozen=True, kw_only=True):
    """The honoured fields, as they are sent; null and absent are the same."""

    messages: list[Message]
    tools: list[ToolBody] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    functions: list[dict[str, Any]] | None = None
    function_call: Any = None
    chat_template_kwargs: Any = None
    reasoning_effort: Any = None
    reasoning: Any = None
    thinking: Any = None
    separate_reasoning: bool | None = None
    stream_reasoning: bool | None = None
    include_reasoning: bool | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


_READER = BodyReader(ChatBody, CHAT_FIELDS)
_NO_ORIGIN: Mapping[str, Any] = MappingProxyType({})


class ChatRequest(msgspec.Struct, frozen=True):
    """A chat completion request that is valid for some model."""

    prompt_field: ClassVar[str] = "messages"

    model: str
    """A backend's name or alias, as the client wrote it."""
    conversation: Conversation
    sampling: SamplingParameters
    """In range for any model; ids are still to be checked against the vocabulary."""
    constraint: Constraint | None = None
    parallel_tool_calls: bool = True
    stream: bool = False
    usage: StreamUsage = UNTOLD
    logprobs: LogprobsWish | None = None
    separate_reasoning: bool = True
    """False: thoughts stay in the content, with their markers."""
    thoughts: Thoughts = "streamed"
    shows_special: bool = False
    """True: control tokens in the content are shown."""
    warnings: tuple[str, ...] = ()
    """What of the request has no effect, for the answer's header."""
    origin: Mapping[str, Any] = _NO_ORIGIN
    """What the reply needs of a request that came in another API's words."""


def decode_chat(body: bytes) -> ChatRequest:
    """Return the request in *body*.

    Raises:
        InvalidJsonError: *body* is not JSON.
        InvalidRequestError: It is no valid request; *param* is the path of what is wrong.
    """
    sent = _READER.read(body)
    try:
        return _checked(sent)
    except RecursionError as error:
        raise refusals.too_deep() from error


def chat_request(
    fields: Mapping[str, Any],
    *,
    warnings: tuple[str, ...] = (),
    origin: Mapping[str, Any] = _NO_ORIGIN,
) -> ChatRequest:
    """Return the chat request that another API's request comes to.

    Args:
        fields: Those of a chat completion request; decoded JSON.
        warnings: What of the other request has no effect.
        origin: What the reply needs of it.

    Raises:
        InvalidRequestError: It is no valid request; *param* is the path of what is wrong.
    """
    try:
        request = _checked(msgspec.convert(fields, ChatBody))
    except msgspec.ValidationError as error:
        raise refusals.of_validation(error) from error
    except RecursionError as error:
        raise refusals.too_deep() from error
    return msgspec.structs.replace(request, warnings=(*request.warnings, *warnings), origin=origin)


def _checked(sent: ChatBody) -> ChatRequest:
    check_messages(sent.messages)
    sampling = in_range(sent)
    parallel = sent.parallel_tool_calls is not False
    tools, choice, of_tools = _NO_TOOLS
    if _TOOL_VALUES(sent) != _UNSET:
        tools = tools_of(sent.tools, sent.functions)
        choice = choice_of(sent.tool_choice, sent.function_call, tools)
        of_tools = tool_constraint(tools, choice, parallel=parallel)
    return ChatRequest(
        model=sent.model,
        conversation=_conversation(sent, tools, choice),
        sampling=sampling,
        constraint=_constraint(sent, of_tools),
        parallel_tool_calls=parallel,
        stream=bool(sent.stream),
        usage=stream_usage(sent),
        logprobs=_logprobs(sent) if sent.logprobs or sent.top_logprobs is not None else None,
        separate_reasoning=sent.separate_reasoning is not False,
        thoughts=_thoughts(sent),
        shows_special=sent.skip_special_tokens is False,
        warnings=(SEED_WARNING,) if sent.seed is not None else (),
    )


def _logprobs(sent: ChatBody) -> LogprobsWish | None:
    integer_in(sent.top_logprobs, "top_logprobs", 0, MAX_TOP_LOGPROBS)
    if sent.logprobs:
        return LogprobsWish(top=sent.top_logprobs or 0)
    if sent.top_logprobs:
        raise refusals.invalid("top_logprobs", "it is only allowed when 'logprobs' is true")
    return None


def _thoughts(sent: ChatBody) -> Thoughts:
    if sent.include_reasoning is False:
        return "dropped"
    return "whole" if sent.stream_reasoning is False else "streamed"


_UNSET: Final = (None,) * 4
_TOOL_VALUES: Final = attrgetter("tools", "tool_choice", "functions", "function_call")
_NO_TOOLS: Final[tuple[tuple[Tool, ...], ToolChoice, Constraint | None]] = ((), NO_CALLS, None)
_THINKING_VALUES: Final = attrgetter(
    "chat_template_kwargs", "reasoning_effort", "reasoning", "thinking"
)


def _conversation(sent: ChatBody, tools: tuple[Tool, ...], choice: ToolChoice) -> Conversation:
    if sent.continue_final_message and sent.add_generation_prompt:
        raise refusals.invalid(
            "add_generation_prompt", "it cannot be true together with 'continue_final_message'"
        )
    thinking = _THINKING_VALUES(sent)
    return Conversation(
        messages=tuple(sent.messages),
        tools=tools,
        choice=choice,
        template_kwargs=NO_KWARGS if thinking == _UNSET else template_kwargs_of(*thinking),
        add_generation_prompt=sent.add_generation_prompt is not False,
        continue_final_message=bool(sent.continue_final_message),
    )


def _constraint(sent: ChatBody, of_tools: Constraint | None) -> Constraint | None:
    grammar = constraint_part(sent)
    if grammar is not None and of_tools is not None:
        # sglang refuses this too: the output cannot keep to both grammars.
        raise refusals.invalid(
            "tool_choice",
            "a required tool call cannot be combined with response_format or a grammar",
        )
    return grammar or of_tools
