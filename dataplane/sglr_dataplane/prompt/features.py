"""What a chat template can do, found out by rendering with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sglr_dataplane.errors import InvalidRequestError
from sglr_dataplane.prompt.conversation import (
    Conversation,
    FunctionCall,
    Message,
    Tool,
    ToolCall,
    ToolChoice,
)
from sglr_dataplane.prompt.messages import ContentFormat
from sglr_dataplane.prompt.rendering import rendered
from sglr_dataplane.prompt.template import ChatTemplate

Shown = Literal["shown", "left out", "refused"]
"""What becomes of a part of a conversation: it is in the prompt, it is not, or there is none."""

_SWITCHES: Final = ("enable_thinking", "thinking", "reasoning_effort", "thinking_budget")
_PARAMETERS: Final = {"type": "object", "properties": {"place": {"type": "string"}}}
_TOOLS: Final = tuple(
    Tool(
        name, _PARAMETERS, strict=False,
        function={"name": name, "description": f"Look at {name}.", "parameters": _PARAMETERS},
    )
    for name in ("weather", "clock")
)  # fmt: skip
_USER: Final = Message(role="user", content="What is it like in Paris?")
_SYSTEM: Final = Message(role="system", content="Be brief, says the system.")


@dataclass(frozen=True, slots=True)
class Features:
    """What a template can do."""

    system: Shown
    tools: Shown
    tool_results: Shown
    parallel_calls: Shown
    """Two calls in one turn of the history."""
    thinking: tuple[str, ...]
    """Template arguments that it looks at and that concern thinking."""
    content: ContentFormat
    developer: bool
    """Whether it knows the developer role; else the system's is used."""


def features_of(template: ChatTemplate) -> Features:
    """Return what *template* can do; takes milliseconds."""
    system = _shown(template, Conversation((_SYSTEM, _USER)), "says the system")
    return Features(
        system=system,
        tools=_shown(template, Conversation((_USER,), _TOOLS, ToolChoice("auto")), "weather"),
        tool_results=_shown(template, _looped(1), "result of weather"),
        parallel_calls=_shown(template, _looped(2), "in London", "result of clock"),
        thinking=tuple(name for name in _SWITCHES if template.reads(name)),
        content=template.content_format,
        developer=template.knows_developer,
    )


def sample_of(template: ChatTemplate) -> str | None:
    """Return the prompt of a short chat, with a system message if there can be one; None if none."""
    for messages in ((_SYSTEM, _USER), (_USER,)):
        try:
            return rendered(Conversation(messages), template).text
        except InvalidRequestError:
            continue
    return None


def _looped(calls: int) -> Conversation:
    """Return a conversation with so many calls at once, and their results."""
    names, places = ("weather", "clock")[:calls], ("in Paris", "in London")
    # Nine letters and digits: what Mistral's templates want of an id.
    ids = ("call0weat", "call0cloc")
    history = [
        ToolCall(FunctionCall(name, {"place": place}), id=call_id)
        for name, place, call_id in zip(names, places, ids, strict=False)
    ]
    results = [
        Message(role="tool", content=f"result of {name}", tool_call_id=call_id, name=name)
        for name, call_id in zip(names, ids, strict=False)
    ]
    turn = Message(role="assistant", tool_calls=history)
    return Conversation((_USER, turn, *results), _TOOLS, ToolChoice("auto"))


def _shown(template: ChatTemplate, conversation: Conversation, *words: str) -> Shown:
    try:
        text = rendered(conversation, template).text
    except InvalidRequestError:
        return "refused"
    return "shown" if all(word in text for word in words) else "left out"


def named(features: Features) -> Mapping[str, Any]:
    """Return *features* by name, for people and for JSON."""
    return {
        "system": features.system,
        "tools": features.tools,
        "toolResults": features.tool_results,
        "parallelCalls": features.parallel_calls,
        "thinking": list(features.thinking),
        "content": features.content,
        "developer": features.developer,
    }
