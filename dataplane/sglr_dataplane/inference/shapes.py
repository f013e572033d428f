"""inference.v1's messages and OpenAI's objects: one into the other; pure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sglr_dataplane.errors import InvalidRequestError
from sglr_dataplane.inference.failures import Fault
from sglr_proto.inference import inference_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN: Final = frozenset(
    {
        "temperature",
        "max_tokens",
        "top_p",
        "top_k",
        "frequency_penalty",
        "presence_penalty",
        "n",
        "seed",
        "parallel_tool_calls",
        "reasoning_effort",
        "user",
    }
)
"""Fields that have the same name and meaning over HTTP."""
_MODES: Final = frozenset({"auto", "none", "required"})
_OF_THE_RPC: Final = frozenset({"model", "messages", "stream", "stream_options"})


def request_body(request: pb.ChatRequest, *, stream: bool) -> bytes:
    """Return *request* as the body of ``POST /v1/chat/completions``.

    Raises:
        InvalidRequestError: A field that holds JSON holds none, or ``extra`` repeats another field.
    """
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(each) for each in request.messages],
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    for field, value in request.ListFields():
        if field.name in _PLAIN:
            body[field.name] = shortest(value) if isinstance(value, float) else value
    if request.stop:
        body["stop"] = list(request.stop)
    if request.tools:
        body["tools"] = [_tool(each, at) for at, each in enumerate(request.tools)]
    if request.HasField("tool_choice"):
        body["tool_choice"] = _tool_choice(request.tool_choice)
    if request.HasField("response_format"):
        body["response_format"] = _object(request.response_format, "response_format")
    if request.HasField("extra"):
        _add_extra(body, _object(request.extra, "extra"))
    return msgspec.json.encode(body)


def _add_extra(body: dict[str, Any], extra: dict[str, Any]) -> None:
    for name in extra:
        if name in body or name in _OF_THE_RPC:
            raise InvalidRequestError(
                f"extra repeats {name!r}, which has a field of its own.", param="extra"
            )
    body.update(extra)


def _message(message: pb.ChatMessage) -> dict[str, Any]:
    told: dict[str, Any] = {
        "role": message.role,
        "content": message.content if message.HasField("content") else None,
    }
    for name in ("reasoning_content", "tool_call_id", "name"):
        if message.HasField(name):
            told[name] = getattr(message, name)
    if message.tool_calls:
        told["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    return told


def _tool(tool: pb.Tool, at: int) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.HasField("description"):
        function["description"] = tool.description
    if tool.HasField("parameters"):
        function["parameters"] = _object(tool.parameters, f"tools[{at}].parameters")
    if tool.HasField("strict"):
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _tool_choice(wanted: str) -> str | dict[str, Any]:
    if wanted in _MODES:
        return wanted
    return {"type": "function", "function": {"name": wanted}}


def _object(text: str, param: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidRequestError(
            f"{param} must be the JSON text of an object: {error}.", param=param
        ) from error


_LARGEST: Final = 2.0**128 - 2.0**104
"""Of the 32-bit floats; rounded up to fewer digits it is none."""


def shortest(number: float) -> float:
    """Return the shortest decimal that is *number* as a 32-bit float: 0.7, not 0.699999988."""
    wire = struct.pack("<f", number)
    for digits in range(1, 10):
        short = float(f"{number:.{digits}g}")
        if abs(short) <= _LARGEST and struct.pack("<f", short) == wire:
            return short
    return number  # not a number, or without an end: refused where fields are read


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function = msgspec.field(default_factory=_Function)


class _Said(msgspec.Struct):
    """A message, or what a chunk adds to one."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    message: _Said = msgspec.field(default_factory=_Said)
    delta: _Said = msgspec.field(default_factory=_Said)
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Completion(msgspec.Struct):
    """A chat completion, or a chunk of one."""

    id: str = ""
    model: str = ""
    created: int = 0
    choices: list[_Choice] = msgspec.field(default_factory=list[_Choice])
    usage: _Usage | None = None
    error: Fault | None = None


def response_of(body: bytes) -> pb.ChatResponse:
    """Return the chat completion *body*; raises msgspec.DecodeError when it is none."""
    whole = msgspec.json.decode(body, type=_Completion)
    choices = sorted(whole.choices, key=lambda choice: choice.index)
    response = pb.ChatResponse(
        choices=[_answer(choice.message) for choice in choices],
        finish_reasons=[choice.finish_reason or "" for choice in choices],
        id=whole.id,
        model=whole.model,
        created=whole.created,
    )
    if whole.usage is not None:
        response.usage.CopyFrom(_usage(whole.usage))
    return response


def _answer(said: _Said) -> pb.ChatMessage:
    message = pb.ChatMessage(role="assistant", tool_calls=_calls(said.tool_calls or ()))
    if said.content is not None:
        message.content = said.content
    if (thought := said.reasoning_content or said.reasoning) is not None:
        message.reasoning_content = thought
    return message


def _calls(calls: Iterable[_Call]) -> list[pb.ToolCall]:
    return [
        pb.ToolCall(
            index=call.index if call.index is not None else at,
            id=call.id,
            name=call.function.name,
            arguments=call.function.arguments,
        )
        for at, call in enumerate(calls)
    ]


def _usage(usage: _Usage) -> pb.Usage:
    told = pb.Usage(
        prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens or 0
    )
    if usage.prompt_tokens_details is not None:
        told.cached_tokens = usage.prompt_tokens_details.cached_tokens or 0
    if usage.completion_tokens_details is not None:
        told.reasoning_tokens = usage.completion_tokens_details.reasoning_tokens or 0
    return told


class _Model(msgspec.Struct):
    id: str
    owned_by: str | None = None
    created: int | None = None
    max_model_len: int | None = None
    parent: str | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


def models_of(body: bytes) -> pb.ListModelsResponse:
    """Return the list of models *body*; raises msgspec.DecodeError when it is none."""
    told = msgspec.json.decode(body, type=_Models)
    return pb.ListModelsResponse(
        models=[pb.Model(**{k: v for k, v in msgspec.structs.asdict(each).items() if v is not None})
                for each in told.data]
    )  # fmt: skip


class Chunks:
    """Turns the events of one stream into chunks.

    A choice's last chunk waits for what follows: the usage travels with the last of all, as
    clients of this service expect it, and not in a chunk of its own as over HTTP.
    """

    def __init__(self) -> None:
        """Begin a stream."""
        self._held: pb.ChatResponseChunk | None = None
        self._began = False

    def read(self, data: bytes) -> list[pb.ChatResponseChunk] | Fault:
        """Return the chunks that the event *data* completes, or the error it is.

        Raises:
            msgspec.DecodeError: It is neither.
        """
        event = msgspec.json.decode(data, type=_Completion)
        if event.error is not None:
            return event.error
        told: list[pb.ChatResponseChunk] = []
        for choice in event.choices:
            chunk = self._chunk(event, choice)
            if chunk is None:
                continue
            told += self.end()
            if choice.finish_reason:
                self._held = chunk
            else:
                told.append(chunk)
        if event.usage is not None and self._held is not None:
            self._held.usage.CopyFrom(_usage(event.usage))
        return told

    def end(self) -> list[pb.ChatResponseChunk]:
        """Return what was held back, once nothing can be added to it."""
        held, self._held = self._held, None
        return [held] if held is not None else []

    def _chunk(self, event: _Completion, choice: _Choice) -> pb.ChatResponseChunk | None:
        """Return what *choice* adds; None where that is nothing, as in a chunk with the role."""
        said = choice.delta
        thought = said.reasoning_content or said.reasoning
        if not (said.content or thought or said.tool_calls or choice.finish_reason):
            return None
        chunk = pb.ChatResponseChunk(
            content=said.content or "",
            index=choice.index,
            finish_reason=choice.finish_reason,
            reasoning_content=thought or None,
            tool_calls=_calls(said.tool_calls or ()),
        )
        if not self._began:
            self._began = True
            chunk.id, chunk.model = event.id, event.model
        return chunk
