"""What all calls of one client share, and the account that is kept of each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from sglr_client.breaker import Breaker, Permit
from sglr_client.calls import Call
from sglr_client.errors import BreakerOpenError, ClientError, DeadlineError, UnhealthyError
from sglr_client.health import HealthRecord
from sglr_client.limits import Limits, Timeouts
from sglr_client.metrics import CallReport, MetricsSink
from sglr_client.reading import ChunkReader
from sglr_client.results import Usage
from sglr_client.retry import Attempts, RetryBudget, RetryPolicy


@dataclass(frozen=True, slots=True)
class Rules:
    """By what a client's calls go.

    Attributes:
        breaker: None: calls always go.
        clock: Seconds, never going back.
        wall: Seconds since the epoch, for dates in ``Retry-After``.
        chance: Returns a number in ``[0, 1)``.
    """

    host: str
    limits: Limits
    timeouts: Timeouts
    retry: RetryPolicy
    budget: RetryBudget
    breaker: Breaker | None
    health: HealthRecord
    sink: MetricsSink
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random


class Account:
    """One call, from its beginning to its report.

    Attributes:
        reader: The newest attempt's stream; None: no stream, or none yet.
    """

    def __init__(self, call: Call, rules: Rules) -> None:
        """Keep account of *call* from `begin` on."""
        self.call = call
        self.rules = rules
        self.timeouts = call.timeout or rules.timeouts
        self.reader: ChunkReader | None = None
        self.usage: Usage | None = None
        self._began = rules.clock()
        self._first: float | None = None
        self._last: float | None = None
        self._retries = 0
        self._permit: Permit | None = None
        self.attempts = Attempts(rules.retry, rules.budget, rules.chance)

    def __repr__(self) -> str:
        return f"<Account {self.call.operation} {self.attempts!r}>"

    @property
    def handed_out(self) -> bool:
        """The caller has had content: the point of no return."""
        return self.reader is not None and self.reader.started

    def begin(self) -> None:
        """Begin now: the call's time runs from here."""
        self._began = self.rules.clock()
        self.rules.budget.deposit()

    def left(self) -> float | None:
        """Return the seconds the call still has; None: no limit.

        Raises:
            DeadlineError: None are left.
        """
        left = self._left()
        if left is not None and left <= 0:
            raise DeadlineError("total", "The call did not end within its time.")
        return left

    def admitted(self) -> Permit | None:
        """Return the breaker's permit for an attempt, to be ended; None without a breaker.

        Raises:
            BreakerOpenError: The breaker lets no call through.
        """
        breaker = self.rules.breaker
        if breaker is None:
            return None
        now = self.rules.clock()
        permit = breaker.admit(now)
        if permit is None:
            raise BreakerOpenError(self.rules.host, breaker.wait(now))
        self._permit = permit
        return permit

    def check_health(self) -> None:
        """Raise UnhealthyError if a fresh check found the host down."""
        found = self.rules.health.fresh(self.rules.clock())
        if found is not None and not found.is_up:
            raise UnhealthyError(f"Host {self.rules.host!r} is down: {found.reason}.")

    def delay(self, error: ClientError) -> float | None:
        """Return the seconds to wait before the next attempt; None: *error* stands."""
        if self.handed_out:
            return None
        delay = self.attempts.after(error, self._left())
        if delay is not None:
            self._retries += 1
            self.rules.sink.retry(self.call.operation, error.kind)
        return delay

    def note_content(self) -> None:
        """Take the time of content that was read just now."""
        self._last = self.rules.clock()
        if self._first is None:
            self._first = self._last
            if self._permit is not None:
                self._permit.prove()

    def report(self, outcome: str) -> CallReport:
        """Return what there is to tell at the end."""
        now = self.rules.clock()
        usage = (self.reader.usage if self.reader else self.usage) or Usage()
        return CallReport(
            self.call.operation,
            self.call.model,
            outcome,
            retries=self._retries,
            seconds=now - self._began,
            first_content=None if self._first is None else self._first - self._began,
            per_token=self._per_token(usage.completion_tokens),
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
        )

    def _per_token(self, tokens: int) -> float | None:
        if self._first is None or self._last is None or self.reader is None:
            return None
        # Without usage a chunk with content is the best guess at a token.
        after_first = (tokens or self.reader.chunks) - 1
        return (self._last - self._first) / after_first if after_first > 0 else None

    def _left(self) -> float | None:
        limits = [self.timeouts.stream_total] if self.call.stream else []
        if not self.handed_out:
            limits.append(self.timeouts.total)
        bounds = [seconds for seconds in limits if seconds is not None]
        return min(bounds) - (self.rules.clock() - self._began) if bounds else None
