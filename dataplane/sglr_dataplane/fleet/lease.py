"""A job's hold on a worker, and how it ended."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from sglr_dataplane.errors import (
    InvalidRequestError,
    RequestTooLargeError,
    RouterError,
    WorkerBusyError,
    WorkerUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglr_dataplane.fleet.worker import Worker

    OnOutcome = Callable[[Worker, "Outcome"], None]


class Outcome(StrEnum):
    """What a worker's breaker and the metrics learn of one attempt."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """The worker's doing: an error, a connection that died, a deadline that passed."""
    ABANDONED = "abandoned"
    """Says nothing about the worker: the client left, the job was invalid, the queue was full."""


def outcome_of(failure: RouterError) -> Outcome:
    """Return what *failure* says about the worker that it came from."""
    innocent = (InvalidRequestError, RequestTooLargeError, WorkerBusyError)
    return Outcome.ABANDONED if isinstance(failure, innocent) else Outcome.FAILED


class Lease:
    """One job on one worker, from its making to its one end."""

    def __init__(self, worker: Worker, on_outcome: OnOutcome) -> None:
        """Count a job on *worker*; *on_outcome* is told how it ends."""
        self.worker = worker
        self._on_outcome = on_outcome
        self.outcome: Outcome | None = None
        """How it ended; None while it lasts."""
        worker.begin()

    def __repr__(self) -> str:
        return f"<Lease on {self.worker.id} {self.outcome or 'held'}>"

    def end(self, outcome: Outcome) -> None:
        """Give the worker back; only the first call counts."""
        if self.outcome is not None:
            return
        self.outcome = outcome
        self.worker.end()
        self._on_outcome(self.worker, outcome)

    def fail(self, failure: RouterError) -> None:
        """Give the worker back after *failure*; have it checked if it could not be reached."""
        if isinstance(failure, WorkerUnavailableError):
            self.worker.suspected()
        self.end(outcome_of(failure))
