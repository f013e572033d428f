"""What the fleet looks like at the moment somebody asks: for scrapes, and for people.

Read from the registry when it is asked for, so that no count can drift, and the series of a worker
that is gone are gone with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from sglr_dataplane.fleet.breaker import BreakerState
from sglr_dataplane.fleet.routes import adapter_names
from sglr_dataplane.fleet.worker import WorkerState

if TYPE_CHECKING:
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.fleet.worker import Worker

_BREAKER_VALUES: Final = {
    BreakerState.CLOSED: 0,
    BreakerState.HALF_OPEN: 1,
    BreakerState.OPEN: 2,
}


class FleetCollector(Collector):
    """The gauges of a registry's workers and queues."""

    def __init__(self, registry: Registry) -> None:
        """Read *registry* at each scrape."""
        self._registry = registry

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield every gauge; may run in another thread than the registry's."""
        workers = self._registry.tended()
        yield self._states(workers)
        yield _each(
            "sglr_worker_in_flight",
            "Jobs of this process that a worker is busy with.",
            workers,
            lambda worker: worker.in_flight,
        )
        yield _each(
            "sglr_worker_breaker_state",
            "Whether real traffic failed there lately: 0 closed, 1 half-open, 2 open.",
            workers,
            lambda worker: _BREAKER_VALUES[worker.breaker.state],
        )
        yield _each(
            "sglr_worker_load",
            "Jobs of everybody that a worker is busy with, as far as it says; at least ours.",
            workers,
            lambda worker: worker.load,
        )
        yield from self._queues()

    def _states(self, workers: tuple[Worker, ...]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(
            "sglr_workers", "Workers by backend and state.", labels=["backend", "state"]
        )
        found = Counter((worker.backend_key, worker.state) for worker in workers)
        for key in sorted(self._registry.counts()):
            for state in WorkerState:
                family.add_metric([key, state], found[key, state])
        return family

    def _queues(self) -> Iterator[GaugeMetricFamily]:
        waiting = GaugeMetricFamily(
            "sglr_queue_waiting", "Requests that wait for a place.", labels=["backend"]
        )
        admitted = GaugeMetricFamily(
            "sglr_queue_admitted", "Requests that were let in and run.", labels=["backend"]
        )
        for key in sorted(self._registry.counts()):
            pool = self._registry.pool(key)
            if pool is not None:
                waiting.add_metric([key], pool.gate.waiting)
                admitted.add_metric([key], pool.gate.held)
        yield waiting
        yield admitted


def _each(
    name: str, text: str, workers: tuple[Worker, ...], value: Callable[[Worker], float]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=["backend", "worker"])
    for worker in workers:
        family.add_metric([worker.backend_key, worker.name], value(worker))
    return family


def describe(registry: Registry, now: float) -> list[dict[str, Any]]:
    """Return every backend with its workers, ready for JSON; for the admin port only.

    Addresses are in it, keys are not.
    """
    return [_backend(registry, key, now) for key in sorted(registry.counts())]


def _backend(registry: Registry, key: str, now: float) -> dict[str, Any]:
    spec = registry.backend(key).spec
    workers = [worker for worker in registry.tended() if worker.backend_key == key]
    return {
        "backend": key,
        "model": spec.model.name,
        "names": [*spec.model.names, *adapter_names(spec.model, registry.abilities(key).adapters)],
        "weight": spec.traffic.weight,
        "priority": spec.traffic.priority,
        "policy": spec.routing.policy.value,
        **_queue(registry, key),
        "workers": [
            _worker(each, now, spec.admission.max_inflight_per_endpoint) for each in workers
        ],
    }


def _queue(registry: Registry, key: str) -> dict[str, int]:
    pool = registry.pool(key)
    if pool is None:
        return {"admitted": 0, "waiting": 0}
    return {"admitted": pool.gate.held, "waiting": pool.gate.waiting}


def _worker(worker: Worker, now: float, limit: int | None) -> dict[str, Any]:
    """Return one worker; *limit* is what its backend gives it at once, None: what it takes."""
    facts = worker.facts
    if limit is None and facts is not None:
        limit = facts.max_running_requests
    answered_at, first = worker.answered_at, worker.first_token_seconds
    return {
        "worker": worker.name,
        "id": worker.id,
        "address": worker.endpoint.address,
        "zone": worker.endpoint.zone,
        "endpoint": worker.endpoint.state.value,
        "state": worker.state.value,
        "protocol": worker.endpoint.protocol.value,
        "serves": facts.served_model_name if facts is not None else None,
        "version": facts.version if facts is not None else None,
        "adapters": sorted(worker.adapters),
        "suspect": worker.suspect,
        "problem": worker.problem,
        "connections_lost": worker.losses,
        "in_flight": worker.in_flight,
        "load": worker.load,
        "limit": limit,
        "breaker": worker.breaker.state.value,
        "failures_in_a_row": worker.breaker.failures,
        "answered_seconds_ago": round(now - answered_at, 1) if answered_at is not None else None,
        "first_token_seconds": round(first, 4) if first is not None else None,
    }
