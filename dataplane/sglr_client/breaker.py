"""The circuit breaker of one host: pure, the time is given; for any number of threads.

Closed lets calls through, open lets none, half-open lets one probe through. It hears how each call
ended: succeeded, failed or abandoned. An abandoned probe gives its place to the next call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from sglr_client.errors import (
    ClientError,
    DeadlineError,
    LineTooLongError,
    NetworkError,
    OverloadedError,
    ServerError,
    StreamError,
    TlsError,
)


class Outcome(StrEnum):
    """What a call says about its host."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """The host's doing: 5xx, no connection, a connection that died, silence, a cut stream."""
    ABANDONED = "abandoned"
    """Says nothing: the caller left, the request was invalid, the host was only busy."""


class BreakerState(StrEnum):
    """What a breaker does with the next call."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a breaker opens, and for how long.

    Attributes:
        threshold: Failures in a row that open it. 5: one call's three attempts do not.
        cooldown: Seconds before a probe. 10 s: the order of a process's restart.
    """

    threshold: int = 5
    cooldown: float = 10.0


class Breaker:
    """Says which calls may go to a host."""

    def __init__(self, policy: BreakerPolicy | None = None) -> None:
        """Begin closed; None: the default policy."""
        self._policy = policy or BreakerPolicy()
        self._failures = 0
        self._opened: float | None = None
        self._probe: Permit | None = None
        # Reentrant: the garbage collector may end a forgotten call's permit anywhere in here.
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        state = "closed" if self._opened is None else f"opened at {self._opened:.1f}"
        return f"<Breaker {state}, {self._failures} failures, {self._probe or 'no probe'}>"

    def state(self, now: float) -> BreakerState:
        """Return what it would do with a call at *now*."""
        if self._opened is None:
            return BreakerState.CLOSED
        cooling = now < self._opened + self._policy.cooldown
        return BreakerState.OPEN if cooling else BreakerState.HALF_OPEN

    def admit(self, now: float) -> Permit | None:
        """Return a permit for a call; None: it must not go, see `wait`. End every permit."""
        with self._lock:
            state = self.state(now)
            if state is BreakerState.CLOSED:
                return Permit(self._prove, self._settle)
            if state is BreakerState.OPEN or self._probe is not None:
                return None
            self._probe = Permit(self._prove, self._settle)
            return self._probe

    def wait(self, now: float) -> float:
        """Return the seconds until the next probe may go; 0 while one is under way."""
        if self._opened is None:
            return 0.0
        return max(0.0, self._opened + self._policy.cooldown - now)

    def _prove(self, permit: Permit) -> None:
        with self._lock:
            if permit is self._probe:
                self._probe = None
                self._failures = 0
                self._opened = None

    def _settle(self, permit: Permit, outcome: Outcome, now: float) -> None:
        with self._lock:
            probing = permit is self._probe
            if probing:
                self._probe = None
            # Open, and this is no probe: a call from before says nothing about the time after.
            if outcome is Outcome.ABANDONED or (self._opened is not None and not probing):
                return
            if outcome is Outcome.SUCCEEDED:
                self._failures = 0
                self._opened = None
                return
            self._failures += 1
            if probing or self._failures >= self._policy.threshold:
                self._opened = now


class Permit:
    """One call's leave to go; ended once, later ends count for nothing."""

    def __init__(
        self,
        prove: Callable[[Permit], None],
        settle: Callable[[Permit, Outcome, float], None],
    ) -> None:
        """Call *prove* when the host has shown to work, *settle* at the end."""
        self._prove = prove
        self._settle = settle
        self._ended = False

    def __repr__(self) -> str:
        return f"<Permit {'ended' if self._ended else 'held'}>"

    def prove(self) -> None:
        """Say that the host answers, though the call goes on: a probe closes the breaker now.

        A stream lasts; nobody else should have to wait for its end.
        """
        if not self._ended:
            self._prove(self)

    def end(self, outcome: Outcome, now: float) -> None:
        """Tell the breaker how the call ended."""
        if not self._ended:
            self._ended = True
            self._settle(self, outcome, now)


def outcome_of(error: ClientError) -> Outcome:
    """Return what *error* says about the host."""
    if isinstance(error, OverloadedError):
        return Outcome.ABANDONED  # busy is not broken: it would stay shed after it has room again
    if isinstance(error, DeadlineError):
        return Outcome.ABANDONED if error.phase == "pool" else Outcome.FAILED
    if isinstance(error, LineTooLongError):
        return Outcome.ABANDONED  # our cap, reached by what one caller asked for
    broken = isinstance(error, ServerError | NetworkError | TlsError | StreamError)
    return Outcome.FAILED if broken else Outcome.ABANDONED
