"""All deltas of one choice as one message: the answer of a request that does not stream."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sglr_dataplane.output.deltas import CallStart, Delta, Finished, Reasoning, Text


class ToolCall(msgspec.Struct, frozen=True):
    """One whole tool call."""

    id: str
    name: str
    arguments: str
    """JSON text, the model's own; a beginning of it when the answer was cut."""


class Message(msgspec.Struct, frozen=True):
    """What one choice says."""

    content: str | None
    """None when there is no content."""
    reasoning: str | None
    """None when there is no reasoning."""
    tool_calls: tuple[ToolCall, ...]
    finish: Finished | None
    """None when the deltas end before the choice does."""


def collect(deltas: Iterable[Delta]) -> Message:
    """Return what *deltas* say in all."""
    content: list[str] = []
    reasoning: list[str] = []
    starts: list[CallStart] = []
    arguments: list[list[str]] = []
    finish: Finished | None = None
    for delta in deltas:
        if isinstance(delta, Text):
            content.append(delta.text)
        elif isinstance(delta, Reasoning):
            reasoning.append(delta.text)
        elif isinstance(delta, CallStart):
            starts.append(delta)
            arguments.append([])
        elif isinstance(delta, Finished):
            finish = delta
        else:
            arguments[delta.position].append(delta.text)
    return Message(
        content="".join(content) or None,
        reasoning="".join(reasoning) or None,
        tool_calls=_calls(starts, arguments) if starts else (),
        finish=finish,
    )


def _calls(starts: list[CallStart], arguments: list[list[str]]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(start.id, start.name, "".join(parts))
        for start, parts in zip(starts, arguments, strict=True)
    )
