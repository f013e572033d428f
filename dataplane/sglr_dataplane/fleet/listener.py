"""The listener: hears what workers tell of their load and their caches, for policies that care.

Nothing here speaks for or against a worker: one that tells nothing is as good as any.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Final

from sglr_dataplane.engine import TellingEngine
from sglr_dataplane.errors import RouterError
from sglr_dataplane.fleet.policies.cache_aware import CacheAware
from sglr_dataplane.fleet.policies.feed import CacheFeed
from sglr_proto.backend import PolicyName
from sglr_proto.duration import seconds
from sglr_proto.spec_routing import CacheSource

if TYPE_CHECKING:
    from sglr_dataplane.engine.telling import CacheBatch
    from sglr_dataplane.fleet.policies.exact_index import ExactIndex
    from sglr_dataplane.fleet.pool import Pool
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.fleet.worker import Worker

logger = logging.getLogger(__name__)

Rest = Callable[[float], Awaitable[None]]
Visit = Callable[[], Awaitable[float]]
"""Asks a worker once and returns the seconds until the next time."""

_AGAIN: Final = 1.0
"""Seconds until a worker that is not ready, or whose news broke off, is asked again."""
_SELDOM: Final = 60.0
"""Seconds until one that does not tell is asked again: it may have been started anew, otherwise."""
_OVERFLOWED: Final = 600.0
"""Seconds until one that told more than there is room for is asked again."""
_ASKS: Final = 200
"""Questions for loads a second, of all workers together: some percent of a core. With more than a
hundred workers each is asked less often than its backend says."""
_JITTER: Final = 0.1
"""Share by which waits vary, so that workers are not asked in step."""
_PATIENCE: Final = 10
"""News that break off in a row before what was told counts no more."""
_BY_LOAD: Final = frozenset(
    {
        PolicyName.CACHE_AWARE,
        PolicyName.LEAST_REQUEST,
        # For requests without a key.
        PolicyName.CONSISTENT_HASH,
        PolicyName.SESSION_STICKY,
    }
)


class Listener:
    """Listens to the workers of a registry, one task for each worker and kind of news."""

    def __init__(
        self,
        registry: Registry,
        *,
        rest: Rest = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Listen to the workers of *registry*.

        Args:
            registry: Who there is.
            rest: Waits for so many seconds.
            chance: A number in ``[0, 1)``, for the jitter.
        """
        self._registry = registry
        self._rest = rest
        self._chance = chance

    async def run(self) -> None:
        """Listen until cancelled."""
        changed = asyncio.Event()
        self._registry.watch(changed.set)
        heard: dict[tuple[Worker, object], list[asyncio.Task[None]]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                changed.clear()
                wanted = {
                    (worker, pool.policy): pool
                    for pool in self._registry.pools()
                    for worker in pool.workers.values()
                }
                for gone in heard.keys() - wanted.keys():
                    for task in heard.pop(gone):
                        task.cancel()
                for worker, policy in wanted.keys() - heard.keys():
                    heard[worker, policy] = [
                        group.create_task(each)
                        for each in self._listening(worker, wanted[worker, policy])
                    ]
                await changed.wait()

    def _listening(self, worker: Worker, pool: Pool) -> list[Coroutine[None, None, None]]:
        """Return what is to be done for *worker*, by what the policy of *pool* goes by."""
        routing = pool.backend.spec.routing
        interval = seconds(routing.load_interval)
        tasks: list[Coroutine[None, None, None]] = []
        if interval and routing.policy in _BY_LOAD:
            tasks.append(self._keep(LoadPolling(worker, lambda: self._pace(interval))))
        if isinstance(pool.policy, CacheAware) and routing.cache_aware.source is CacheSource.AUTO:
            tasks.append(self._keep(CacheFollowing(worker, pool.policy.told)))
        return tasks

    def _pace(self, interval: float) -> float:
        """Return the seconds between two questions that are to be *interval*, if not too many."""
        return max(interval, len(self._registry.workers()) / _ASKS)

    async def _keep(self, news: LoadPolling | CacheFollowing) -> None:
        """Ask for *news* again and again; what was told counts no more when that ends."""
        try:
            while True:
                try:
                    delay = await news.visit()
                except Exception:
                    # A mistake here must not end the hearing of every other worker.
                    logger.exception("listening broke", extra={"worker": news.worker.id})
                    delay = _SELDOM
                await self._rest(delay * (1 + _JITTER * (2 * self._chance() - 1)))
        finally:
            news.forget()


class LoadPolling:
    """Asks one worker how busy it is."""

    def __init__(self, worker: Worker, interval: Callable[[], float]) -> None:
        """Ask *worker* every *interval* seconds."""
        self.worker = worker
        self._interval = interval

    async def visit(self) -> float:
        """Ask once; a worker that does not say is as busy as this process makes it."""
        engine = self.worker.engine
        jobs, delay = None, max(self._interval(), _AGAIN)
        if not isinstance(engine, TellingEngine):
            return _SELDOM
        if self.worker.is_ready:
            try:
                load = await engine.load()
            except RouterError as failure:
                logger.debug("load not told", extra={"error": failure.message})
            else:
                jobs = load.jobs if load is not None else None
                delay = self._interval() if load is not None else _SELDOM
        self.worker.tells_load(jobs)
        return delay

    def forget(self) -> None:
        """Let its last word count no more."""
        self.worker.tells_load(None)


class CacheFollowing:
    """Has one worker tell what is in its cache."""

    def __init__(self, worker: Worker, index: ExactIndex) -> None:
        """Write what *worker* tells into *index*."""
        self.worker = worker
        self._index = index
        self._feed = CacheFeed(index, worker.id)
        self._life = ""
        self._breaks = 0

    async def visit(self) -> float:
        """Hear the worker out: until it ends, something was lost, or there is no room."""
        engine = self.worker.engine
        if not isinstance(engine, TellingEngine):
            return _SELDOM
        if not self.worker.is_ready:
            return _AGAIN
        try:
            await self._look_who_is_there(engine)
            tells = await engine.follow_cache(self._feed.next, self._take)
        except RouterError as failure:
            logger.debug("news of a cache broke off", extra={"error": failure.message})
            self._breaks += 1
            if self._breaks >= _PATIENCE:
                self.forget()
            return _AGAIN
        if not tells:
            self.forget()
            return _SELDOM
        if self._index.has_overflowed(self.worker.id):
            logger.warning("cache has too many blocks", extra={"worker": self.worker.id})
            self.forget()
            return _OVERFLOWED
        return _AGAIN

    def forget(self) -> None:
        """Know nothing of its cache, and have all of it told the next time."""
        self._feed.restart()
        self._index.forget(self.worker.id)

    async def _look_who_is_there(self, engine: TellingEngine) -> None:
        """Have everything told anew by another process: its numbers are its own."""
        life = await engine.life()
        if not life or life != self._life:
            self._feed.restart()
        self._life = life

    def _take(self, batch: CacheBatch) -> bool:
        self._breaks = 0
        if batch.load is not None:
            self.worker.tells_load(batch.load.jobs)
        return self._feed.take(batch) and not self._index.has_overflowed(self.worker.id)
