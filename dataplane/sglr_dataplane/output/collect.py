"""All deltas of one choice as one message: the answer of a request that does not stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sglr_dataplane.output.deltas import CallStart, Delta, Finished, Reasoning, Text


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One whole tool call."""

    id: str
    name: str
    arguments: str
    """JSON text, the model's own; a beginning of it when the answer was cut."""


@dataclass(frozen=True, slots=True)
class Message:
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
        tool_calls=tuple(
            ToolCall(start.id, start.name, "".join(parts))
            for start, parts in zip(starts, arguments, strict=True)
        ),
        finish=finish,
    )
