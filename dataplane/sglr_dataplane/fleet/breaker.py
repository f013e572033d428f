"""The breaker of one worker: leaves it alone when real traffic fails there; pure.

It hears three outcomes. Succeeded and failed are counted, abandoned is not: refusals, clients that
leave and full queues say nothing about the worker. While half-open one job at a time is let
through; whatever way that job ends, its permit comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from sglr_dataplane.fleet.window import Window


class Outcome(StrEnum):
    """What a worker's breaker and the metrics learn of one attempt."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """The worker's doing: an error, a connection that died, a deadline that passed."""
    ABANDONED = "abandoned"
    """Says nothing about the worker: the client left, the job was invalid, the queue was full."""


class BreakerState(StrEnum):
    """Whom the breaker lets through."""

    CLOSED = "closed"
    """Every job."""
    OPEN = "open"
    """None, until its time is over."""
    HALF_OPEN = "half_open"
    """One at a time, to see."""


# By names of this file: to take a member from its enum takes as long as a call.
SUCCEEDED: Final = Outcome.SUCCEEDED
_FAILED: Final = Outcome.FAILED
CLOSED: Final = BreakerState.CLOSED


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When a breaker opens and for how long; see ``outlierDetection`` in the spec for the reasons."""

    consecutive: int = 5
    """Failures in a row that open it; 0 never."""
    percent: int = 50
    """Share of failures within the window that opens it; 0 never."""
    minimum: int = 20
    """Outcomes within the window below which the share says nothing."""
    window: float = 60.0
    """Seconds."""
    ejection: float = 10.0
    """Seconds that it stays open the first time; doubles with each time in a row."""
    longest: float = 300.0
    """Seconds that it stays open at most."""


class Permit(msgspec.Struct, gc=False, eq=False):
    """One job's way through a breaker."""

    period: int
    """The breaker's period in which it was given: what is older says nothing about now."""
    is_probe: bool


class Breaker:
    """Closed, open, half-open. Times are seconds of one clock that only goes up."""

    def __init__(self, settings: BreakerSettings | None = None) -> None:
        """Start closed."""
        self._settings = settings or BreakerSettings()
        self._window = Window(self._settings.window)
        self.state = CLOSED
        """Whom it lets through, as of the last thing it heard."""
        self._period = 0
        self._failures = 0
        self._openings = 0
        self._probing = False
        self.opened_at = 0.0
        """When it opened last."""
        self._until = 0.0
        self._closed_at = 0.0

    def __repr__(self) -> str:
        return f"<Breaker {self.state} {self._failures} failed in a row, {self._window!r}>"

    @property
    def failures(self) -> int:
        """Failures in a row."""
        return self._failures

    def adjust(self, settings: BreakerSettings) -> None:
        """Go by *settings* from now on; what was counted stays unless the window's length changes."""
        if settings.window != self._settings.window:
            self._window = Window(settings.window)
        self._settings = settings

    def admits(self, now: float) -> bool:
        """Return whether a job may go through at *now*."""
        if self.state is BreakerState.OPEN:
            return now >= self._until
        return self.state is CLOSED or not self._probing

    def enter(self, now: float) -> Permit:
        """Return the permit of a job that starts now; it must be given back.

        A job may start although the breaker does not admit it, as the last resort: if it answers,
        the breaker closes, and if it fails nothing changes.
        """
        if self.state is CLOSED:
            return Permit(self._period, is_probe=False)
        if self.state is BreakerState.OPEN and now >= self._until:
            self._become(BreakerState.HALF_OPEN)
        is_probe = self.state is BreakerState.HALF_OPEN and not self._probing
        self._probing = self._probing or is_probe
        return Permit(self._period, is_probe)

    def answered(self, permit: Permit, now: float) -> None:
        """Hear that *permit*'s job has its first chunk: enough to close, not to count.

        A generation may take half an hour, and nobody waits for its end to know that the worker
        is back.
        """
        if permit.period == self._period and self.state is not CLOSED:
            self._close(now)
            permit.period = self._period
            permit.is_probe = False

    def leave(self, permit: Permit, outcome: Outcome, now: float) -> None:
        """Take *permit* back and hear how its job ended; only once for each permit."""
        if permit.period != self._period:
            return
        if permit.is_probe:
            self._probing = False
        if outcome is _FAILED:
            self._failed(permit, now)
        elif outcome is SUCCEEDED and self.state is CLOSED:
            self._failures = 0
            self._window.add(now, first=1)
        elif outcome is SUCCEEDED:
            self._close(now)

    def _failed(self, permit: Permit, now: float) -> None:
        if self.state is CLOSED:
            self._failures += 1
            self._window.add(now, second=1)
            if self._is_too_much(now):
                self._open(now)
        elif permit.is_probe:
            self._open(now)

    def _is_too_much(self, now: float) -> bool:
        wanted = self._settings
        if wanted.consecutive and self._failures >= wanted.consecutive:
            return True
        succeeded, failed = self._window.counts(now)
        both = succeeded + failed
        return (
            wanted.percent > 0 and wanted.minimum <= both and failed * 100 >= wanted.percent * both
        )

    def _open(self, now: float) -> None:
        if self.state is CLOSED and now - self._closed_at > self._settings.longest:
            # It was well for long: this is a new trouble, not the old one.
            self._openings = 0
        length = self._settings.ejection * 2.0 ** min(self._openings, 30)
        self._openings += 1
        self.opened_at = now
        self._until = now + min(length, self._settings.longest)
        self._become(BreakerState.OPEN)

    def _close(self, now: float) -> None:
        self._failures = 0
        self._window.clear()
        self._closed_at = now
        self._become(CLOSED)

    def _become(self, state: BreakerState) -> None:
        self.state = state
        self._period += 1
        self._probing = False
