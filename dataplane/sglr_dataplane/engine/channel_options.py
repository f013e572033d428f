"""How a worker is called: connections, deadlines of theirs, and sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sglr_dataplane.engine.h2.link import Keepalive
from sglr_dataplane.engine.h2.state import Limits

LARGEST_MESSAGE: Final = 256 * 2**20
"""Bytes, both ways: what SGLang's own server takes."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait, in seconds, after an attempt to connect failed."""

    first: float = 0.2
    factor: float = 1.6
    longest: float = 2.0
    """gRPC's is two minutes: far too long for a worker that came back."""
    jitter: float = 0.2
    """Part of the wait that is random, so that many routers do not knock at once."""

    def delay(self, failures: int, chance: float) -> float:
        """Return the wait after *failures* in a row; *chance* in [0, 1) picks within the jitter."""
        wait = min(self.first * self.factor ** (failures - 1), self.longest)
        return wait * (1 + self.jitter * (2 * chance - 1))


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """How one worker is called."""

    connect_timeout: float = 2.0
    """Seconds for TCP, TLS and the worker's first SETTINGS together."""
    max_connections: int = 8
    """More than one only when the worker limits the streams of a connection. Calls beyond all
    limits wait their turn."""
    idle_timeout: float = 60.0
    """Seconds that a connection beyond the first is kept with nothing on it."""
    largest_message: int = LARGEST_MESSAGE
    limits: Limits = field(default_factory=Limits)
    keepalive: Keepalive = field(default_factory=Keepalive)
    backoff: Backoff = field(default_factory=Backoff)
