"""What an answer is read by: markers, what they open, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sglr_dataplane.output.bodies import Body
from sglr_dataplane.output.channels import Channels

Start = Literal["inside", "outside", "off"]
"""Where an answer begins: inside reasoning, outside but free to open it, or with reasoning off."""


@dataclass(frozen=True, slots=True)
class Opener:
    """A marker that may begin a tool block."""

    marker: str
    body: Body
    where: Literal["anywhere", "line", "start"] = "anywhere"
    """``line``: only where a line starts. ``start``: only where the answer starts."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """Markers around the answer's text that are no part of it."""

    opens: str
    closes: str


@dataclass(frozen=True, slots=True)
class Grammar:
    """What one choice is read by: a tool format, a reasoning format, or both."""

    openers: tuple[Opener, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    drops: tuple[str, ...] = ()
    """Markup in the answer that says nothing."""
    thought_opens: tuple[str, ...] = ()
    thought_closes: tuple[str, ...] = ()
    restored: str = ""
    """What the content begins with when the prompt opened it."""
    calls_in_thought: bool = False
    """Whether thinking goes on after a call that stood inside it."""
    channels: Channels | None = None
    """How whole messages are framed; then nothing else is read."""
    has_tools: bool = False
    """Whether framed messages to tools are calls."""
    forced: bool = False
    """Whether a framed message's text may be the calls that a grammar forced."""

    def opener(self, marker: str) -> Opener:
        """Return the opener of *marker*."""
        return next(opener for opener in self.openers if opener.marker == marker)

    def markers(self) -> frozenset[str]:
        """Return all markers an answer is read by."""
        wraps = (text for wrapper in self.wrappers for text in (wrapper.opens, wrapper.closes))
        inner = (text for opener in self.openers for text in (opener.marker, *opener.body.markers))
        if self.channels is not None:
            return self.channels.markers()
        return frozenset((*wraps, *inner, *self.drops, *self.thought_opens, *self.thought_closes))
