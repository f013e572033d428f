"""From the bytes of a request to Anthropic's Messages API to a chat request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from sglr_dataplane.api.schema.adapted_fields import MESSAGES_FIELDS
from sglr_dataplane.api.schema.bodies import BodyReader
from sglr_dataplane.api.schema.chat import ChatRequest, chat_request
from sglr_dataplane.api.schema.refusals import invalid, missing, mistyped
from sglr_dataplane.prompt.constraint import compact
from sglr_dataplane.prompt.json_values import is_array, is_object
from sglr_dataplane.prompt.ranges import shown

BUDGET_WARNING: Final = "thinking.budget_tokens has no effect: thoughts have no limit of their own"

_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


class MessagesBody(msgspec.Struct, frozen=True, kw_only=True):
    """The honoured fields, as they are sent; null and absent are the same."""

    model: str
    messages: list[dict[str, Any]]
    max_tokens: int | None = None
    system: Any = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None


_READER = BodyReader(MessagesBody, MESSAGES_FIELDS)


def decode_messages(body: bytes, *, counts_only: bool = False) -> ChatRequest:
    """Return the request in *body* as a chat request.

    Args:
        body: What was sent.
        counts_only: Whether nothing is to be generated: no limit has to be given then.

    Raises:
        InvalidJsonError: *body* is not JSON.
        InvalidRequestError: It is no valid request; *param* is the path of what is wrong.
    """
    sent = _READER.read(body)
    if sent.max_tokens is None and not counts_only:
        raise missing("max_tokens")
    choice, parallel = _choice(sent.tool_choice)
    budget = (sent.thinking or {}).get("budget_tokens")
    return chat_request(
        {
            "model": sent.model,
            "messages": _conversation(sent),
            "max_tokens": sent.max_tokens,
            "stop": sent.stop_sequences or None,
            "stream": sent.stream,
            "temperature": sent.temperature,
            "top_k": sent.top_k,
            "top_p": sent.top_p,
            "tools": [_tool(tool, f"tools[{at}]") for at, tool in enumerate(sent.tools or ())],
            "tool_choice": choice,
            "parallel_tool_calls": parallel,
            # Anthropic: no thinking unless it is asked for.
            "thinking": {"type": (sent.thinking or {}).get("type", "disabled")},
            "continue_final_message": _continues(sent.messages),
        }
        | _output(sent.output_config or {}),
        warnings=() if budget is None else (BUDGET_WARNING,),
    )


def _conversation(sent: MessagesBody) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if sent.system is not None:
        messages.append({"role": "system", "content": _text(sent.system, "system")})
    for at, message in enumerate(sent.messages):
        path = f"messages[{at}]"
        role = message.get("role")
        if role == "user":
            messages += _of_user(_blocks(message, path), f"{path}.content")
        elif role == "assistant":
            messages.append(_of_assistant(_blocks(message, path), f"{path}.content"))
        elif role == "system":
            text = _text(message.get("content"), f"{path}.content")
            messages.append({"role": "system", "content": text})
        else:
            raise invalid(f"{path}.role", f"expected 'user' or 'assistant', but got {shown(role)}")
    return messages


def _blocks(message: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    content = message.get("content")
    if content is None:
        raise missing(f"{path}.content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not is_array(content):
        raise mistyped(f"{path}.content", "a string or an array", content)
    for at, block in enumerate(content):
        if not is_object(block):
            raise mistyped(f"{path}.content[{at}]", "an object", block)
    return content


def _of_user(blocks: Iterable[dict[str, Any]], path: str) -> list[dict[str, Any]]:
    """Return a user's turn: the results of calls first, then what was said."""
    results: list[dict[str, Any]] = []
    said: list[str] = []
    for at, block in enumerate(blocks):
        here = f"{path}[{at}]"
        if block.get("type") == "tool_result":
            results.append(
                {
                    "role": "tool",
                    "tool_call_id": block.get("tool_use_id"),
                    "content": _text(block.get("content") or "", f"{here}.content"),
                }
            )
        else:
            said.append(_text_of_block(block, here))
    return [*results, {"role": "user", "content": "".join(said)}] if said else results


def _of_assistant(blocks: Iterable[dict[str, Any]], path: str) -> dict[str, Any]:
    said: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for at, block in enumerate(blocks):
        match block:
            case {"type": "tool_use", "name": str(name), "input": given} if is_object(given):
                function = {"name": name, "arguments": compact(given)}
                calls.append({"id": block.get("id"), "type": "function", "function": function})
            case {"type": "thinking", "thinking": str(thought)}:
                thoughts.append(thought)
            case {"type": "redacted_thinking"}:
                pass  # it is for Anthropic's own servers to read
            case _:
                said.append(_text_of_block(block, f"{path}[{at}]"))
    message: dict[str, Any] = {"role": "assistant", "content": "".join(said) if said else None}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _text(content: Any, path: str) -> str:
    """Return *content*, a text or text blocks, as one text."""
    if isinstance(content, str):
        return content
    if not is_array(content):
        raise mistyped(path, "a string or an array", content)
    return "".join(_text_of_block(block, f"{path}[{at}]") for at, block in enumerate(content))


def _text_of_block(block: Any, path: str) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "text"}:
            raise missing(f"{path}.text")
        case {"type": str(kind)}:
            raise invalid(f"{path}.type", f"{shown(kind)} is not served here; expected 'text'")
        case _:
            raise missing(f"{path}.type")


def _tool(tool: Mapping[str, Any], path: str) -> dict[str, Any]:
    kind = tool.get("type")
    if kind not in (None, "custom"):
        raise invalid(f"{path}.type", f"the tool {shown(kind)} runs at Anthropic's, not here")
    function = {
        name: tool[key]
        for key, name in (
            ("name", "name"),
            ("description", "description"),
            ("input_schema", "parameters"),
            ("strict", "strict"),
        )
        if tool.get(key) is not None
    }
    return {"type": "function", "function": function}


def _choice(choice: Mapping[str, Any] | None) -> tuple[Any, bool | None]:
    """Return the tool choice as OpenAI has it, and whether calls may be parallel."""
    if choice is None:
        return None, None
    kind = choice.get("type")
    parallel = False if choice.get("disable_parallel_tool_use") else None
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}, parallel
    if kind not in _CHOICES:
        raise invalid(
            "tool_choice.type", f"expected 'auto', 'any', 'tool' or 'none', but got {shown(kind)}"
        )
    return _CHOICES[kind], parallel


def _continues(messages: list[dict[str, Any]]) -> bool:
    """Return whether the last turn is the assistant's own, to be gone on with."""
    last = messages[-1] if messages else {}
    content = last.get("content")
    calls = is_array(content) and any(
        is_object(block) and block.get("type") == "tool_use" for block in content
    )
    return last.get("role") == "assistant" and not calls


def _output(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``output_config`` asks for in chat completions' words."""
    fields: dict[str, Any] = {}
    if config.get("effort") is not None:
        fields["reasoning_effort"] = config["effort"]
        fields["thinking"] = None
    form = config.get("format")
    if form is None:
        return fields
    if not is_object(form) or form.get("type") != "json_schema":
        raise invalid("output_config.format", "expected an object of type 'json_schema'")
    named = {"name": "answer", "schema": form.get("schema"), "strict": True}
    return fields | {"response_format": {"type": "json_schema", "json_schema": named}}
