"""Dispatch: a job in, the stream of the worker that took it out."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from sglr_dataplane.errors import (
    NoAvailableWorkersError,
    RouterError,
    UnknownModelError,
    WorkerBusyError,
    WorkerLostError,
    WorkerUnavailableError,
)
from sglr_dataplane.fleet.caller import NOBODY, Caller, routing_key
from sglr_dataplane.fleet.gate import VERDICT
from sglr_dataplane.fleet.lease import Lease
from sglr_dataplane.fleet.race import first_of
from sglr_dataplane.fleet.rates import UNLIMITED, Meter, Rates
from sglr_dataplane.fleet.retry import Retries
from sglr_dataplane.fleet.stream import Stream
from sglr_dataplane.fleet.tracing import carrying, fields_of
from sglr_proto.backend import RateScope

if TYPE_CHECKING:
    from sglr_dataplane.fleet.breaker import Outcome
    from sglr_dataplane.fleet.gate import Slot
    from sglr_dataplane.fleet.lease import OnOutcome
    from sglr_dataplane.fleet.pool import Pool
    from sglr_dataplane.fleet.race import Opening
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.fleet.tracing import AttemptSpan, Tracer
    from sglr_dataplane.fleet.worker import Worker
    from sglr_dataplane.job import Job

logger = logging.getLogger(__name__)

_LOOK_AGAIN: Final = 0.05
"""Seconds after which a retry looks again for a worker whose probe is on the way."""

Owners = tuple[tuple[str, Rates], ...]
Stage = Literal["queue", "worker"]
OnStage = Callable[[str, Stage, float], None]


class Attempts:
    """One job on its way to a worker."""

    def __init__(self, pool: Pool, job: Job, key: str, ends_at: float) -> None:
        """Have tried nobody, and be allowed what the backend of *pool* allows.

        Args:
            pool: The backend as it was when the job came.
            job: What is to be done.
            key: What the policy goes by.
            ends_at: When the job's time is over.
        """
        self.pool = pool
        self.job = job
        self.key = key
        self.ends_at = ends_at
        self.tried: set[str] = set()
        self.patience: float | None = None
        """Until when it waits for workers that are full; None when it had not to."""
        self.verdict_by: float | None = None
        """Until when it waits for a worker that was not judged yet; None when it had not to."""
        self.retries = Retries(pool.settings.retry.attempts, pool.budget)


class Dispatcher:
    """Finds a worker for each job, and another one while nothing was sent to the client."""

    def __init__(
        self,
        registry: Registry,
        *,
        on_outcome: OnOutcome | None = None,
        meter: Meter | None = None,
        on_stage: OnStage | None = None,
        tracer: Tracer | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Choose among the workers of *registry*.

        Args:
            registry: Who there is.
            on_outcome: Told the worker and the outcome of every attempt, once.
            meter: Counts what callers use; None: one of its own.
            on_stage: Told the backend's key, ``queue`` or ``worker``, and the seconds a job was
                there, whether or not it came further.
            tracer: Makes a span of each attempt; None: nobody does.
            clock: Seconds that only go up; the one the prober reads.
            chance: A number in ``[0, 1)``, for the jitter of waits.
        """
        self._registry = registry
        self._on_outcome: OnOutcome = on_outcome or _unheard
        self._meter = meter or Meter(clock)
        self._tracer = tracer
        self._on_stage: OnStage = on_stage or _unobserved
        self._clock = clock
        self._chance = chance

    async def dispatch(self, backend_key: str, job: Job, caller: Caller = NOBODY) -> Stream:
        """Return the stream of *caller*'s *job*, whose first chunk has come; to be closed.

        Raises:
            UnknownModelError: The caller may not use the model.
            TooManyRequestsError: There is no room, and none came in time.
            NoAvailableWorkersError: Nobody can take it, or everybody who could was tried.
            WorkerError: A worker answered with an error.
            InvalidRequestError: A worker refused the job.
            DeadlineExceededError: Its time is over.
        """
        pool = self._registry.pool(backend_key)
        if pool is None:
            raise self._nobody(backend_key, job)
        if not caller.may_use(job.model) or not caller.may_enter(pool.backend):
            raise UnknownModelError(
                f"The model {job.model!r} does not exist here, or not for this key.", param="model"
            )
        owners = _owners(pool, caller)
        for owner, rates in owners:
            self._meter.admit(owner, rates, len(job.input_ids))
        came_at = self._clock()
        pool.budget.request(came_at)
        if self._tracer is None and (trace := fields_of(caller.headers)):
            job = carrying(job, trace)
        ends_at = came_at + pool.settings.deadlines.total
        try:
            slot = await pool.gate.enter(caller.name, caller.priority, ends_at)
        finally:
            entered_at = self._clock()
            self._on_stage(backend_key, "queue", entered_at - came_at)
        try:
            attempts = Attempts(pool, job, routing_key(pool.backend.spec.routing, caller), ends_at)
            stream = await self._try_workers(attempts, slot)
        except BaseException:
            slot.release()
            raise
        finally:
            self._on_stage(backend_key, "worker", self._clock() - entered_at)
        # Its counts, not the stream: it could not end by being dropped.
        stream.afterwards(partial(self._ended, slot, owners, stream.completion))
        return stream

    def _ended(self, slot: Slot, owners: Owners, completion: Mapping[int, int]) -> None:
        slot.release()
        for owner, rates in owners:
            self._meter.answered(owner, rates, sum(completion.values()))

    async def _try_workers(self, attempts: Attempts, slot: Slot) -> Stream:
        """Return the stream of the first worker that answers."""
        pool, job = attempts.pool, attempts.job
        last: RouterError | None = None
        while (worker := await self._choose(attempts)) is not None:
            attempts.tried.add(worker.id)
            pool.gate.began(slot)
            try:
                return await self._attempt(worker, attempts)
            except RouterError as failure:
                pool.gate.paused(slot)
                logger.info(
                    "attempt failed",
                    extra={"job": job.id, "worker": worker.id, "error": failure.message},
                )
                if not attempts.retries.allow(failure, self._clock()):
                    raise self._final(attempts, failure) from failure.__cause__
                last = failure
            wait = pool.settings.retry.backoff(len(attempts.tried), self._chance())
            await self._pause(wait, attempts.ends_at)
        raise self._final(attempts, last)

    def _attempt(self, worker: Worker, attempts: Attempts) -> Awaitable[Stream]:
        """Return the stream of the job on *worker*, or on the one that is asked when it is late."""
        after = attempts.pool.settings.retry.hedge_after
        if after is None:
            return self._open(worker, attempts)
        return first_of(
            partial(self._open, worker, attempts),
            partial(self._spare, attempts),
            after,
            goes_on=attempts.retries.note,
        )

    async def _open(self, worker: Worker, attempts: Attempts) -> Stream:
        """Return the stream of the job on *worker*, opened; closed when it fails or is cancelled."""
        pause = attempts.pool.settings.retry.longest_pause
        job, on_outcome, span = attempts.job, self._on_outcome, None
        if self._tracer is not None:
            span = self._tracer.attempt(worker, job)
            job, on_outcome = carrying(job, span.fields), partial(_ended, span, on_outcome)
        lease = Lease(worker, on_outcome, self._clock, longest_pause=pause)
        stream = Stream(lease, job, ends_at=attempts.ends_at, clock=self._clock)
        try:
            await stream.open()
        except BaseException:
            await stream.aclose()
            raise
        if span is not None:
            span.answered()
        return stream

    def _spare(self, attempts: Attempts) -> Opening | None:
        """Return an attempt on another worker beside the running one; None when there is no room.

        Nobody who waits is overtaken, and the budget of retries is not exceeded: a fleet that is
        late because it is full must not get every request twice.
        """
        pool = attempts.pool
        offer = self._registry.offer(pool.key, attempts.tried, attempts.job.adapter)
        if not offer.candidates or pool.gate.waiting or not attempts.retries.hedge(self._clock()):
            return None
        worker = pool.policy.choose(attempts.job, offer.candidates, attempts.key)
        attempts.tried.add(worker.id)
        return partial(self._open, worker, attempts)

    async def _pause(self, seconds: float, ends_at: float) -> None:
        """Wait for *seconds*, but not past *ends_at*: the next attempt says that time is over."""
        await asyncio.sleep(max(min(seconds, ends_at - self._clock()), 0.0))

    async def _choose(self, attempts: Attempts) -> Worker | None:
        """Return the worker of the next attempt; waits while all that are left are full."""
        pool = attempts.pool
        while True:
            offer = self._registry.offer(pool.key, attempts.tried, attempts.job.adapter)
            if offer.candidates:
                return pool.policy.choose(attempts.job, offer.candidates, attempts.key)
            if not offer.is_full:
                if await self._may_come(attempts):
                    continue
                return None
            # The room it was let in for is gone: its worker died between.
            if attempts.patience is None:
                attempts.patience = pool.gate.patience(attempts.ends_at)
            await pool.gate.park(attempts.patience)

    async def _may_come(self, attempts: Attempts) -> bool:
        """Wait a moment and return True while a worker not tried yet may be ready in the next."""
        if attempts.verdict_by is None:
            attempts.verdict_by = min(self._clock() + VERDICT, attempts.ends_at)
        is_coming = self._registry.is_coming(attempts.pool.key, attempts.tried)
        if not is_coming or self._clock() >= attempts.verdict_by:
            return False
        await self._pause(_LOOK_AGAIN, attempts.verdict_by)
        return True

    def _nobody(self, backend_key: str, job: Job) -> RouterError:
        """Return what to tell a client for whom there is no worker."""
        known = self._known(backend_key)
        return NoAvailableWorkersError(f"No worker of model {job.model!r} is available: {known}.")

    def _final(self, attempts: Attempts, last: RouterError | None) -> RouterError:
        """Return what ends a job after its *last* failure; None: there was nobody to try."""
        if last is None:
            failure = self._nobody(attempts.pool.key, attempts.job)
        else:
            failure = self._last_word(attempts, last)
        if isinstance(failure, NoAvailableWorkersError):
            failure.may_go_elsewhere = not attempts.retries.has_lost
        return failure

    def _last_word(self, attempts: Attempts, last: RouterError) -> RouterError:
        """Return what to tell a client whose job is not tried again after its *last* failure."""
        model, tried = attempts.job.model, len(attempts.tried)
        known = self._known(attempts.pool.key)
        if isinstance(last, WorkerBusyError):
            longest = attempts.pool.settings.retry.longest_pause
            return WorkerBusyError(
                f"Workers of model {model!r} are busy: {known}, {tried} tried.",
                retry_after=max(1, math.ceil(min(last.pause or 0.0, longest))),
            )
        if isinstance(last, WorkerUnavailableError):
            what = "stayed up" if isinstance(last, WorkerLostError) else "could be reached"
            return NoAvailableWorkersError(
                f"No worker of model {model!r} {what}: {known}, {tried} tried."
            )
        return last

    def _known(self, backend_key: str) -> str:
        """Return how many workers there are, for people."""
        counts = self._registry.count(backend_key)
        known = f"{counts.known} known, {counts.ready} ready"
        if counts.ejected:
            known += f", {counts.ejected} left alone after failures"
        return known


def _owners(pool: Pool, caller: Caller) -> Owners:
    """Return whose rates a request of *caller* counts on, and what those are."""
    owners = [(caller.name, caller.rates)] if caller.rates != UNLIMITED else []
    rates = pool.settings.rates
    if rates != UNLIMITED:
        each = pool.backend.spec.rate_limit.per is RateScope.API_KEY
        # Names of keys hold no blank: these cannot be taken for one.
        owner = f"{pool.key} {caller.name}" if each else f"{pool.key} *"
        owners.append((owner, rates))
    return tuple(owners)


def _ended(span: AttemptSpan, on_outcome: OnOutcome, worker: Worker, outcome: Outcome) -> None:
    """End *span*, and tell the other hook."""
    span.end(outcome)
    on_outcome(worker, outcome)


def _unobserved(_backend_key: str, _stage: Stage, _seconds: float) -> None:
    """Be the hook when nobody observes."""


def _unheard(_worker: Worker, _outcome: Outcome) -> None:
    """Be the hook when nobody listens."""
