"""Limits of a router, divided among its processes."""

import msgspec
import pytest

from sglr_dataplane.fleet.rates import Rates
from sglr_dataplane.fleet.shares import share, share_of_rates, share_of_snapshot
from sglr_proto.backend import Admission, RateLimit, Retry
from sglr_proto.snapshot import BackendSnapshot, Snapshot
from support.engines import ScriptedEngine
from support.fleets import a_backend, a_registry


@pytest.mark.parametrize(
    ("limit", "processes", "expected"),
    [(100, 1, 100), (100, 4, 25), (10, 4, 2), (3, 4, 1), (0, 4, 0), (None, 4, None)],
)
def test_a_share_is_rounded_down_but_at_least_one(
    limit: int | None, processes: int, expected: int | None
) -> None:
    """Together the processes stay below the limit; each can serve; 0 and no limit stay."""
    assert share(limit, processes) == expected


def test_rates_are_divided() -> None:
    """Each kind by itself."""
    assert share_of_rates(Rates(60, None, 9), 2) == Rates(30, None, 4)


def test_every_limit_of_a_backend_is_divided_and_nothing_else() -> None:
    """Admission, rates and the retries that are always allowed; waits stay."""
    backend = a_backend(
        admission=Admission(
            max_inflight=100, max_inflight_per_endpoint=10, max_queue_depth=50, max_queue_wait="9s"
        ),
        rate_limit=RateLimit(
            requests_per_minute=60, input_tokens_per_minute=1000, output_tokens_per_minute=500
        ),
        retry=Retry(budget_minimum=10),
    )
    snapshot = Snapshot(version=7, backends=(BackendSnapshot(backend=backend),))
    divided = share_of_snapshot(snapshot, 4)
    spec = divided.backends[0].backend.spec

    assert spec.admission == Admission(
        max_inflight=25, max_inflight_per_endpoint=2, max_queue_depth=12, max_queue_wait="9s"
    )
    assert spec.rate_limit == RateLimit(
        requests_per_minute=15, input_tokens_per_minute=250, output_tokens_per_minute=125
    )
    assert spec.retry.budget_minimum == 2
    assert divided.version == 7
    untouched = msgspec.structs.replace(
        spec,
        admission=backend.spec.admission,
        rate_limit=backend.spec.rate_limit,
        retry=backend.spec.retry,
    )
    assert untouched == backend.spec


def test_a_router_of_one_process_has_everything() -> None:
    """Nothing is copied."""
    snapshot = Snapshot(backends=(BackendSnapshot(backend=a_backend()),))
    assert share_of_snapshot(snapshot, 1) is snapshot


def test_what_a_worker_says_it_runs_is_divided_too() -> None:
    """Two processes together give it no more than it takes."""
    registry = a_registry({"w1": ScriptedEngine()}, processes=2)
    [worker] = registry.workers()
    assert worker.facts is not None
    most = worker.facts.max_running_requests

    assert most is not None
    assert worker.room(None, 0.0) == most // 2
