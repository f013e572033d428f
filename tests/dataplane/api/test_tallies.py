"""Plain numbers are told as prometheus_client tells its own: the same text, byte for byte."""

from __future__ import annotations

import random
import re
from pathlib import Path

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import DuplicateTimeseries

from sglr_dataplane import tallies
from sglr_dataplane.metrics import RouterMetrics

BOUNDS = (0.005, 0.5, 1, 2.5, 60, 600)


def told(metrics: RouterMetrics) -> str:
    """Return all but when the series were created."""
    text = generate_latest(metrics.registry).decode()
    return re.sub(r"^(\w+_created.*) \S+$", r"\1", text, flags=re.MULTILINE)


def use(metrics: RouterMetrics, seed: int) -> None:
    """Count what requests, streams and failures are counted as."""
    chosen = random.Random(seed)
    for _ in range(200):
        key, model = chosen.choice(["default/a", "b/ü"]), chosen.choice(["m", 'odd "name"\\\n', ""])
        metrics.requests.labels(chosen.choice(["/v1/models", "other"]), chosen.choice("ab")).inc()
        metrics.duration.labels("other").observe(chosen.choice([*BOUNDS, 0.0, -1.0, 601.0]))
        metrics.attempted(key, "failed")
        metrics.stages(key).queue.observe(chosen.random() * 700)
        metrics.stages(key).worker.observe(chosen.random())
        metrics.used(model, chosen.randrange(9000), chosen.randrange(9000), chosen.randrange(9))
        metrics.streamed(model, chosen.random(), chosen.choice([None, 3.0]), chosen.randrange(4))
        metrics.in_flight.inc()
        metrics.in_flight.dec(chosen.choice([0, 1]))
    metrics.reloads.labels("applied").inc()
    metrics.intake_refusals.labels("spec_invalid").inc(2)


@pytest.mark.parametrize("seed", range(5))
def test_one_process_tells_what_processes_that_share_their_counts_do(
    tmp_path: Path, seed: int
) -> None:
    """Names, help, types, labels, buckets, sums and the rest, in the same order."""
    plain, library = RouterMetrics(), RouterMetrics(tmp_path)
    nothing = told(plain)
    assert nothing == told(library)
    use(plain, seed)
    use(library, seed)

    assert told(plain) == told(library) != nothing


def test_a_value_on_the_bound_is_within_it() -> None:
    """As ``le`` says: less or equal."""
    registry = CollectorRegistry()
    series = tallies.Histogram("h", "H.", ["a"], buckets=(1, 2), registry=registry).labels("x")
    for amount in (1, 1.5, 2, 2.5):
        series.observe(amount)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"a": "x", **labels})

    assert [value("h_bucket", le=mark) for mark in ("1.0", "2.0", "+Inf")] == [1, 3, 4]
    assert (value("h_count"), value("h_sum")) == (4, 7.0)


def test_a_series_that_was_removed_begins_anew() -> None:
    """Nothing of it is told any more; removing what never was is no error."""
    registry = CollectorRegistry()
    now = 10.0
    counter = tallies.Counter("c_total", "C.", ["a"], registry=registry, clock=lambda: now)
    counter.labels("x").inc(3)
    now = 20.0
    counter.remove("x")
    counter.remove("y")

    assert registry.get_sample_value("c_total", {"a": "x"}) is None
    counter.labels("x").inc()
    assert registry.get_sample_value("c_total", {"a": "x"}) == 1
    assert registry.get_sample_value("c_created", {"a": "x"}) == 20.0


def test_mistakes_of_the_maker_are_errors() -> None:
    """A name that is taken, by whichever kind; labels that are too few."""
    registry = CollectorRegistry()
    counter = tallies.Counter("c_total", "C.", ["a", "b"], registry=registry)

    with pytest.raises(DuplicateTimeseries):
        prometheus_client.Counter("c", "C.", registry=registry)
    with pytest.raises(ValueError, match="labels"):
        counter.labels("x")
