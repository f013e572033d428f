"""What several processes see, as one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from sglr_dataplane.fleet.across import (
    AcrossCollector,
    backends_together,
    families_of,
    together,
)
from sglr_dataplane.fleet.observe import FleetCollector, describe
from sglr_dataplane.fleet.siblings import Family, Siblings, Standing, forget
from sglr_dataplane.metrics import RouterMetrics
from support.engines import FakeClock, ScriptedEngine
from support.fleets import a_registry
from support.router import eventually


def series(gauges: Iterator[GaugeMetricFamily]) -> dict[tuple[str, ...], float]:
    """Return every number by name and label values."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for gauge in gauges
        for sample in gauge.samples
    }


def test_loads_are_added_and_the_worst_breaker_is_shown() -> None:
    """An open breaker of one process is a share of the requests that fails."""

    def seen(in_flight: float, breaker: float) -> tuple[Family, ...]:
        labels = ("backend", "worker")
        return (
            Family("sglr_worker_in_flight", "", labels, ((("b", "w"), in_flight),)),
            Family("sglr_worker_breaker_state", "", labels, ((("b", "w"), breaker),)),
        )

    assert series(together([seen(3, 0), seen(4, 2), seen(0, 1)])) == {
        ("sglr_worker_in_flight", "b", "w"): 7,
        ("sglr_worker_breaker_state", "b", "w"): 2,
    }


def test_workers_are_counted_as_the_process_that_reaches_fewest_counts_them() -> None:
    """Per backend, and all states from one process, so that they add up to the workers."""

    def seen(*counts: tuple[str, float, float]) -> tuple[Family, ...]:
        pairs = [((b, "ready"), ready) for b, ready, _ in counts]
        pairs += [((b, "pending"), pending) for b, _, pending in counts]
        return (Family("sglr_workers", "", ("backend", "state"), tuple(pairs)),)

    found = series(together([seen(("a", 3, 0), ("b", 1, 1)), seen(("a", 2, 1), ("b", 2, 0))]))

    assert found == {
        ("sglr_workers", "a", "ready"): 2,
        ("sglr_workers", "a", "pending"): 1,
        ("sglr_workers", "b", "ready"): 1,
        ("sglr_workers", "b", "pending"): 1,
    }


async def test_what_a_process_tells_is_in_the_scrape_of_another_until_it_dies(
    tmp_path: Path,
) -> None:
    """Its gauges go with it."""
    mine, other = (Siblings(tmp_path, i, 2) for i in range(2))
    collector = AcrossCollector(_One(2.0), mine)
    standing = Standing("serving", 1, families_of(_One(5.0)), ())
    telling = asyncio.create_task(other.tell(lambda: standing))
    await eventually(mine.others)
    telling.cancel()
    with_both = series(collector.collect())
    forget(tmp_path, 1)

    assert with_both == {("jobs", "w"): 7.0}
    assert series(collector.collect()) == {("jobs", "w"): 2.0}


def test_one_process_is_shown_as_it_is() -> None:
    """Nothing is lost on the way between processes."""
    registry = a_registry({"w1": ScriptedEngine(), "w2": ScriptedEngine()}, clock=FakeClock(0.0))
    own = FleetCollector(registry)

    assert series(together([families_of(own)])) == series(own.collect())
    assert backends_together([describe(registry, 5.0)]) == describe(registry, 5.0)


def test_a_worker_is_shown_as_the_process_sees_it_to_which_it_is_worst() -> None:
    """Loads are added, times are the longest, the answer is the latest."""

    def seen(**facts: Any) -> list[dict[str, Any]]:
        worker = {
            "id": "w",
            "state": "ready",
            "suspect": False,
            "problem": None,
            "connections_lost": 2,
            "in_flight": 1,
            "load": 2,
            "breaker": "closed",
            "failures_in_a_row": 0,
            "answered_seconds_ago": None,
            "first_token_seconds": None,
        }
        return [{"backend": "b", "admitted": 2, "waiting": 1, "workers": [worker | facts]}]

    [backend] = backends_together(
        [
            seen(answered_seconds_ago=4.0, first_token_seconds=0.1),
            seen(state="unhealthy", problem="It is gone.", suspect=True),
            seen(breaker="half_open", failures_in_a_row=5, answered_seconds_ago=9.0),
        ]
    )

    assert (backend["admitted"], backend["waiting"]) == (6, 3)
    assert backend["workers"] == [
        {
            "id": "w",
            "state": "unhealthy",
            "suspect": True,
            "problem": "It is gone.",
            "connections_lost": 6,
            "in_flight": 3,
            # Two by the last word of each process, which is of before the third one came.
            "load": 3,
            "breaker": "half_open",
            "failures_in_a_row": 5,
            "answered_seconds_ago": 4.0,
            "first_token_seconds": 0.1,
        }
    ]


def test_every_gauge_of_a_process_goes_with_the_process(tmp_path: Path) -> None:
    """A gauge that outlived its process would be shown for ever."""
    gauges = [each for each in vars(RouterMetrics(tmp_path)).values() if isinstance(each, Gauge)]

    assert gauges
    assert all(gauge._multiprocess_mode.startswith("live") for gauge in gauges)


class _One(Collector):
    """One gauge with one number."""

    def __init__(self, number: float) -> None:
        self._number = number

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily("jobs", "", labels=["worker"])
        family.add_metric(["w"], self._number)
        yield family
