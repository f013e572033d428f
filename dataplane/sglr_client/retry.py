"""When a call is tried again, and after how long: pure, randomness is given."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from sglr_client.errors import (
    ClientError,
    DeadlineError,
    NetworkError,
    RateLimitedError,
    RefusedError,
    ServerError,
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon.

    Attributes:
        attempts: In all, the first included; 1: never again.
        initial: Seconds before the second attempt.
        multiplier: Of the delay, from each attempt to the next.
        cap: The longest delay of our own choice; ``Retry-After`` may ask for more.
        jitter: The share of a delay that is left to chance, so that clients who failed together
            do not come back together.
        budget: Retries allowed per request, over time. 0.2: a server in trouble gets a fifth
            more load, not three times the load.
        reserve: Retries allowed before there were any requests, and the most that are saved up.
    """

    attempts: int = 3
    initial: float = 0.5
    multiplier: float = 2.0
    cap: float = 5.0
    jitter: float = 0.5
    budget: float = 0.2
    reserve: float = 10.0

    def delay(self, failed: int, chance: float) -> float:
        """Return the seconds to wait after *failed* attempts, 1 or more.

        Args:
            failed: Attempts that failed so far.
            chance: In ``[0, 1)``; 0 gives the longest delay.
        """
        nominal = min(self.cap, self.initial * self.multiplier ** (failed - 1))
        return nominal * (1.0 - self.jitter * chance)


class RetryBudget:
    """Counts what requests put in and retries take out; for any number of threads."""

    def __init__(self, policy: RetryPolicy) -> None:
        """Begin with the policy's reserve."""
        self._policy = policy
        self._saved = policy.reserve
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<RetryBudget {self._saved:.1f}>"

    def deposit(self) -> None:
        """Count a request."""
        with self._lock:
            self._saved = min(self._policy.reserve, self._saved + self._policy.budget)

    def withdraw(self) -> bool:
        """Take one retry out; False when there is none."""
        with self._lock:
            if self._saved < 1.0:
                return False
            self._saved -= 1.0
            return True


def may_retry(error: ClientError) -> bool:
    """Say whether the same request can succeed after *error*: 5xx, 429 and the network's faults."""
    if isinstance(error, RefusedError):
        return error.may_retry and isinstance(error, ServerError | RateLimitedError)
    if isinstance(error, DeadlineError):
        # "pool" is this client's own crowd, "total" and "idle" leave no time or no trust.
        return error.phase in {"connect", "headers"}
    return isinstance(error, NetworkError)


class Attempts:
    """The attempts of one call: how many there were, and when the next one may begin."""

    def __init__(
        self, policy: RetryPolicy, budget: RetryBudget, chance: Callable[[], float]
    ) -> None:
        """Count the call's attempts.

        Args:
            policy: How often and how soon.
            budget: Shared by the calls of a client.
            chance: Returns a number in ``[0, 1)``.
        """
        self._policy = policy
        self._budget = budget
        self._chance = chance
        self.failed = 0
        """Attempts that failed so far."""

    def __repr__(self) -> str:
        return f"<Attempts {self.failed} of {self._policy.attempts} failed>"

    def after(self, error: ClientError, left: float | None) -> float | None:
        """Return the seconds to wait before the next attempt; None: *error* is the call's result.

        Args:
            error: What the last attempt ended in.
            left: Seconds until the call must be done; None: no limit. A longer wait is not begun.
        """
        self.failed += 1
        if self.failed >= self._policy.attempts or not may_retry(error):
            return None
        delay = self._policy.delay(self.failed, self._chance())
        if isinstance(error, RefusedError) and error.retry_after is not None:
            delay = max(delay, error.retry_after)
        if left is not None and delay >= left:
            return None
        return delay if self._budget.withdraw() else None


def retry_after(headers: Mapping[str, str], wall: float) -> float | None:
    """Return the seconds an answer asks to wait; None when it does not, or not readably.

    Args:
        headers: With lower-case names; ``retry-after-ms`` goes before ``retry-after``.
        wall: Seconds since the epoch, for dates.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    told = headers.get("retry-after")
    seconds = _number(told)
    return seconds if seconds is not None or told is None else _until(told, wall)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    # nan fails both comparisons; a negative delay means nothing.
    return number if 0.0 <= number < float("inf") else None


def _until(date: str, wall: float) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.fromtimestamp(wall, UTC)).total_seconds())
