"""From the bytes of a request to OpenAI's Responses API to a chat request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sglr_dataplane.api.schema.adapted_fields import RESPONSES_FIELDS
from sglr_dataplane.api.schema.bodies import BodyReader
from sglr_dataplane.api.schema.chat import ChatRequest, chat_request
from sglr_dataplane.api.schema.refusals import invalid, missing, mistyped
from sglr_dataplane.prompt.json_values import is_array, is_object
from sglr_dataplane.prompt.ranges import shown

LOGPROBS_INCLUDE: Final = "message.output_text.logprobs"
_TEXTS: Final = ("input_text", "output_text", "text")


class ResponsesBody(msgspec.Struct, frozen=True, kw_only=True):
    """The honoured fields, as they are sent; null and absent are the same."""

    model: str
    input: Any = None
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    stream: bool | None = None
    metadata: dict[str, Any] | None = None


_READER = BodyReader(ResponsesBody, RESPONSES_FIELDS)


def decode_responses(body: bytes) -> ChatRequest:
    """Return the request in *body* as a chat request, whose origin is what the reply repeats.

    Raises:
        InvalidJsonError: *body* is not JSON.
        InvalidRequestError: It is no valid request; *param* is the path of what is wrong.
    """
    sent = _READER.read(body)
    tools = [_tool(tool, f"tools[{at}]") for at, tool in enumerate(sent.tools or ())]
    return chat_request(
        {
            "model": sent.model,
            "messages": _conversation(sent),
            "tools": tools or None,
            "tool_choice": _choice(sent.tool_choice),
            "parallel_tool_calls": sent.parallel_tool_calls,
            "response_format": _format((sent.text or {}).get("format")),
            "reasoning_effort": (sent.reasoning or {}).get("effort"),
            "max_completion_tokens": sent.max_output_tokens,
            "temperature": sent.temperature,
            "top_p": sent.top_p,
            "logprobs": LOGPROBS_INCLUDE in (sent.include or ()) or bool(sent.top_logprobs),
            "top_logprobs": sent.top_logprobs,
            "stream": sent.stream,
        },
        origin={
            "instructions": sent.instructions,
            "max_output_tokens": sent.max_output_tokens,
            "metadata": sent.metadata or {},
            "parallel_tool_calls": sent.parallel_tool_calls is not False,
            "reasoning": sent.reasoning,
            "temperature": sent.temperature,
            "text": sent.text or {"format": {"type": "text"}},
            "tool_choice": sent.tool_choice or "auto",
            "tools": sent.tools or [],
            "top_p": sent.top_p,
        },
    )


def _conversation(sent: ResponsesBody) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if sent.instructions:
        messages.append({"role": "system", "content": sent.instructions})
    if sent.input is None:
        raise missing("input")
    if isinstance(sent.input, str):
        return [*messages, {"role": "user", "content": sent.input}]
    if not is_array(sent.input):
        raise mistyped("input", "a string or an array", sent.input)
    for at, item in enumerate(sent.input):
        if not is_object(item):
            raise mistyped(f"input[{at}]", "an object", item)
        _append(messages, item, f"input[{at}]")
    return messages


def _append(messages: list[dict[str, Any]], item: dict[str, Any], path: str) -> None:
    """Add what *item* says; an assistant's reasoning, text and calls are one message."""
    kind = item.get("type", "message")
    if kind == "message":
        text = _text(item.get("content"), f"{path}.content")
        if item.get("role") == "assistant":
            last = _assistant(messages)
            last["content"] = (last["content"] or "") + text
        else:
            messages.append({"role": item.get("role", ""), "content": text})
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        _assistant(messages).setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        output = _text(item.get("output"), f"{path}.output")
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
    elif kind == "reasoning":
        thought = _thought(item)
        if thought:
            _assistant(messages)["reasoning_content"] = thought
    else:
        raise invalid(f"{path}.type", f"items of type {shown(kind)} are not served here")


def _assistant(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the assistant's message that is being put together, a new one if need be."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _text(content: Any, path: str) -> str:
    if isinstance(content, str):
        return content
    if not is_array(content):
        raise mistyped(path, "a string or an array", content)
    return "".join(_part(part, f"{path}[{at}]") for at, part in enumerate(content))


def _part(part: Any, path: str) -> str:
    match part:
        case {"type": str(kind), "text": str(text)} if kind in _TEXTS:
            return text
        case {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": str(kind)}:
            raise invalid(
                f"{path}.type", f"content of type {shown(kind)} is not served; expected a text"
            )
        case _:
            raise missing(f"{path}.type")


def _thought(item: Mapping[str, Any]) -> str:
    parts = item.get("content") or item.get("summary") or ()
    texts = (part.get("text") for part in parts if is_object(part))
    return "".join(text for text in texts if isinstance(text, str))


def _tool(tool: Mapping[str, Any], path: str) -> dict[str, Any]:
    kind = tool.get("type")
    if kind != "function":
        raise invalid(f"{path}.type", f"the tool {shown(kind)} runs at OpenAI's, not here")
    function = {
        name: tool[name]
        for name in ("name", "description", "parameters", "strict")
        if tool.get(name) is not None
    }
    return {"type": "function", "function": function}


def _choice(choice: Any) -> Any:
    if is_object(choice) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice


def _format(form: Any) -> Any:
    """Return ``text.format``, which is flat, in chat completions' nested form."""
    if not is_object(form) or form.get("type") != "json_schema":
        return form
    named = {name: form.get(name) for name in ("name", "schema", "strict", "description")}
    given = {name: value for name, value in named.items() if value is not None}
    return {"type": "json_schema", "json_schema": given}
