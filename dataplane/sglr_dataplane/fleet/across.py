"""What several processes of one router see, as one: for scrapes, and for people.

Each process has its own connections, queues and breakers, so loads are added up. What they may see
differently is shown as the worst of them does: that is what a share of the requests meets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from sglr_dataplane.fleet.breaker import BreakerState
from sglr_dataplane.fleet.siblings import Family, Siblings
from sglr_dataplane.fleet.worker import WorkerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import Metric

_Series = Mapping[tuple[str, ...], float]

_WORST_STATE: Final = (
    WorkerState.LEAVING,
    WorkerState.UNHEALTHY,
    WorkerState.PENDING,
    WorkerState.READY,
)
_WORST_BREAKER: Final = (BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED)


class AcrossCollector(Collector):
    """The gauges of one process, put together with those of its siblings."""

    def __init__(self, own: Collector, siblings: Siblings) -> None:
        """Ask *own* at each scrape, and read what *siblings* wrote last."""
        self._own = own
        self._siblings = siblings

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield every gauge once."""
        yield from together(
            [families_of(self._own), *(s.families for s in self._siblings.others())]
        )


def families_of(collector: Collector) -> tuple[Family, ...]:
    """Return the gauges of *collector* as they travel between processes."""
    return tuple(_family(metric) for metric in collector.collect())


def together(found: Sequence[Sequence[Family]]) -> Iterator[GaugeMetricFamily]:
    """Yield the gauges of several processes, each once: summed, or by the rule of its name."""
    by_name: dict[str, list[Family]] = {}
    for families in found:
        for family in families:
            by_name.setdefault(family.name, []).append(family)
    for name, families in by_name.items():
        gauge = GaugeMetricFamily(name, families[0].text, labels=families[0].labels)
        rule = _RULES.get(name, summed)
        for labels, number in rule([dict(family.series) for family in families]).items():
            gauge.add_metric(labels, number)
        yield gauge


def summed(found: Iterable[_Series]) -> dict[tuple[str, ...], float]:
    """Return the sum of each series."""
    total: dict[tuple[str, ...], float] = {}
    for series in found:
        for labels, number in series.items():
            total[labels] = total.get(labels, 0.0) + number
    return total


def largest(found: Iterable[_Series]) -> dict[tuple[str, ...], float]:
    """Return the largest number of each series."""
    most: dict[tuple[str, ...], float] = {}
    for series in found:
        for labels, number in series.items():
            most[labels] = max(number, most.get(labels, number))
    return most


def fewest_ready(found: Iterable[_Series]) -> dict[tuple[str, ...], float]:
    """Return, for each backend, the counts of the process to which the fewest workers are ready."""
    chosen: dict[str, dict[tuple[str, ...], float]] = {}
    for series in found:
        by_backend: dict[str, dict[tuple[str, ...], float]] = {}
        for labels, number in series.items():
            by_backend.setdefault(labels[0], {})[labels] = number
        for backend, counts in by_backend.items():
            ready = (backend, WorkerState.READY.value)
            if backend not in chosen or counts.get(ready, 0) < chosen[backend].get(ready, 0):
                chosen[backend] = counts
    return {labels: n for counts in chosen.values() for labels, n in counts.items()}


_RULES: Final[Mapping[str, Callable[[list[_Series]], dict[tuple[str, ...], float]]]] = {
    "sglr_workers": fewest_ready,
    "sglr_worker_breaker_state": largest,
    "sglr_worker_load": largest,
}


def backends_together(found: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the fleets of several processes, as :func:`~.observe.describe` has them, as one."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for backends in found:
        for backend in backends:
            by_name.setdefault(backend["backend"], []).append(backend)
    return [_backend(by_name[name]) for name in sorted(by_name)]


def _backend(seen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    workers: dict[str, list[Mapping[str, Any]]] = {}
    for backend in seen:
        for worker in backend["workers"]:
            workers.setdefault(worker["id"], []).append(worker)
    return {
        **seen[0],
        "admitted": sum(backend["admitted"] for backend in seen),
        "waiting": sum(backend["waiting"] for backend in seen),
        "workers": [_worker(each) for each in workers.values()],
    }


def _worker(seen: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one worker: its load summed, its state as whoever sees it worst."""
    firsts = [w["first_token_seconds"] for w in seen if w["first_token_seconds"] is not None]
    answers = [w["answered_seconds_ago"] for w in seen if w["answered_seconds_ago"] is not None]
    return {
        **min(seen, key=lambda worker: _WORST_STATE.index(worker["state"])),
        "suspect": any(worker["suspect"] for worker in seen),
        "problem": next((w["problem"] for w in seen if w["problem"] is not None), None),
        "connections_lost": sum(worker["connections_lost"] for worker in seen),
        "in_flight": sum(worker["in_flight"] for worker in seen),
        # What a worker says is everybody's already; before it says so, ours are all that is known.
        "load": max(
            sum(worker["in_flight"] for worker in seen), *(worker["load"] for worker in seen)
        ),
        "breaker": min((w["breaker"] for w in seen), key=_WORST_BREAKER.index),
        "failures_in_a_row": max(worker["failures_in_a_row"] for worker in seen),
        "answered_seconds_ago": min(answers, default=None),
        "first_token_seconds": max(firsts, default=None),
    }


def _family(metric: Metric) -> Family:
    labels = tuple(metric.samples[0].labels) if metric.samples else ()
    series = tuple((tuple(s.labels.values()), s.value) for s in metric.samples)
    return Family(metric.name, metric.documentation, labels, series)
