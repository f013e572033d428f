"""What the client learns next, one frozen value per fact.

A choice's deltas, concatenated, are the same however the worker cut its chunks (R1), and every
generated character is in one of them or was recognised markup (R2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglr_dataplane.job import FinishReason, Usage


@dataclass(frozen=True, slots=True)
class Text:
    """More of the answer's content; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of the model's thinking; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call whose name is final."""

    position: int
    """Counts the calls of one choice from 0."""
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments: a piece of JSON text, the model's own bytes; never empty."""

    position: int
    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The choice is complete; nothing follows."""

    reason: FinishReason
    matched: int | str | None
    usage: Usage


Delta = Text | Reasoning | CallStart | CallArguments | Finished
