"""A worker that nobody has judged yet: a job waits for the probe, and no longer than that."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from sglr_dataplane.errors import NoAvailableWorkersError, QueueTimeoutError, WorkerUnavailableError
from sglr_dataplane.fleet import gate
from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_dataplane.fleet.prober import Checkup
from sglr_dataplane.fleet.schedule import Schedule
from sglr_proto.snapshot import EndpointState
from support.dispatching import LOST, all_of
from support.engines import HI, FakeClock, ScriptedEngine, some_facts
from support.fleets import KEY, a_job, a_registry, a_snapshot, an_endpoint

DOWN = WorkerUnavailableError("The worker cannot be reached.")
SCHEDULE = Schedule()


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_job_waits_for_the_first_probe_of_a_new_worker() -> None:
    """In a roll-out the old one may be gone before the new one was asked: that is no 503."""
    registry = a_registry({"w1": ScriptedEngine(HI)}, ready=False)
    job = asyncio.ensure_future(Dispatcher(registry).dispatch(KEY, a_job()))
    await settle()
    waited = not job.done()
    registry.workers()[0].became_ready(some_facts())

    assert waited
    assert len(await all_of(await asyncio.wait_for(job, 2))) == 3


async def test_a_probe_that_fails_ends_the_waiting_at_once() -> None:
    """Every job that waits hears the count then; one that comes later does not wait."""
    registry = a_registry({"w1": ScriptedEngine(HI, health=[DOWN])}, ready=False)
    (worker,) = registry.workers()
    jobs = [asyncio.ensure_future(Dispatcher(registry).dispatch(KEY, a_job())) for _ in range(3)]
    await settle()
    await Checkup(worker, SCHEDULE, FakeClock()).run()
    await settle()
    heard = [job.done() and str(job.exception()) for job in jobs]

    assert heard == ["No worker of model 'm' is available: 1 known, 0 ready."] * 3
    with pytest.raises(NoAvailableWorkersError, match="1 known, 0 ready"):
        await Dispatcher(registry).dispatch(KEY, a_job())


async def test_a_probe_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiting has a bound of its own, and its end is a 503."""
    monkeypatch.setattr(gate, "VERDICT", 0.1)
    registry = a_registry({"w1": ScriptedEngine(HI)}, ready=False)
    with pytest.raises(QueueTimeoutError) as failure:
        await Dispatcher(registry).dispatch(KEY, a_job())

    assert (failure.value.status, failure.value.code) == (503, "no_available_workers")


async def test_a_job_whose_worker_goes_waits_for_the_one_that_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second attempt finds a worker that nobody asked yet, and nobody else."""
    engines = {"old": ScriptedEngine([LOST]), "new": ScriptedEngine(HI)}
    registry = a_registry(engines, ready=False)
    old, new = registry.workers()
    old.became_ready(some_facts())
    looks = asyncio.Event()
    is_coming = registry.is_coming

    def look(key: str, without: Collection[str] = ()) -> bool:
        looks.set()
        return is_coming(key, without)

    monkeypatch.setattr(registry, "is_coming", look)
    job = asyncio.ensure_future(Dispatcher(registry, chance=lambda: 0.0).dispatch(KEY, a_job()))
    await asyncio.wait_for(looks.wait(), 5)
    new.became_ready(some_facts())

    assert len(await all_of(await asyncio.wait_for(job, 5))) == 3
    assert [len(engine.jobs) for engine in engines.values()] == [1, 1]


async def test_a_worker_that_kubernetes_calls_ready_is_asked_at_once() -> None:
    """It answered nobody while it started; what was found then says nothing about now."""
    engine = ScriptedEngine(HI, health=[DOWN, True])
    registry = a_registry({"w1": engine}, ready=False)
    unready = an_endpoint("w1", state=EndpointState.UNREADY)
    registry.apply(a_snapshot(unready, version=2))
    (worker,) = registry.workers()
    woken: list[bool] = []
    worker.wake = lambda: woken.append(worker.is_unjudged)
    checkup = Checkup(worker, SCHEDULE, FakeClock())
    await checkup.run()
    before = registry.is_coming(KEY)
    registry.apply(a_snapshot(an_endpoint("w1"), version=3))
    job = asyncio.ensure_future(Dispatcher(registry).dispatch(KEY, a_job()))
    await settle()
    await checkup.run()

    assert not before
    assert woken == [True]
    assert len(await all_of(await asyncio.wait_for(job, 2))) == 3


async def test_what_a_probe_found_before_the_word_came_is_no_verdict() -> None:
    """The probe that was underway when Kubernetes called the worker ready is not the last word."""
    engine = ScriptedEngine(HI, health=[DOWN])
    registry = a_registry({"w1": engine}, ready=False)
    registry.apply(a_snapshot(an_endpoint("w1", state=EndpointState.UNREADY), version=2))
    (worker,) = registry.workers()
    real = engine.is_serving

    async def during() -> bool:
        registry.apply(a_snapshot(an_endpoint("w1"), version=3))
        return await real()

    engine.is_serving = during  # type: ignore[method-assign]  # one probe is overtaken
    await Checkup(worker, SCHEDULE, FakeClock()).run()

    assert registry.is_coming(KEY)


async def test_a_job_waits_for_the_word_of_an_operator_that_is_not_heard() -> None:
    """Who it knows of is gone, and others came: its next word is there before long."""
    registry = a_registry({"old": ScriptedEngine(HI), "new": ScriptedEngine(HI)}, ready=False)
    registry.apply(a_snapshot(an_endpoint("old"), version=2))
    registry.workers()[0].was_judged()
    registry.is_outdated = lambda: True
    job = asyncio.ensure_future(Dispatcher(registry).dispatch(KEY, a_job()))
    await settle()
    waited = not job.done()
    registry.apply(a_snapshot(an_endpoint("new"), version=3))
    registry.is_outdated = lambda: False
    registry.workers()[0].became_ready(some_facts())

    assert waited
    assert len(await all_of(await asyncio.wait_for(job, 2))) == 3


async def test_a_worker_that_leaves_is_not_waited_for() -> None:
    """The control plane wants no new jobs there: its probe changes nothing."""
    registry = a_registry({"w1": ScriptedEngine(HI)}, ready=False)
    registry.apply(a_snapshot(an_endpoint("w1", state=EndpointState.DRAINING), version=2))

    with pytest.raises(NoAvailableWorkersError):
        await Dispatcher(registry).dispatch(KEY, a_job())
