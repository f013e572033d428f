"""The prober: asks every worker for its health, and what it serves before its first job.

Slow starts are not failures: a worker that was never healthy stays pending however long it takes.
One that was goes down after several failures in a row, unless it answered a job meanwhile: a busy
worker may be late for a probe. Any failure has what the worker says of itself asked for again
before it is trusted again, because another process may have come up in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from sglr_dataplane.engine import GeneratingEngine
from sglr_dataplane.errors import RouterError, WorkerUnavailableError
from sglr_dataplane.fleet.schedule import Schedule
from sglr_dataplane.fleet.worker import WorkerState

if TYPE_CHECKING:
    from sglr_dataplane.engine import Engine, EngineFacts
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.fleet.worker import Worker

    Rest = Callable[[asyncio.Event, float], Awaitable[None]]
    Inspect = Callable[[Worker, bool], Awaitable[str | None]]
    """Looks at a healthy worker more closely: returns why it is not to be used, None if it is.
    Raises RouterError when that cannot be told now. True: another process may have come up in the
    place of the one that was looked at before."""

logger = logging.getLogger(__name__)


class Prober:
    """Tends the workers of a registry, one task each, from their coming to their closing."""

    def __init__(
        self,
        registry: Registry,
        *,
        schedule_of: Callable[[Worker], Schedule] | None = None,
        clock: Callable[[], float] = time.monotonic,
        vary: Callable[[], float] = random.random,
        rest: Rest | None = None,
        inspect: Inspect | None = None,
    ) -> None:
        """Tend the workers of *registry*.

        Args:
            registry: Who there is.
            schedule_of: When a worker is asked and believed; None: as its backend says.
            clock: Seconds that only go up; the one the dispatcher reads.
            vary: A number in ``[0, 1)``, for the jitter.
            rest: Waits until the event is set or the seconds are over.
            inspect: Has the last word on whether a healthy worker gets jobs; None: all do.
        """
        self._registry = registry
        self._schedule_of = schedule_of or registry.schedule
        self._clock = clock
        self._vary = vary
        self._rest = rest or resting(Schedule().soonest)
        self._inspect = inspect

    async def run(self) -> None:
        """Tend workers until cancelled."""
        changed = asyncio.Event()
        self._registry.watch(changed.set)
        tended: set[Worker] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                changed.clear()
                there = set(self._registry.tended())
                for worker in there - tended:
                    group.create_task(self._tend(worker))
                tended = there
                await changed.wait()

    async def _tend(self, worker: Worker) -> None:
        wake = asyncio.Event()
        worker.wake = wake.set
        checkup = Checkup(worker, self._schedule_of(worker), self._clock, self._inspect)
        while not worker.is_done:
            wake.clear()
            checkup.schedule = self._schedule_of(worker)
            delay = await self._look(checkup)
            await self._close(worker, worker.take_idle_engines())
            left = worker.overdue_in(self._clock())
            if left == 0 and worker.in_flight:
                await self._cut(worker)
            if not worker.is_done:
                await self._rest(wake, min(delay, left) if left else delay)
        await self._close(worker, worker.engines())
        self._registry.forget(worker)
        logger.info("worker closed", extra={"worker": worker.id, "backend": worker.backend_key})

    async def _cut(self, worker: Worker) -> None:
        """End the jobs of a worker that leaves: their time is over."""
        extra = {"worker": worker.id, "jobs": worker.in_flight}
        logger.warning("jobs of a leaving worker ended", extra=extra)
        worker.was_cut()
        self._registry.replace(worker)
        in_use = () if worker.state is WorkerState.LEAVING else (worker.engine,)
        await self._close(worker, [each for each in worker.engines() if each not in in_use])

    async def _close(self, worker: Worker, engines: Iterable[Engine]) -> None:
        for engine in engines:
            try:
                async with asyncio.timeout(self._schedule_of(worker).closing):
                    await engine.aclose()
            except Exception:
                # Its streams have ended; a connection that cannot be closed must not end the
                # probing.
                logger.exception("closing broke", extra={"worker": worker.id})

    async def _look(self, checkup: Checkup) -> float:
        """Ask the worker once and return the seconds until the next time."""
        worker = checkup.worker
        if worker.state is WorkerState.LEAVING:
            return checkup.schedule.interval
        before = (worker.state, worker.problem)
        try:
            await checkup.run()
        except Exception:
            # A mistake here must not end the probing of every other worker.
            logger.exception("probe broke", extra={"worker": worker.id})
        if (worker.state, worker.problem) != before:
            _report(worker)
        return checkup.delay * (1 + checkup.schedule.jitter * (2 * self._vary() - 1))


def resting(soonest: float) -> Rest:
    """Return a rest that a wake cuts short, but not below *soonest* seconds."""

    async def rest(wake: asyncio.Event, seconds: float) -> None:
        floor = min(seconds, soonest)
        await asyncio.sleep(floor)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds - floor):
                await wake.wait()

    return rest


class Checkup:
    """What the prober remembers of one worker between two probes."""

    def __init__(
        self,
        worker: Worker,
        schedule: Schedule,
        clock: Callable[[], float],
        inspect: Inspect | None = None,
    ) -> None:
        """Know nothing of *worker* yet."""
        self.worker = worker
        self.schedule = schedule
        self._clock = clock
        self._inspect = inspect or _trusting
        self._failures = 0
        self._successes = 0
        self._attempts = 0
        self._losses: int = 0
        """Of its connection, as of the newest probe's start."""
        self._facts_at: float | None = None
        """When its facts were asked for; None when they are no longer to be trusted."""
        self._generated_at: float | None = None
        """When it last generated a token for a probe; None before."""
        self._is_inspected = False
        """Whether this very process was looked at more closely, as far as can be told."""

    def __repr__(self) -> str:
        return f"<Checkup of {self.worker!r} {self._successes} good, {self._failures} failed>"

    @property
    def delay(self) -> float:
        """Seconds until the next probe; who starts, or was lost, is asked soon, then less often."""
        if self.worker.state is not WorkerState.PENDING and not self.worker.is_lost:
            return self.schedule.interval
        backoff = self.schedule.soonest * 2.0 ** min(self._attempts, 30)
        return min(backoff, self.schedule.starting, self.schedule.interval)

    async def run(self) -> None:
        """Ask once for health, then for facts if they are due, and change the worker's state."""
        losses, state = self.worker.losses, self.worker.endpoint.state
        try:
            await self._run(losses)
        finally:
            if (self.worker.losses, self.worker.endpoint.state) == (losses, state):
                self.worker.was_judged()

    async def _run(self, losses: int) -> None:
        self._attempts += 1
        if losses != self._losses:
            self._losses, self._attempts = losses, 1
        if self.worker.suspect:
            # A probe or a connection failed: another process may have come up in its place.
            self._facts_at = self._generated_at = None
            self._is_inspected = False
        asked_at = self._clock()
        try:
            serving = await self.worker.engine.is_serving()
        except RouterError as failure:
            if not self._answered_since(asked_at - self.schedule.interval):
                gone = isinstance(failure, WorkerUnavailableError)
                self._failed(failure.message, unreachable=gone)
            return
        if not serving:
            self._declined("The worker reports that it is not serving.")
            return
        if await self._generates():
            await self._passed()

    async def _generates(self) -> bool:
        """Return whether the worker generates, as far as it is to be asked; count it if not."""
        every, engine, now = self.schedule.generation, self.worker.engine, self._clock()
        if every is None or not isinstance(engine, GeneratingEngine):
            return True
        signs = (self._generated_at, self.worker.answered_at)
        if any(at is not None and at > now - every for at in signs):
            return True
        try:
            problem = None if await engine.generates() else "The worker generates no token."
        except RouterError as failure:
            problem = f"The worker generates no token: {failure.message}"
        if problem is None or self._answered_since(now):
            self._generated_at = self._clock()
            return True
        self._failed(problem)
        return False

    def _answered_since(self, when: float) -> bool:
        answered_at = self.worker.answered_at
        return answered_at is not None and answered_at >= when and not self.worker.suspect

    def _failed(self, problem: str, *, unreachable: bool = False) -> None:
        self._successes = 0
        self._failures += 1
        self.worker.doubted(problem, unreachable=unreachable)
        if self._failures >= self.schedule.failures:
            self.worker.became_unhealthy(problem)

    def _declined(self, problem: str) -> None:
        """Believe a worker that says it does not serve: at once, unlike a probe that is lost."""
        self._failed(problem)
        if self.worker.state is not WorkerState.PENDING:
            self.worker.refused(problem)

    async def _passed(self) -> None:
        facts = await self._current_facts()
        if facts is None:
            self._successes = 0
            return
        names = self.worker.model_names
        if not {facts.served_model_name, facts.model_path} & names:
            self.worker.refused(
                f"The worker serves {facts.served_model_name!r}, but its backend is for "
                f"{' or '.join(map(repr, sorted(names)))}."
            )
            return
        if not await self._passes_inspection():
            self._successes = 0
            return
        if self.worker.losses != self._losses:
            return  # lost meanwhile: what it said says nothing about who is there now
        self._failures = 0
        self._successes += 1
        down = self.worker.state is WorkerState.UNHEALTHY
        if not down or self._successes >= self.schedule.successes:
            self.worker.became_ready(facts)

    async def _passes_inspection(self) -> bool:
        """Have the worker looked at more closely, and change its state if it is not to be used."""
        try:
            problem = await self._inspect(self.worker, not self._is_inspected)
        except RouterError as failure:
            self.worker.doubted(failure.message)
            return False
        self._is_inspected = True
        if problem is not None:
            self.worker.refused(problem)
        return problem is None

    async def _current_facts(self) -> EngineFacts | None:
        """Return the worker's facts, asked for anew when they are due; None when it cannot tell."""
        now = self._clock()
        known = self.worker.facts
        asked_at = self._facts_at
        if known is not None and asked_at is not None and now - asked_at < self.schedule.facts:
            return known
        try:
            facts = await self.worker.engine.facts()
        except RouterError as failure:
            if asked_at is not None:
                # Healthy, and nothing speaks for a restart: what it said before still holds.
                return known
            self.worker.doubted(f"It does not say what it serves: {failure.message}")
            return None
        self._facts_at = now
        return facts


async def _trusting(_worker: Worker, _again: bool) -> str | None:  # noqa: FBT001  # as declared
    """Find nothing against any worker."""
    return None


def _report(worker: Worker) -> None:
    extra = {"worker": worker.id, "backend": worker.backend_key, "state": worker.state}
    if worker.problem is None:
        logger.info("worker ready", extra=extra)
    else:
        message = "worker doubted" if worker.is_ready else "worker not usable"
        logger.warning(message, extra={**extra, "problem": worker.problem})
