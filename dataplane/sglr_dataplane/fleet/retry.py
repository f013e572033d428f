"""Retries: what may be tried again, how often, and after how long; pure."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from sglr_dataplane.errors import (
    InvalidRequestError,
    RequestTooLargeError,
    RouterError,
    WorkerBusyError,
    WorkerError,
    WorkerLostError,
    WorkerUnavailableError,
)
from sglr_dataplane.fleet.window import Window


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """How often and how soon; see ``retry`` in the spec for the reasons."""

    attempts: int = 3
    """Attempts after the first."""
    first_backoff: float = 0.05
    longest_backoff: float = 2.0
    longest_pause: float = 10.0
    """Seconds for which a full worker may ask to be avoided."""
    budget_percent: int = 20
    budget_minimum: int = 10
    budget_window: float = 10.0
    hedge_after: float | None = None
    """Seconds without a first chunk after which another worker is asked as well; None never."""

    def backoff(self, attempt: int, chance: float) -> float:
        """Return the seconds to wait before attempt *attempt*, counted from 1 for the second try.

        Full jitter: *chance* in ``[0, 1)`` of the longest wait, so that what failed together does
        not come back together.
        """
        return chance * min(self.first_backoff * 2.0 ** min(attempt - 1, 30), self.longest_backoff)


class RetryBudget:
    """How much load retries may add to one backend: a share of its requests over a window."""

    def __init__(self, settings: RetrySettings) -> None:
        """Start with nothing used."""
        self._settings: RetrySettings = settings
        self._window: Window = Window(settings.budget_window)

    def __repr__(self) -> str:
        return f"<RetryBudget requests and retries: {self._window!r}>"

    def adjust(self, settings: RetrySettings) -> None:
        """Go by *settings* from now on."""
        if settings.budget_window != self._settings.budget_window:
            self._window = Window(settings.budget_window)
        self._settings = settings

    def request(self, now: float) -> None:
        """Count a request's first attempt."""
        self._window.add(now, first=1)

    def take(self, now: float) -> bool:
        """Return whether one more retry fits at *now*, and count it if it does."""
        requests, retries = self._window.counts(now)
        share = requests * self._settings.budget_percent // 100
        if retries >= max(share, self._settings.budget_minimum):
            return False
        self._window.add(now, second=1)
        return True


class Retries(msgspec.Struct):
    """What one job may still be tried again after; another worker each time.

    The first retry after a dead worker is free of the budget. A worker that dies drops all its jobs
    at once, while they are far more than any share of the requests of its last seconds; they are
    no new load, for they leave the dead worker, and one retry for each cannot become a storm. The
    budget is for the rest: what keeps failing, and what live workers refuse, which they would only
    have to do again.
    """

    budget: RetryBudget
    left: int
    """Attempts after the first, whatever they fail with, as far as the budget goes."""
    free: int = 1
    losses: int = 1
    errors: int = 1

    @property
    def has_lost(self) -> bool:
        """Whether a worker went away under the job."""
        return self.losses < 1

    def allow(self, failure: RouterError, now: float) -> bool:
        """Return whether the job may go to another worker after *failure*, and count it at *now*."""
        self.left -= 1
        if self.left < 0 or not self._is_worth_it(failure):
            return False
        if isinstance(failure, WorkerUnavailableError) and self.free:
            self.free -= 1
            return True
        return self.budget.take(now)

    def hedge(self, now: float) -> bool:
        """Return whether the job may be on a second worker too from *now* on; count it if so."""
        if self.left < 1 or not self.budget.take(now):
            return False
        self.left -= 1
        return True

    def note(self, failure: RouterError) -> bool:
        """Count *failure*, beside which another attempt runs; return whether that may go on."""
        self._is_worth_it(failure)
        # Another worker would refuse the job, too.
        return not isinstance(failure, InvalidRequestError | RequestTooLargeError)

    def _is_worth_it(self, failure: RouterError) -> bool:
        if isinstance(failure, WorkerLostError):
            # Some jobs end the engine that takes them: never let one have a third.
            self.losses -= 1
            return self.losses >= 0
        if isinstance(failure, WorkerError):
            # One worker's trouble, or the job's own: a second opinion, not a third.
            self.errors -= 1
            return self.errors >= 0
        return isinstance(failure, WorkerUnavailableError | WorkerBusyError)
