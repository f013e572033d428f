"""Messages and tools as a template sees them: SGLang's HTTP front end, step by step.

Copied behaviour (sglang 0.5.23, ``serving_chat.py``): the same keys in the same order, so that a
prompt rendered here has the same tokens, and finds the same prefix cache, as one rendered there.
Where this differs on purpose, the function says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final, Literal, Protocol

import msgspec

from sglr_dataplane.errors import InvalidRequestError
from sglr_dataplane.prompt.conversation import (
    ContentPart,
    Conversation,
    FunctionCall,
    Message,
    Tool,
    ToolCall,
)
from sglr_dataplane.prompt.json_values import is_object, path_of_nul

ContentFormat = Literal["string", "openai"]


class TemplateFacts(Protocol):
    """What the preparation must know of the template."""

    @property
    def content_format(self) -> ContentFormat:
        """Whether the template wants content as one string or as a list of parts."""
        ...

    @property
    def knows_developer(self) -> bool:
        """Whether the template has a place for the developer role."""
        ...


class Prepared(msgspec.Struct, frozen=True):
    """Plain JSON values, ready to be given to a template."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    continuation: str = ""
    """What the model goes on writing; appended after the generation prompt."""


def prepared(conversation: Conversation, facts: TemplateFacts) -> Prepared:
    """Return *conversation* as the template wants it.

    Raises:
        InvalidRequestError: A call's arguments are no JSON object, or there is no assistant's
            message to continue; *param* is the path.
    """
    messages = [_message(message, at, facts) for at, message in enumerate(conversation.messages)]
    continuation = ""
    if conversation.continue_final_message:
        continuation = _popped_continuation(messages)
    tools = _tools(conversation) if conversation.tools else None
    return Prepared(messages, tools, continuation)


def flat(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return *tools* without OpenAI's wrapper, as Mistral's templates want them."""
    return [tool["function"] for tool in tools]


_BESIDE_CONTENT: Final = attrgetter(
    "tool_call_id",
    "name",
    "phase",
    "reasoning_content",
    "reasoning",
    "tool_calls",
    "function_call",
)
_NOTHING: Final = (None,) * 7


def _message(message: Message, at: int, facts: TemplateFacts) -> dict[str, Any]:
    role = message.role if message.role in _KNOWN_TO_ALL else _role(message.role, facts)
    content = "" if message.content is None else message.content
    fields: dict[str, Any] = {"role": role, "content": content}
    # sglang: a user's message has a role and content, nothing else.
    if role != "user" and _BESIDE_CONTENT(message) != _NOTHING:
        fields |= _beside_content(message, role, f"messages[{at}]")
    if not isinstance(content, str):
        shown = _parts(content, message.role, facts)
        if not isinstance(shown, str):
            del fields["content"]  # sglang: rebuilt parts come last
        fields["content"] = shown
    return fields


_KNOWN_TO_ALL: Final = frozenset({"system", "user", "assistant", "tool"})


def _role(role: str, facts: TemplateFacts) -> str:
    # Not sglang's: it hands both on, and most templates then drop the message in silence.
    if role == "developer" and not facts.knows_developer:
        return "system"
    return "tool" if role == "function" else role


def _beside_content(message: Message, role: str, path: str) -> dict[str, Any]:
    fields = {
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "phase": message.phase,
        "reasoning_content": _reasoning(message),
        "tool_calls": _calls(message, path) if role == "assistant" else None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _parts(
    content: list[ContentPart], role: str, facts: TemplateFacts
) -> str | list[dict[str, Any]]:
    if facts.content_format == "openai" and role not in ("tool", "function"):
        return [{"type": "text", "text": part.text or ""} for part in content]
    return joined(content)


def joined(parts: list[ContentPart]) -> str:
    """Return the text of *parts* with one space between them."""
    return " ".join(part.text or "" for part in parts)


def _reasoning(message: Message) -> str | None:
    if message.reasoning_content is not None:
        return message.reasoning_content
    return message.reasoning if isinstance(message.reasoning, str) else None


def _calls(message: Message, path: str) -> list[dict[str, Any]] | None:
    if message.tool_calls is not None:
        return [
            _call(call, f"{path}.tool_calls[{at}].function.arguments")
            for at, call in enumerate(message.tool_calls)
        ]
    if message.function_call is not None:
        return [_call(ToolCall(message.function_call), f"{path}.function_call.arguments")]
    return None


def _call(call: ToolCall, path: str) -> dict[str, Any]:
    return {
        "id": call.id,
        "index": call.index,
        "type": "function",
        "function": {
            "name": call.function.name,
            "arguments": _arguments(call.function, path),
        },
    }


def _arguments(call: FunctionCall, path: str) -> Mapping[str, Any]:
    """Return the arguments as an object; none, ``""`` and blanks are ``{}`` (sglang refuses "")."""
    if isinstance(call.arguments, dict):
        return call.arguments
    text = (call.arguments or "").strip()
    if not text:
        return {}
    try:
        arguments: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequestError(
            f"The arguments of the call of {call.name!r} are not valid JSON ({error});"
            " expected the text of a JSON object.",
            param=path,
        ) from error
    if not is_object(arguments):
        raise InvalidRequestError(
            f"The arguments of the call of {call.name!r} are JSON, but no object; expected the text"
            ' of a JSON object such as "{}".',
            param=path,
        )
    if "\\u0000" in text and path_of_nul(arguments) is not None:
        raise InvalidRequestError(
            f"The arguments of the call of {call.name!r} contain a NUL character (\\u0000), which"
            " no prompt can hold.",
            param=path,
        )
    return arguments


def _tools(conversation: Conversation) -> list[dict[str, Any]] | None:
    choice = conversation.choice
    if choice.mode == "none":
        return None
    # A list of allowed tools narrows the grammar, not the prompt: the prefix cache stays warm.
    allowed = choice.allowed if choice.named else None
    shown = [tool for tool in conversation.tools if allowed is None or tool.name in allowed]
    return [_wrapped(tool) for tool in shown]


def _wrapped(tool: Tool) -> dict[str, Any]:
    # sglang@v0.5.23 protocol.py: ``Tool.model_dump()`` writes its unset ``defer_loading`` as null,
    # and templates print the whole dict.
    function = dict(tool.function)
    return {
        "type": "function",
        "function": function,
        "defer_loading": function.get("defer_loading"),
    }


def _popped_continuation(messages: list[dict[str, Any]]) -> str:
    if messages[-1]["role"] != "assistant":
        raise InvalidRequestError(
            "'continue_final_message' needs the last message to be the assistant's; its role is"
            f" {messages[-1]['role']!r}.",
            param="continue_final_message",
        )
    content = messages.pop()["content"]
    if isinstance(content, str):
        return content
    return " ".join(part["text"] for part in content)
