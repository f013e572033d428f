"""The registry: the workers of the newest snapshot, and those that are still leaving."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from sglr_dataplane.fleet import selection
from sglr_dataplane.fleet.abilities import Abilities, abilities_of
from sglr_dataplane.fleet.gate import Gate
from sglr_dataplane.fleet.policies.named import new_policy
from sglr_dataplane.fleet.pool import Pool
from sglr_dataplane.fleet.retry import RetryBudget
from sglr_dataplane.fleet.routes import NO_ROUTES, Routes
from sglr_dataplane.fleet.schedule import Schedule
from sglr_dataplane.fleet.selection import Rules
from sglr_dataplane.fleet.settings import Settings, settings_of
from sglr_dataplane.fleet.worker import Worker
from sglr_proto.backend import Protocol
from sglr_proto.snapshot import Endpoint
from sglr_proto.spec_routing import ZonePreference

if TYPE_CHECKING:
    from sglr_dataplane.engine import Engine, EngineFacts
    from sglr_dataplane.fleet.policies import Policy
    from sglr_dataplane.fleet.selection import Offer
    from sglr_proto.backend import SGLangBackend
    from sglr_proto.snapshot import BackendSnapshot, Epoch, Snapshot

logger = logging.getLogger(__name__)

_CLOSING: Final = 5.0
"""Seconds for closing every connection at the end; closing waits for nothing but the kernel."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many workers a backend has, for messages."""

    known: int
    ready: int
    ejected: int = 0
    """Those whose breaker is open."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a snapshot changed."""

    added: tuple[Worker, ...] = ()
    kept: tuple[Worker, ...] = ()
    leaving: tuple[Worker, ...] = ()


class Registry:
    """Who there is. Changed by :meth:`apply` alone, in one step; everything else reads."""

    def __init__(
        self,
        engine_for: Callable[[Endpoint, SGLangBackend], Engine],
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        processes: int = 1,
        zone: str = "",
    ) -> None:
        """Start empty.

        Args:
            engine_for: Makes the client of a worker of a backend.
            clock: Seconds that only go up; the one the dispatcher reads.
            chance: A number in ``[0, 1)``, for policies.
            processes: How many share what a worker runs at once, this one included.
            zone: Where this router is; ``""`` when nobody knows.
        """
        self._engine_for = engine_for
        self._chance = chance
        self._clock = clock
        self._processes = processes
        self._zone = zone
        self.by_key: Mapping[str, Pool] = {}
        """The newest version of every backend, by its key; another mapping with each snapshot."""
        self._abilities: dict[str, Abilities] = {}
        """By backend, until one of its workers says something else, or another snapshot comes."""
        self.routes = NO_ROUTES
        """Which backends serve which names."""
        self.has_http = False
        """Whether the workers of any backend speak HTTP."""
        self.is_outdated: Callable[[], bool] = _never
        """Whether there may be workers that nobody could tell of: the operator is not heard."""
        self._leaving: set[Worker] = set()
        self._order: tuple[Epoch, int] | None = None
        self._watchers: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        workers = [worker for each in self.by_key.values() for worker in each.workers.values()]
        return f"<Registry {self._order} {workers!r} leaving={sorted(map(repr, self._leaving))}>"

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call *on_change* after each snapshot, for ever."""
        self._watchers.append(on_change)

    def apply(self, snapshot: Snapshot) -> Changes:
        """Make *snapshot* the truth and return what it changed; one that is older changes nothing.

        Workers stay when their endpoint's id and address do. Those that leave get no new jobs and
        are closed, by the prober, when their last stream ends.
        """
        if self._order is not None and snapshot.order < self._order:
            logger.warning("older snapshot ignored", extra={"order": snapshot.order})
            return Changes(kept=self.workers())
        before = set(self.workers())
        self.by_key = {each.backend.key: self._merged(each) for each in snapshot.backends}
        self._abilities.clear()
        self.routes = Routes(pool.backend for pool in self.by_key.values())
        self.has_http = any(map(self.is_http, self.by_key))
        self._order = snapshot.order
        after = self.workers()
        leaving = tuple(sorted(before.difference(after), key=lambda worker: worker.id))
        self._leaving.update(leaving)
        for worker in leaving:
            worker.left()
        for told in self._watchers:
            told()
        for pool in self.by_key.values():
            pool.gate.pump()
        return Changes(
            added=tuple(worker for worker in after if worker not in before),
            kept=tuple(worker for worker in after if worker in before),
            leaving=leaving,
        )

    def backends(self) -> tuple[SGLangBackend, ...]:
        """Return every backend."""
        return tuple(pool.backend for pool in self.by_key.values())

    def backend(self, backend_key: str) -> SGLangBackend:
        """Return the backend *backend_key*; KeyError when it is gone."""
        return self.by_key[backend_key].backend

    def is_http(self, backend_key: str) -> bool:
        """Return whether the workers of *backend_key* speak HTTP; False when it is gone."""
        pool = self.by_key.get(backend_key)
        return pool is not None and pool.backend.spec.workers.protocol is Protocol.HTTP

    def pool(self, backend_key: str) -> Pool | None:
        """Return the newest version of *backend_key*; None when it is gone."""
        return self.by_key.get(backend_key)

    def pools(self) -> tuple[Pool, ...]:
        """Return the newest version of every backend."""
        return tuple(self.by_key.values())

    def schedule(self, worker: Worker) -> Schedule:
        """Return when *worker* is asked for its health."""
        pool = self.by_key.get(worker.backend_key)
        return pool.settings.schedule if pool is not None else Schedule()

    def offer(
        self,
        backend_key: str,
        without: Collection[str] = (),
        adapter: str = "",
        *,
        enough: float = math.inf,
    ) -> Offer:
        """Return the workers that may take a job now: the best group with anybody in it.

        See :mod:`sglr_dataplane.fleet.selection`.

        Args:
            backend_key: Whose workers.
            without: Ids to leave out.
            adapter: What they must list; ``""``: nothing.
            enough: Room that is enough to know of; with more, workers may be missing.
        """
        pool = self.by_key.get(backend_key)
        if pool is None:
            return selection.NOBODY
        workers = selection.having(adapter, pool.workers.values())
        return selection.offer(workers, pool.rules, self._clock(), without, enough)

    def candidates(self, backend_key: str, *, without: Collection[str] = ()) -> tuple[Worker, ...]:
        """Return the workers of the offer."""
        return self.offer(backend_key, without=without).candidates

    def room(self, backend_key: str, enough: float = math.inf) -> int | None:
        """Return how many jobs more the workers on offer take; None when there is nobody.

        Args:
            backend_key: Whose workers.
            enough: Those are not counted that come when there is more room than that.
        """
        offer = self.offer(backend_key, enough=enough)
        return offer.room if offer.candidates or offer.is_full else None

    def is_coming(self, backend_key: str, without: Collection[str] = ()) -> bool:
        """Return whether a worker, none of *without*, may take jobs in a moment."""
        return self.is_outdated() or selection.is_coming(self._workers(backend_key), without)

    def count(self, backend_key: str) -> Counts:
        """Return how many workers *backend_key* has; zeroes when it is gone."""
        workers = self._workers(backend_key)
        now = self._clock()
        return Counts(
            len(workers),
            selection.usable(workers),
            sum(not worker.breaker.admits(now) for worker in workers),
        )

    def counts(self) -> dict[str, Counts]:
        """Return the counts of every backend by its key."""
        return {key: self.count(key) for key in self.by_key}

    def abilities(self, backend_key: str) -> Abilities:
        """Return what the workers of *backend_key* can do, all together, by their own word."""
        found = self._abilities.get(backend_key)
        if found is None:
            workers = self._workers(backend_key)
            spoken = (worker.facts for worker in workers if worker.facts is not None)
            found = self._abilities[backend_key] = abilities_of(spoken)
        return found

    def facts(self, backend_key: str) -> EngineFacts | None:
        """Return what a worker of *backend_key* says of itself; None while none has spoken."""
        return self.abilities(backend_key).facts

    @property
    def is_ready(self) -> bool:
        """True when at least one worker of any backend can take a job."""
        return any(counts.ready for counts in self.counts().values())

    def workers(self, backend_key: str | None = None) -> tuple[Worker, ...]:
        """Return the workers of *backend_key*, or of every backend; none that leaves."""
        if backend_key is not None:
            return self._workers(backend_key)
        return tuple(worker for key in self.by_key for worker in self._workers(key))

    def reconnect(self, backend_key: str) -> None:
        """Give the workers of *backend_key* new clients; the old ones end with their streams."""
        pool = self.by_key.get(backend_key)
        if pool is not None:
            for worker in pool.workers.values():
                worker.reconnect(self._engine_for(worker.endpoint, pool.backend))

    def replace(self, worker: Worker) -> None:
        """Give *worker* a new client, if it is still listed."""
        pool = self.by_key.get(worker.backend_key)
        if pool is not None and pool.workers.get(worker.id) is worker:
            worker.reconnect(self._engine_for(worker.endpoint, pool.backend))

    def tended(self) -> tuple[Worker, ...]:
        """Return every worker that is not forgotten, those that leave included."""
        return (*self.workers(), *self._leaving)

    def forget(self, worker: Worker) -> None:
        """Drop *worker*, which left and is closed."""
        self._leaving.discard(worker)

    async def aclose(self) -> None:
        """Close every connection; running streams end with WorkerUnavailableError."""
        try:
            async with asyncio.timeout(_CLOSING), asyncio.TaskGroup() as group:
                for engine in (each for worker in self.tended() for each in worker.engines()):
                    group.create_task(engine.aclose())
        except TimeoutError:
            logger.warning("connections left open", extra={"after": _CLOSING})

    def _workers(self, backend_key: str) -> tuple[Worker, ...]:
        pool = self.by_key.get(backend_key)
        return tuple(pool.workers.values()) if pool is not None else ()

    def _merged(self, wanted: BackendSnapshot) -> Pool:
        """Return the backend as *wanted* has it, with the workers and all that it had learned."""
        backend = wanted.backend
        settings = settings_of(backend.spec)
        known = self.by_key.get(backend.key)
        pool = Pool(
            key=backend.key,
            backend=backend,
            settings=settings,
            rules=self._rules(backend),
            policy=self._policy(known, backend),
            budget=known.budget if known is not None else RetryBudget(settings.retry),
            gate=known.gate if known is not None else self._gate(backend.key, settings),
            workers={each.id: self._worker(known, backend, each) for each in wanted.endpoints},
        )
        pool.budget.adjust(settings.retry)
        pool.gate.adjust(settings.gate)
        for worker in pool.workers.values():
            worker.breaker.adjust(settings.breaker)
            worker.warm_up, worker.drain = settings.warm_up, settings.drain
            worker.on_verdict = pool.gate.pump
            worker.on_facts = partial(self._abilities.pop, backend.key, None)
            if known is not None and _is_called_otherwise(known.backend, backend):
                worker.reconnect(self._engine_for(worker.endpoint, backend))
        return pool

    def _gate(self, backend_key: str, settings: Settings) -> Gate:
        return Gate(
            settings.gate,
            partial(self.room, backend_key),
            self._clock,
            partial(self.is_coming, backend_key),
        )

    def _rules(self, backend: SGLangBackend) -> Rules:
        spec = backend.spec
        prefers_near = spec.routing.zone_preference is ZonePreference.PREFER
        limit = spec.admission.max_inflight_per_endpoint
        return Rules(spec.outlier_detection, limit, self._zone if prefers_near else "")

    def _policy(self, known: Pool | None, backend: SGLangBackend) -> Policy:
        """Return the policy of before when the spec still asks for it, else a new one."""
        wanted = backend.spec.routing
        if known is not None and known.backend.spec.routing == wanted:
            return known.policy
        return new_policy(wanted, clock=self._clock, chance=self._chance)

    def _worker(self, known: Pool | None, backend: SGLangBackend, endpoint: Endpoint) -> Worker:
        """Return the worker at *endpoint*: the one of before when it is the same."""
        names = frozenset(backend.spec.model.worker_names)
        worker = known.workers.get(endpoint.id) if known is not None else None
        if worker is not None and _is_same(worker.endpoint, endpoint):
            worker.told(endpoint, names)
            return worker
        engine = self._engine_for(endpoint, backend)
        return Worker(
            backend.key,
            endpoint,
            engine,
            model_names=names,
            processes=self._processes,
            clock=self._clock,
        )


def _never() -> bool:
    """Be the answer while nobody tells of workers but who is always heard."""
    return False


def _is_same(one: Endpoint, other: Endpoint) -> bool:
    """Return whether two endpoints with one id are reached alike: the client can stay."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("host", "port", "protocol", "incarnation")
    )


def _is_called_otherwise(one: SGLangBackend, other: SGLangBackend) -> bool:
    """Return whether the workers of two versions of a backend need other clients."""
    if _called(one) != _called(other):
        return True
    return any(
        getattr(one.spec, name) != getattr(other.spec, name)
        for name in ("timeouts", "health_check", "tls", "worker_auth")
    )


def _called(backend: SGLangBackend) -> tuple[object, ...]:
    """Return what the clients of *backend*'s workers are made from, besides its sections."""
    workers = backend.spec.workers
    names = backend.spec.model.worker_names if workers.protocol is Protocol.HTTP else ()
    return workers.protocol, workers.grpc, workers.http, names
