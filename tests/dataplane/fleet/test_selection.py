"""Selection: who may take a job when workers fail, are full, or are all there is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sglr_dataplane.fleet.breaker import Outcome
from sglr_dataplane.fleet.selection import Offer, Rules, offer
from sglr_dataplane.fleet.worker import Worker
from sglr_proto.backend import LastResort, OutlierDetection
from support.engines import ScriptedEngine
from support.fleets import a_registry

HALF = OutlierDetection(max_ejection_percent=50)


def workers(count: int) -> tuple[Worker, ...]:
    """Return ready workers w0, w1 and so on."""
    return a_registry({f"w{n}": ScriptedEngine() for n in range(count)}).workers()


def fail(worker: Worker, now: float = 0.0) -> None:
    """Open the breaker of *worker*."""
    for _ in range(5):
        worker.breaker.leave(worker.breaker.enter(now), Outcome.FAILED, now)


def names(
    of: tuple[Worker, ...], wanted: OutlierDetection = HALF, now: float = 1.0, *without: str
) -> list[str]:
    """Return the ids of the candidates."""
    return [worker.id for worker in offer(of, Rules(wanted), now, without).candidates]


def test_a_worker_that_fails_is_left_alone_until_its_time_is_over() -> None:
    """An open breaker takes a worker out, and one job tries it ten seconds later."""
    fleet = workers(2)
    fail(fleet[0])
    alone, back = names(fleet), names(fleet, HALF, 10.0)
    fleet[0].breaker.enter(10.0)

    assert alone == ["w1"]
    assert back == ["w0", "w1"]
    assert names(fleet, HALF, 10.0) == ["w1"]


def test_no_more_workers_than_allowed_are_left_alone() -> None:
    """With three of four failing two are left alone; the third is avoided, and used before them."""
    fleet = workers(4)
    for now, worker in enumerate(fleet[:3]):
        fail(worker, now / 10)

    assert names(fleet) == ["w3"]
    assert names(fleet, HALF, 1.0, "w3") == ["w2"]


@pytest.mark.parametrize(
    ("last_resort", "expected"), [(LastResort.FAIL_OPEN, ["w0", "w1"]), (LastResort.REFUSE, [])]
)
def test_the_last_resort_is_the_backends_choice(
    last_resort: LastResort, expected: list[str]
) -> None:
    """With everybody left alone the job goes to one of them, or to nobody."""
    fleet = workers(2)
    for worker in fleet:
        fail(worker)
    wanted = OutlierDetection(max_ejection_percent=100, last_resort=last_resort)

    assert names(fleet, wanted) == expected


def test_failing_probes_are_a_worse_last_resort_than_an_open_breaker() -> None:
    """The least bad worker is one that is up and fails, then one that does not answer probes."""
    fleet = workers(2)
    fail(fleet[0])
    fleet[1].became_unhealthy("The worker cannot be reached.")
    everybody = OutlierDetection(max_ejection_percent=100)

    assert names(fleet, everybody) == ["w0"]
    assert names(fleet, everybody, 1.0, "w0") == ["w1"]


@pytest.mark.parametrize(
    "state",
    [
        lambda worker: worker.refused("The worker reports that it is not serving."),
        lambda worker: worker.left(),
    ],
    ids=["not serving", "leaving"],
)
def test_a_worker_that_wants_no_jobs_is_not_even_a_last_resort(
    state: Callable[[Worker], None],
) -> None:
    """Failing open is for workers that may be well."""
    fleet = workers(1)
    state(fleet[0])

    assert names(fleet) == []


def test_a_worker_that_was_never_ready_is_no_last_resort() -> None:
    """What it serves is not known yet."""
    fleet = a_registry({"w0": ScriptedEngine()}, ready=False).workers()
    fleet[0].became_unhealthy("The worker cannot be reached.")

    assert names(fleet) == []


def test_a13_a_full_worker_is_avoided_for_a_moment_only() -> None:
    """A13: others are preferred for a second; alone it is used at once."""
    fleet = workers(2)
    fleet[0].was_busy(1.0)

    assert names(fleet, HALF, 1.5) == ["w1"]
    assert names(fleet, HALF, 1.5, "w1") == ["w0"]
    assert names(fleet, HALF, 2.0) == ["w0", "w1"]


def test_a13_a_worker_that_was_full_is_given_what_it_held_and_slowly_more() -> None:
    """A13: three of four were taken, so three are its room; one more is tried after each second."""
    [worker] = workers(1)
    engine, *_ = [worker.begin() for _ in range(4)]
    worker.was_busy(10.0)
    worker.end(engine)
    rooms = [worker.room(8, 10.0 + seconds) for seconds in (0.0, 0.9, 1.0, 2.5, 5.0, 60.0)]

    assert rooms == [0, 0, 1, 2, 5, 5]
    assert offer((worker,), Rules(HALF, 8), 10.5) == Offer((), is_full=True)


def test_a13_refusals_of_a_burst_find_the_room_there_is() -> None:
    """Of eight sent at once five are refused: three is what it takes, whatever was believed."""
    [worker] = workers(1)
    engines = [worker.begin() for _ in range(8)]
    for engine in engines[:5]:
        worker.was_busy(1.0)
        worker.end(engine)

    assert (worker.in_flight, worker.room(8, 1.0)) == (3, 0)
    worker.end(engines[-1])
    assert worker.room(8, 1.5) == 1


def test_nobody_goes_to_a_bad_worker_because_the_good_ones_are_busy() -> None:
    """With the well one full, the one that fails is not a last resort: the job waits."""
    fleet = workers(2)
    fail(fleet[0])
    for _ in range(8):  # what a scripted worker says it runs
        fleet[1].begin()

    assert offer(fleet, Rules(HALF), 1.0) == Offer((), is_full=True)
    assert [worker.id for worker in offer(fleet, Rules(HALF, 9), 1.0).candidates] == ["w1"]


def test_a_full_worker_is_passed_over_for_one_with_room() -> None:
    """Its own limit, or the backend's, takes a worker off the offer."""
    fleet = workers(2)
    fleet[0].begin()

    assert [each.id for each in offer(fleet, Rules(HALF, 1), 1.0).candidates] == ["w1"]
    assert names(fleet) == ["w0", "w1"]
