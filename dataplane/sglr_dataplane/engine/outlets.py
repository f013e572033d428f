"""Where relayed frames go, and how much of an answer may wait on its way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sglr_dataplane.engine.events import LONGEST_LINE


class Outlet(Protocol):
    """Takes frames for the client."""

    @property
    def is_full(self) -> bool:
        """Whether the client does not read."""
        ...

    def write(self, part: bytes) -> None:
        """Write *part*."""
        ...


class Spoken(Protocol):
    """Keeps when something was last said."""

    spoke_at: float
    """By the loop's clock."""


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """What one answer may use, in bytes."""

    line: int = LONGEST_LINE
    """Of a stream's line."""
    whole: int = 256 * 2**20
    """Of an answer in one piece: as much as a gRPC worker may send in one message."""
    unread: int = 65_536
    """Of a stream that its client has not taken: then the worker is held back. A second of text."""
