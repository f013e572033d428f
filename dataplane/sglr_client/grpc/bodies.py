"""OpenAI's JSON and inference.v1's messages, as a client has them: one into the other; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from sglr_client.json_values import is_object
from sglr_proto.inference import inference_pb2 as pb

_FIELDS: Final = frozenset(
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
"""What has a field of the same name and meaning."""
_OF_THE_RPC: Final = frozenset({"model", "messages", "stream", "stream_options"})
_UNTOLD: Final = ("logprobs", "top_logprobs")
"""Answers of inference.v1 have no place for them."""


class NotCarriedError(ValueError):
    """inference.v1 has no place for a part of the request."""


def chat_request(body: bytes) -> pb.ChatRequest:
    """Return the chat completion request *body* as a message.

    Raises:
        NotCarriedError: It has a part that the message has no place for.
    """
    asked: dict[str, Any] = msgspec.json.decode(body)
    for name in _UNTOLD:
        if asked.get(name):
            raise NotCarriedError(f"{name} is not told over gRPC; ask over HTTP")
    request = pb.ChatRequest(
        model=str(asked.get("model", "")),
        messages=[_message(each, at) for at, each in enumerate(asked.get("messages", ()))],
    )
    extra: dict[str, Any] = {}
    for name, value in asked.items():
        if name in _OF_THE_RPC or _set(request, name, value):
            continue
        extra[name] = value
    if extra:
        request.extra = msgspec.json.encode(extra).decode()
    return request


def _set(request: pb.ChatRequest, name: str, value: Any) -> bool:
    """Give *request* its field *name*; False where *value* goes to ``extra`` as it is."""
    try:
        if name in _FIELDS:
            setattr(request, name, value)
        elif name == "stop":
            request.stop.extend([value] if isinstance(value, str) else value)
        elif name == "tools":
            request.tools.extend([_tool(each) for each in value])
        elif name == "tool_choice":
            request.tool_choice = _tool_choice(value)
        elif name == "response_format":
            request.response_format = msgspec.json.encode(value).decode()
        else:
            return False
    except (TypeError, ValueError, KeyError):
        # Not of the field's type: the server says what it expects, as it does over HTTP.
        request.ClearField(name)  # type: ignore[arg-type]  # one of its fields
        return False
    return True


def _message(told: Any, at: int) -> pb.ChatMessage:
    if not is_object(told):
        raise NotCarriedError(f"messages[{at}] is no object")
    message = pb.ChatMessage()
    for name, value in told.items():
        if value is None:
            continue
        if name == "tool_calls":
            message.tool_calls.extend([_call(each) for each in value])
        elif name == "content":
            message.content = _content(value, at)
        elif name in {"role", "name", "tool_call_id", "reasoning_content"}:
            setattr(message, name, value)
        else:
            raise NotCarriedError(f"messages[{at}].{name} has no place in a message over gRPC")
    return message


def _content(value: Any, at: int) -> str:
    """Return the text of a message; parts are joined as chat templates of text models do."""
    if isinstance(value, str):
        return value
    parts: list[str] = []
    for part in value:
        if not is_object(part) or part.get("type") != "text":
            raise NotCarriedError(f"messages[{at}].content has a part that is no text")
        parts.append(str(part.get("text", "")))
    return "\n".join(parts)


def _call(told: Mapping[str, Any]) -> pb.ToolCall:
    function = told["function"]
    return pb.ToolCall(
        id=told.get("id"), name=function["name"], arguments=function.get("arguments")
    )


def _tool(told: Mapping[str, Any]) -> pb.Tool:
    function = dict(told["function"])
    tool = pb.Tool(name=function.pop("name"), description=function.pop("description", None))
    if (parameters := function.pop("parameters", None)) is not None:
        tool.parameters = msgspec.json.encode(parameters).decode()
    if (strict := function.pop("strict", None)) is not None:
        tool.strict = strict
    if function or told.get("type") != "function":
        raise ValueError("a tool of another kind")
    return tool


def _tool_choice(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value["type"] != "function" or set(value) != {"type", "function"}:
        raise ValueError("a choice of another kind")
    name: str = value["function"]["name"]
    return name


def completion_of(response: pb.ChatResponse) -> bytes:
    """Return *response* as a chat completion."""
    choices = [
        {
            "index": index,
            "message": _answer(message),
            "finish_reason": _at(response.finish_reasons, index) or "stop",
        }
        for index, message in enumerate(response.choices)
    ]
    told: dict[str, Any] = {
        "id": response.id,
        "object": "chat.completion",
        "created": response.created,
        "model": response.model,
        "choices": choices,
    }
    if response.HasField("usage"):
        told["usage"] = _usage(response.usage)
    return msgspec.json.encode(told)


def _at(reasons: Sequence[str], index: int) -> str:
    return reasons[index] if index < len(reasons) else ""


def _answer(message: pb.ChatMessage) -> dict[str, Any]:
    told: dict[str, Any] = {
        "role": message.role or "assistant",
        "content": message.content if message.HasField("content") else None,
    }
    if message.HasField("reasoning_content"):
        told["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        told["tool_calls"] = [_call_object(call) for call in message.tool_calls]
    return told


def _call_object(call: pb.ToolCall) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": call.arguments}
    told: dict[str, Any] = {"index": call.index, "function": function}
    if call.HasField("name"):
        function["name"] = call.name
    if call.HasField("id"):
        told |= {"id": call.id, "type": "function"}
    return told


def _usage(usage: pb.Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


class Frames:
    """Turns the chunks of one stream into the frames that they are over HTTP."""

    def __init__(self) -> None:
        """Begin a stream."""
        self._id = ""
        self._model = ""
        self.finished = False
        """A choice has its finish reason."""

    def of(self, chunk: pb.ChatResponseChunk) -> bytes:
        """Return *chunk* as a frame; its usage stands in it."""
        self._id = chunk.id or self._id
        self._model = chunk.model or self._model
        self.finished = self.finished or bool(chunk.finish_reason)
        delta: dict[str, Any] = {"content": chunk.content} if chunk.content else {}
        if chunk.reasoning_content:
            delta["reasoning_content"] = chunk.reasoning_content
        if chunk.tool_calls:
            delta["tool_calls"] = [_call_object(call) for call in chunk.tool_calls]
        choice = {
            "index": chunk.index,
            "delta": delta,
            "finish_reason": chunk.finish_reason or None,
        }
        told: dict[str, Any] = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": 0,
            "model": self._model,
            "choices": [choice],
        }
        if chunk.HasField("usage"):
            told["usage"] = _usage(chunk.usage)
        return frame(told)


DONE: Final = b"data: [DONE]\n\n"


def frame(told: Any) -> bytes:
    """Return *told* as a server-sent event."""
    return b"data: " + msgspec.json.encode(told) + b"\n\n"


def models_of(response: pb.ListModelsResponse) -> bytes:
    """Return *response* as the list of models."""
    cards: list[dict[str, Any]] = []
    for model in response.models:
        card: dict[str, Any] = {field.name: value for field, value in model.ListFields()}
        cards.append({"object": "model", "created": 0, "owned_by": "", **card})
    return msgspec.json.encode({"object": "list", "data": cards})
