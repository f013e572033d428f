"""A worker that cannot be reached, or whose connection was lost: not counted, and not trusted."""

from __future__ import annotations

from sglr_dataplane.errors import DeadlineExceededError, WorkerUnavailableError
from sglr_dataplane.fleet.prober import Checkup
from sglr_dataplane.fleet.schedule import Schedule
from sglr_dataplane.fleet.worker import Worker, WorkerState
from support.engines import FakeClock, ScriptedEngine
from support.fleets import KEY, a_registry

DOWN = WorkerUnavailableError("The worker cannot be reached.")
LATE = DeadlineExceededError("The worker did not answer a health check within 2 s.")
SCHEDULE = Schedule(interval=5, failures=3, successes=2, facts=60, starting=3, soonest=0.2)


async def test_a_worker_that_cannot_be_reached_is_not_counted_as_ready() -> None:
    """One that is late is: it may be busy. It stays ready, and the last resort, either way."""
    counted: dict[str, int] = {}
    for name, failure in (("down", DOWN), ("late", LATE)):
        registry = a_registry({"w1": ScriptedEngine(health=[True, failure])}, ready=False)
        (worker,) = registry.workers()
        checkup = Checkup(worker, SCHEDULE, FakeClock())
        await checkup.run()
        await checkup.run()
        counted[name] = registry.count(KEY).ready
        assert registry.candidates(KEY) == (worker,)

    assert counted == {"down": 0, "late": 1}


async def test_a_worker_whose_connection_is_lost_gets_no_jobs_until_its_facts_are_known() -> None:
    """Another model may have come up in its place; probes follow soon."""
    engine = ScriptedEngine()
    registry = a_registry({"w1": engine}, ready=False)
    (worker,) = registry.workers()
    checkup = Checkup(worker, SCHEDULE, FakeClock())
    await checkup.run()
    engine.on_lost()
    lost = (registry.candidates(KEY), registry.count(KEY).ready, checkup.delay < 5)
    await checkup.run()

    assert lost == ((), 0, True)
    assert registry.candidates(KEY) == (worker,)
    assert engine.asked == 2


async def test_a_connection_that_is_lost_during_a_probe_is_looked_at_again() -> None:
    """What was said before says nothing about who is there now."""
    engine = ScriptedEngine()
    registry = a_registry({"w1": engine}, ready=False)
    (worker,) = registry.workers()

    async def lose(_worker: Worker, _again: bool) -> str | None:
        if engine.probes == 1:
            engine.on_lost()
        return None

    checkup = Checkup(worker, SCHEDULE, FakeClock(), lose)
    await checkup.run()
    first = worker.state
    await checkup.run()

    assert (first, worker.state) == (WorkerState.PENDING, WorkerState.READY)
