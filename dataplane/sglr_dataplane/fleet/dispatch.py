"""Dispatch: a job in, the stream of the worker that took it out."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from sglr_dataplane.errors import (
    NoAvailableWorkersError,
    RouterError,
    UnknownModelError,
    WorkerBusyError,
    WorkerLostError,
    WorkerUnavailableError,
)
from sglr_dataplane.fleet import selection
from sglr_dataplane.fleet.caller import NOBODY, Caller, routing_key
from sglr_dataplane.fleet.gate import VERDICT
from sglr_dataplane.fleet.lease import Lease
from sglr_dataplane.fleet.race import first_of
from sglr_dataplane.fleet.rates import UNLIMITED, Meter, Rates
from sglr_dataplane.fleet.retry import Retries
from sglr_dataplane.fleet.stream import Stream
from sglr_dataplane.fleet.tracing import carrying, fields_of
from sglr_dataplane.metrics import RouterMetrics
from sglr_proto.backend import RateScope

if TYPE_CHECKING:
    from sglr_dataplane.fleet.breaker import Outcome
    from sglr_dataplane.fleet.gate import Slot
    from sglr_dataplane.fleet.lease import OnOutcome
    from sglr_dataplane.fleet.pool import Pool
    from sglr_dataplane.fleet.race import Opening
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.fleet.tracing import Tracer
    from sglr_dataplane.fleet.worker import Worker
    from sglr_dataplane.job import Job
    from sglr_dataplane.metrics import Stages

logger = logging.getLogger(__name__)

_LOOK_AGAIN: Final = 0.05
"""Seconds after which a retry looks again for a worker whose probe is on the way."""

Owners = tuple[tuple[str, Rates], ...]


class Attempts(msgspec.Struct, eq=False):
    """One job on its way to a worker."""

    pool: Pool
    """The backend as it was when the job came."""
    job: Job
    key: str
    """What the policy goes by."""
    owners: Owners
    """Whose rates it counts on."""
    ends_at: float
    """When its time is over."""
    retries: Retries
    tried: set[str]
    patience: float | None = None
    """Until when it waits for workers that are full; None when it had not to."""
    verdict_by: float | None = None
    """Until when it waits for a worker that was not judged yet; None when it had not to."""


class Dispatcher:
    """Finds a worker for each job, and another one while nothing was sent to the client."""

    def __init__(
        self,
        registry: Registry,
        *,
        on_outcome: OnOutcome | None = None,
        meter: Meter | None = None,
        stages: Callable[[str], Stages] | None = None,
        tracer: Tracer | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Choose among the workers of *registry*.

        Args:
            registry: Who there is.
            on_outcome: Told the worker and the outcome of every attempt, once.
            meter: Counts what callers use; None: one of its own.
            stages: What observes how long a backend's jobs are in its queue and at its workers,
                whether or not they come further; None: nobody does.
            tracer: Makes a span of each attempt; None: nobody does.
            clock: Seconds that only go up; the one the prober reads.
            chance: A number in ``[0, 1)``, for the jitter of waits.
        """
        self._registry = registry
        self._on_outcome: OnOutcome = on_outcome or _unheard
        self._meter = meter or Meter(clock)
        self._tracer = tracer
        self._stages = stages or RouterMetrics().stages
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
        came_at = self._clock()
        attempts = self._attempts(backend_key, job, caller, came_at)
        pool, stages = attempts.pool, self._stages(backend_key)
        workers: Collection[Worker] = pool.workers.values()
        if job.adapter:
            workers = selection.having(job.adapter, workers)
        offer = selection.offer(workers, pool.rules, came_at)
        try:
            slot = pool.gate.admit(caller.name, offer.room if offer.candidates else None)
            if slot is None:
                slot = await pool.gate.enter(caller.name, caller.priority, attempts.ends_at)
        finally:
            entered_at = self._clock()
            stages.queue.observe(entered_at - came_at)
        try:
            if slot.at_work:  # let in at once: the offer is as good as it was
                worker = pool.policy.choose(attempts.job, offer.candidates, attempts.key)
            else:
                worker = await self._choose(attempts, slot)
            try:
                stream = await self._attempt(worker, attempts)
            except RouterError as failure:
                stream = await self._elsewhere(attempts, slot, worker, failure)
        except BaseException:
            pool.gate.leave(slot)
            raise
        finally:
            stages.worker.observe(self._clock() - entered_at)
        ended = partial(pool.gate.leave, slot)
        if attempts.owners:
            # Its counts, not the stream: it could not end by being dropped.
            ended = partial(self._used, attempts.owners, stream.completion, ended)
        stream.lease.afterwards = ended
        return stream

    def _attempts(self, backend_key: str, job: Job, caller: Caller, now: float) -> Attempts:
        """Return the attempts at *caller*'s *job*, which may come, and is counted at *now*."""
        pool = self._registry.by_key.get(backend_key)
        if pool is None:
            raise self._nobody(backend_key, job)
        if not caller.may_use(job.model) or not caller.may_enter(pool.backend):
            raise UnknownModelError(
                f"The model {job.model!r} does not exist here, or not for this key.", param="model"
            )
        owners = () if caller.rates == pool.settings.rates == UNLIMITED else _owners(pool, caller)
        for owner, rates in owners:
            self._meter.admit(owner, rates, len(job.input_ids))
        pool.budget.request(now)
        if self._tracer is None and (trace := fields_of(caller.headers)):
            job = carrying(job, trace)
        return Attempts(
            pool,
            job,
            routing_key(pool.backend.spec.routing, caller),
            owners,
            now + pool.settings.deadlines.total,
            Retries(pool.budget, pool.settings.retry.attempts),
            set(),
        )

    def _used(
        self, owners: Owners, completion: Mapping[int, int], ended: Callable[[], None]
    ) -> None:
        ended()
        for owner, rates in owners:
            self._meter.answered(owner, rates, sum(completion.values()))

    def _attempt(self, worker: Worker, attempts: Attempts) -> Awaitable[Stream]:
        """Return the stream of the job on *worker*, or on the one that is asked when it is late."""
        attempts.tried.add(worker.id)
        after = attempts.pool.settings.retry.hedge_after
        if after is None:
            return self._open(worker, attempts)
        return first_of(
            partial(self._open, worker, attempts),
            partial(self._spare, attempts),
            after,
            goes_on=attempts.retries.note,
        )

    def _open(self, worker: Worker, attempts: Attempts) -> Awaitable[Stream]:
        """Return the stream of the job on *worker*, opened; closed when it fails or is cancelled."""
        job, span = attempts.job, None
        if self._tracer is not None:
            span = self._tracer.attempt(worker, job)
            job = carrying(job, span.fields)
        pause = attempts.pool.settings.retry.longest_pause
        lease = Lease(worker, self._on_outcome, self._clock, longest_pause=pause, span=span)
        return Stream(lease, job, ends_at=attempts.ends_at, clock=self._clock).open()

    async def _elsewhere(
        self, attempts: Attempts, slot: Slot, worker: Worker, failure: RouterError
    ) -> Stream:
        """Return the stream of the first worker that answers after *worker*, which had *failure*."""
        pool = attempts.pool
        while True:
            pool.gate.paused(slot)
            logger.info(
                "attempt failed",
                extra={"job": attempts.job.id, "worker": worker.id, "error": failure.message},
            )
            if not attempts.retries.allow(failure, self._clock()):
                raise self._final(attempts, failure) from failure.__cause__
            wait = pool.settings.retry.backoff(len(attempts.tried), self._chance())
            await self._pause(wait, attempts.ends_at)
            worker = await self._choose(attempts, slot, failure)
            try:
                return await self._attempt(worker, attempts)
            except RouterError as again:
                failure = again

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

    async def _choose(
        self, attempts: Attempts, slot: Slot, failure: RouterError | None = None
    ) -> Worker:
        """Return the worker that *slot*'s job goes to next; waits while all that are left are full.

        Raises:
            RouterError: There is none; the last attempt's *failure* says why, if there was one.
        """
        pool = attempts.pool
        while True:
            offer = self._registry.offer(pool.key, attempts.tried, attempts.job.adapter)
            if offer.candidates:
                pool.gate.began(slot)
                return pool.policy.choose(attempts.job, offer.candidates, attempts.key)
            if not offer.is_full:
                if await self._may_come(attempts):
                    continue
                raise self._final(attempts, failure)
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


def _unheard(_worker: Worker, _outcome: Outcome) -> None:
    """Be the hook when nobody listens."""
