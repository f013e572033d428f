"""A job's hold on a worker, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglr_dataplane.errors import (
    InvalidRequestError,
    NotServedError,
    RequestTooLargeError,
    RouterError,
    WorkerBusyError,
    WorkerUnavailableError,
)
from sglr_dataplane.fleet.breaker import CLOSED, SUCCEEDED, Outcome
from sglr_dataplane.fleet.worker import BUSY

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglr_dataplane.fleet.tracing import AttemptSpan
    from sglr_dataplane.fleet.worker import Worker

    OnOutcome = Callable[[Worker, Outcome], None]


def outcome_of(failure: RouterError) -> Outcome:
    """Return what *failure* says about the worker that it came from."""
    innocent = (InvalidRequestError, RequestTooLargeError, NotServedError, WorkerBusyError)
    return Outcome.ABANDONED if isinstance(failure, innocent) else Outcome.FAILED


class Lease:
    """One job on one worker, from its making to its one end."""

    def __init__(
        self,
        worker: Worker,
        on_outcome: OnOutcome,
        clock: Callable[[], float],
        *,
        longest_pause: float = BUSY,
        span: AttemptSpan | None = None,
    ) -> None:
        """Count a job on *worker*.

        Args:
            worker: Who is to do it.
            on_outcome: Told how it ends.
            clock: Seconds that only go up; the breaker's.
            longest_pause: Seconds for which a full worker may ask to be avoided.
            span: The attempt in somebody's trace; None: in nobody's.
        """
        self._longest_pause = longest_pause
        self._span = span
        self.worker = worker
        self._on_outcome = on_outcome
        self._clock = clock
        self.outcome: Outcome | None = None
        """How it ended; None while it lasts."""
        self.afterwards: Callable[[], None] = _nothing
        """Called when it ends."""
        self._began = clock()
        self._permit = worker.breaker.enter(self._began)
        self.engine = worker.begin()
        """The worker's client as it was when the job began."""

    def __repr__(self) -> str:
        return f"<Lease on {self.worker.id} {self.outcome or 'held'}>"

    def answered(self) -> None:
        """Note that the worker has begun to answer: it is alive, whatever was thought of it."""
        now = self._clock()
        worker = self.worker
        if worker.breaker.state is not CLOSED:
            worker.breaker.answered(self._permit, now)
        worker.answered(now, now - self._began)
        if self._span is not None:
            self._span.answered()

    def end(self, outcome: Outcome) -> None:
        """Give the worker back; only the first call counts."""
        if self.outcome is not None:
            return
        self.outcome = outcome
        now, worker = self._clock(), self.worker
        worker.breaker.leave(self._permit, outcome, now)
        if outcome is SUCCEEDED:
            worker.answered_at = now
        worker.end(self.engine)
        if self._span is not None:
            self._span.end(outcome)
        self._on_outcome(worker, outcome)
        self.afterwards()

    def fail(self, failure: RouterError) -> None:
        """Give the worker back after *failure*; avoid it if it could not be reached or is full."""
        if isinstance(failure, WorkerBusyError):
            asked = BUSY if failure.pause is None else min(failure.pause, self._longest_pause)
            self.worker.was_busy(self._clock(), asked)
        elif isinstance(failure, WorkerUnavailableError):
            self.worker.suspected()
        self.end(outcome_of(failure))


def _nothing() -> None:
    """Be what is done when there is nothing to do."""
