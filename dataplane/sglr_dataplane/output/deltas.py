"""What the client learns next, one frozen value per fact.

A choice's deltas, concatenated, are the same however the worker cut its chunks (R1), and every
generated character is in one of them or was recognised markup (R2). They are msgspec structs
because one is made for nearly every token: a frozen dataclass takes eight times as long to make.
"""

from __future__ import annotations

import msgspec

from sglr_dataplane.job import FinishReason, Usage


class Text(msgspec.Struct, frozen=True):
    """More of the answer's content; never empty."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """More of the model's thinking; never empty."""

    text: str


class CallStart(msgspec.Struct, frozen=True):
    """A tool call whose name is final."""

    position: int
    """Counts the calls of one choice from 0."""
    id: str
    name: str


class CallArguments(msgspec.Struct, frozen=True):
    """More of a call's arguments: a piece of JSON text, the model's own bytes; never empty."""

    position: int
    text: str


class Finished(msgspec.Struct, frozen=True):
    """The choice is complete; nothing follows."""

    reason: FinishReason
    matched: int | str | None
    usage: Usage


Delta = Text | Reasoning | CallStart | CallArguments | Finished
