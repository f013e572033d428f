"""Dispatch: a job in, the stream of the worker that took it out."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from sglr_dataplane.errors import (
    NoAvailableWorkersError,
    RouterError,
    WorkerBusyError,
    WorkerError,
    WorkerLostError,
    WorkerUnavailableError,
)
from sglr_dataplane.fleet.lease import Lease
from sglr_dataplane.fleet.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglr_dataplane.fleet.breaker import Outcome
    from sglr_dataplane.fleet.lease import OnOutcome
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.fleet.worker import Worker
    from sglr_dataplane.job import Job

logger = logging.getLogger(__name__)

TOTAL: Final = 1800.0
"""Seconds for a job, all attempts together: 32 000 tokens of reasoning at 20 tokens a second."""


class Retries:
    """What one job may still be tried again after; another worker each time."""

    def __init__(self) -> None:
        self._losses = 1
        self._errors = 1

    def __repr__(self) -> str:
        return f"<Retries losses={self._losses} errors={self._errors}>"

    def allow(self, failure: RouterError) -> bool:
        """Return whether the job may go to another worker after *failure*, and count it."""
        if isinstance(failure, WorkerLostError):
            # Some jobs end the engine that takes them: never let one have a third.
            self._losses -= 1
            return self._losses >= 0
        if isinstance(failure, WorkerError):
            # One worker's trouble, or the job's own: a second opinion, not a third.
            self._errors -= 1
            return self._errors >= 0
        return isinstance(failure, WorkerUnavailableError | WorkerBusyError)


class Dispatcher:
    """Finds a worker for each job, and another one while nothing was sent to the client."""

    def __init__(
        self,
        registry: Registry,
        *,
        on_outcome: OnOutcome | None = None,
        total: float = TOTAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Choose among the workers of *registry*.

        Args:
            registry: Who there is.
            on_outcome: Told the worker and the outcome of every attempt, once.
            total: Seconds a job may take, from dispatch to its last chunk.
            clock: Seconds that only go up; the one the prober reads.
        """
        self._registry = registry
        self._on_outcome: OnOutcome = on_outcome or _unheard
        self._total = total
        self._clock = clock

    async def dispatch(self, backend_key: str, job: Job) -> Stream:
        """Return the stream of *job*, whose first chunk has come; the caller closes it.

        Raises:
            NoAvailableWorkersError: Nobody can take it, or everybody who could was tried.
            WorkerError: A worker answered with an error.
            InvalidRequestError: A worker refused the job.
            DeadlineExceededError: Its time is over.
        """
        ends_at = self._clock() + self._total
        retries = Retries()
        tried: set[str] = set()
        last: RouterError | None = None
        while (worker := self._choose(backend_key, job, tried)) is not None:
            tried.add(worker.id)
            stream = Stream(
                Lease(worker, self._on_outcome, self._clock),
                job,
                ends_at=ends_at,
                clock=self._clock,
            )
            try:
                await stream.open()
            except BaseException as failure:
                await stream.aclose()
                if not isinstance(failure, RouterError) or not retries.allow(failure):
                    raise
                last = failure
                logger.info(
                    "attempt failed",
                    extra={"job": job.id, "worker": worker.id, "error": failure.message},
                )
            else:
                return stream
        raise self._nobody(backend_key, job, last)

    def _choose(self, backend_key: str, job: Job, tried: set[str]) -> Worker | None:
        candidates = self._registry.candidates(backend_key, without=tried)
        if not candidates:
            return None
        return self._registry.policy(backend_key).choose(job, candidates)

    def _nobody(self, backend_key: str, job: Job, last: RouterError | None) -> RouterError:
        """Return what to tell a client for whom no worker is left; *last* is the last failure."""
        if isinstance(last, WorkerError):
            return last
        counts = self._registry.count(backend_key)
        known = f"{counts.known} known, {counts.ready} ready"
        if counts.ejected:
            known += f", {counts.ejected} left alone after failures"
        if isinstance(last, WorkerBusyError):
            return WorkerBusyError(f"Every worker of model {job.model!r} is busy: {known}.")
        if last is None:
            return NoAvailableWorkersError(
                f"No worker of model {job.model!r} is available: {known}."
            )
        return NoAvailableWorkersError(
            f"No worker of model {job.model!r} could be reached: {known}, each was tried."
        )


def _unheard(_worker: Worker, _outcome: Outcome) -> None:
    """Be the hook when nobody listens."""
