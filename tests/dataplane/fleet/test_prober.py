"""The prober: who is ready, who is not, and what it takes to change that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from sglr_dataplane.errors import (
    DeadlineExceededError,
    RouterError,
    WorkerError,
    WorkerUnavailableError,
)
from sglr_dataplane.fleet.prober import Checkup, Prober, resting
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.fleet.schedule import Schedule
from sglr_dataplane.fleet.worker import Worker, WorkerState
from support.engines import FakeClock, ScriptedEngine, some_facts
from support.fleets import KEY, a_backend, a_registry, a_snapshot, an_endpoint

DOWN = WorkerUnavailableError("The worker cannot be reached.")
LATE = DeadlineExceededError("The worker did not answer a health check within 2 s.")
SCHEDULE = Schedule(interval=5, failures=3, successes=2, facts=60, starting=3, soonest=0.2)


class Turns:
    """A rest that lasts until somebody wakes the prober, and tells how long it would have been."""

    def __init__(self) -> None:
        self._rests: asyncio.Queue[float] = asyncio.Queue()

    async def rest(self, wake: asyncio.Event, seconds: float) -> None:
        """Rest."""
        self._rests.put_nowait(seconds)
        await wake.wait()

    async def resting(self) -> float:
        """Return how long the prober is about to rest, as soon as it is."""
        async with asyncio.timeout(2):
            return await self._rests.get()


def a_checkup(engine: ScriptedEngine, clock: FakeClock | None = None) -> tuple[Worker, Checkup]:
    """Return a pending worker of *engine* and its checkup."""
    (worker,) = a_registry({"w1": engine}, ready=False).workers()
    return worker, Checkup(worker, SCHEDULE, clock or FakeClock())


async def run(checkup: Checkup, times: int = 1) -> None:
    """Run *checkup* so many times."""
    for _ in range(times):
        await checkup.run()


async def test_a_healthy_worker_is_ready_when_its_facts_are_known() -> None:
    """One good probe and its facts make a new worker ready."""
    worker, checkup = a_checkup(ScriptedEngine())

    await checkup.run()

    assert worker.state is WorkerState.READY
    assert worker.facts == some_facts()
    assert worker.problem is None


async def test_a15_a_slow_start_is_not_a_failure() -> None:
    """A15 (b): a worker stays pending however long it takes, and is ready when it says so."""
    worker, checkup = a_checkup(ScriptedEngine(health=[*[DOWN] * 50, *[False] * 50, True]))

    await run(checkup, 100)
    pending = worker.state
    await checkup.run()

    assert pending is WorkerState.PENDING
    assert worker.state is WorkerState.READY


async def test_a15_a_slow_start_is_asked_for_soon_and_then_less_often() -> None:
    """A15 (b): the first probes follow each other quickly, later ones at a steady pace."""
    _, checkup = a_checkup(ScriptedEngine(health=[DOWN]))
    delays: list[float] = []
    for _ in range(6):
        await checkup.run()
        delays.append(checkup.delay)

    assert delays == pytest.approx([0.4, 0.8, 1.6, 3.0, 3.0, 3.0])


async def test_a15_one_lost_probe_is_not_the_end() -> None:
    """A15 (d): two failures make a worker suspect, not unhealthy; a good probe clears it."""
    worker, checkup = a_checkup(ScriptedEngine(health=[True, LATE, LATE, True]))
    await run(checkup, 3)
    doubted = (worker.state, worker.suspect)
    await checkup.run()

    assert doubted == (WorkerState.READY, True)
    assert (worker.state, worker.suspect) == (WorkerState.READY, False)


async def test_failures_must_be_in_a_row() -> None:
    """Good probes in between start the count again."""
    worker, checkup = a_checkup(ScriptedEngine(health=[True, LATE, LATE, True, LATE, LATE, True]))

    await run(checkup, 7)

    assert worker.state is WorkerState.READY


async def test_enough_failures_take_a_worker_out_and_enough_successes_bring_it_back() -> None:
    """Three failures down, two successes up."""
    worker, checkup = a_checkup(ScriptedEngine(health=[True, DOWN, DOWN, DOWN, True, True]))
    states: list[str] = []
    for _ in range(6):
        await checkup.run()
        states.append(str(worker.state))

    assert states == ["ready", "ready", "ready", "unhealthy", "unhealthy", "ready"]


async def test_a15_a_worker_that_answers_jobs_is_alive() -> None:
    """A15 (a): probes that a busy worker is late for do not count while its jobs are answered."""
    clock = FakeClock()
    worker, checkup = a_checkup(ScriptedEngine(health=[True, LATE]), clock)
    await checkup.run()
    for _ in range(10):
        clock.pass_by(5)
        worker.answered(clock() - 1, 0.2)
        await checkup.run()
    busy = (worker.state, worker.suspect)
    clock.pass_by(5)
    await run(checkup, 3)

    assert busy == (WorkerState.READY, False)
    assert worker.state is WorkerState.UNHEALTHY


async def test_a_worker_that_says_it_does_not_serve_is_believed() -> None:
    """NOT_SERVING is the worker's own word: recent answers do not outweigh it."""
    clock = FakeClock()
    worker, checkup = a_checkup(ScriptedEngine(health=[True, False]), clock)
    await checkup.run()
    worker.answered(clock(), 0.2)
    await run(checkup, 3)

    assert worker.state is WorkerState.UNHEALTHY
    assert worker.problem == "The worker reports that it is not serving."


async def test_facts_that_cannot_be_had_are_asked_for_again() -> None:
    """A healthy worker that does not say what it serves is pending, and asked each time."""
    broken = WorkerError("The worker answered with an error (INTERNAL).")
    engine = ScriptedEngine(facts=[*[broken] * 20, some_facts()])
    worker, checkup = a_checkup(engine)

    await run(checkup, 20)
    pending, problem = worker.state, worker.problem
    await checkup.run()

    assert pending is WorkerState.PENDING
    assert problem is not None
    assert "does not say what it serves" in problem
    assert worker.state is WorkerState.READY


async def test_a_wrong_model_is_not_used_and_says_so() -> None:
    """A worker that serves something else takes no job, and its problem names both models."""
    worker, checkup = a_checkup(ScriptedEngine(facts=[some_facts("llama")]))

    await checkup.run()

    assert not worker.is_ready
    assert worker.problem == "The worker serves 'llama', but its backend is for 'm'."


async def test_a_wrong_model_is_used_once_its_backend_wants_it() -> None:
    """A name that is added to the backend is looked at on the next probe."""
    engine = ScriptedEngine(facts=[some_facts("llama")])
    registry = a_registry({"w1": engine}, ready=False)
    (worker,) = registry.workers()
    checkup = Checkup(worker, SCHEDULE, FakeClock())
    await checkup.run()

    backend = a_backend(aliases=("llama",))
    registry.apply(a_snapshot(an_endpoint("w1"), backend=backend, version=2))
    await run(checkup, 2)

    assert worker.is_ready


async def test_a_worker_that_fails_inspection_gets_no_jobs_until_it_passes() -> None:
    """Whoever inspects has the last word, at each probe, and hears whether it may be another."""
    engine = ScriptedEngine(health=[True, True, LATE, True])
    (worker,) = a_registry({"w1": engine}, ready=False).workers()
    verdicts: list[str | None] = ["Its vocabulary is another's.", None, None]
    heard: list[bool] = []

    async def inspect(_worker: Worker, again: bool) -> str | None:
        heard.append(again)
        return verdicts.pop(0)

    checkup = Checkup(worker, SCHEDULE, FakeClock(), inspect)
    await checkup.run()
    refused = (worker.state, worker.problem, worker.may_still_serve)
    await run(checkup, 3)

    assert refused == (WorkerState.UNHEALTHY, "Its vocabulary is another's.", False)
    assert heard == [True, False, True]


async def test_a_worker_that_cannot_be_inspected_now_stays_pending() -> None:
    """It is neither used nor refused, and is asked again at the next probe."""
    (worker,) = a_registry({"w1": ScriptedEngine()}, ready=False).workers()
    answers: list[RouterError | None] = [WorkerError("It does not offer its tokenizer."), None]

    async def inspect(_worker: Worker, again: bool) -> str | None:
        assert again
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return None

    checkup = Checkup(worker, SCHEDULE, FakeClock(), inspect)
    await checkup.run()
    before = (worker.state, worker.problem)
    await checkup.run()

    assert before == (WorkerState.PENDING, "It does not offer its tokenizer.")
    assert worker.state is WorkerState.READY


async def test_facts_are_asked_for_now_and_then() -> None:
    """A healthy worker is not asked at every probe, but after a minute it is."""
    clock = FakeClock()
    engine = ScriptedEngine()
    _, checkup = a_checkup(engine, clock)
    await run(checkup, 5)
    before = engine.asked
    clock.pass_by(60)
    await run(checkup, 5)

    assert (before, engine.asked) == (1, 2)


async def test_a_healthy_worker_keeps_its_facts_when_it_is_late_with_new_ones() -> None:
    """A look at the facts that fails takes nobody out who is healthy."""
    clock = FakeClock()
    worker, checkup = a_checkup(ScriptedEngine(facts=[some_facts(), LATE]), clock)
    await checkup.run()
    clock.pass_by(60)
    await checkup.run()

    assert worker.is_ready
    assert worker.facts == some_facts()
    assert not worker.suspect


@pytest.mark.parametrize("how", ["a failed probe", "a dropped connection"])
async def test_a_worker_that_restarts_in_place_is_noticed(how: str) -> None:
    """After any failure the worker is asked anew what it serves, before it is trusted again."""
    health: list[bool | RouterError] = [True, DOWN, True] if how == "a failed probe" else [True]
    engine = ScriptedEngine(health=health, facts=[some_facts(), some_facts("llama")])
    worker, checkup = a_checkup(engine)
    await checkup.run()
    if how == "a failed probe":
        await checkup.run()
    else:
        worker.suspected()
    await checkup.run()

    assert not worker.is_ready
    assert worker.problem is not None
    assert "'llama'" in worker.problem


@asynccontextmanager
async def a_running_prober(registry: Registry) -> AsyncGenerator[Turns]:
    """Run a prober over *registry* whose rests end when it is woken."""
    turns = Turns()
    prober = Prober(
        registry,
        schedule_of=lambda _: SCHEDULE,
        clock=FakeClock(),
        vary=lambda: 0.75,
        rest=turns.rest,
    )
    task = asyncio.ensure_future(prober.run())
    try:
        yield turns
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_every_worker_is_tended_those_that_come_later_too() -> None:
    """Workers of the first and of later snapshots become ready."""
    registry = Registry(lambda _endpoint, _backend: ScriptedEngine())
    registry.apply(a_snapshot(an_endpoint("a")))
    async with a_running_prober(registry) as turns:
        await turns.resting()
        registry.apply(a_snapshot(an_endpoint("a"), an_endpoint("b"), version=2))
        await turns.resting()

        assert [worker.is_ready for worker in registry.workers()] == [True, True]


async def test_probes_of_many_routers_are_not_in_step() -> None:
    """The interval varies by a tenth to either side."""
    async with a_running_prober(a_registry({"a": ScriptedEngine()}, ready=False)) as turns:
        assert await turns.resting() == pytest.approx(5 * 1.05)


async def test_a_dropped_connection_has_the_worker_probed_at_once() -> None:
    """What traffic learns does not wait for the next interval."""
    engine = ScriptedEngine(health=[True, DOWN])
    registry = a_registry({"a": engine}, ready=False)
    async with a_running_prober(registry) as turns:
        await turns.resting()
        registry.workers()[0].suspected()
        await turns.resting()

        assert engine.probes == 2


async def test_a_worker_that_left_is_closed_after_its_last_stream() -> None:
    """The connection stays while a stream runs, then it is closed and the worker forgotten."""
    engine = ScriptedEngine()
    registry = a_registry({"a": engine})
    (worker,) = registry.workers()
    worker.begin()
    async with a_running_prober(registry) as turns:
        await turns.resting()
        registry.apply(a_snapshot(version=2))
        await turns.resting()
        open_before = not engine.closed.is_set()
        probes = engine.probes
        worker.end(worker.engine)
        async with asyncio.timeout(2):
            await engine.closed.wait()
        await asyncio.sleep(0)

        assert open_before
        assert engine.probes == probes
        assert registry.tended() == ()


async def test_a_probe_that_breaks_does_not_end_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bug in one engine is logged with its traceback; every worker is still tended."""

    class Broken(ScriptedEngine):
        async def is_serving(self) -> bool:
            raise RuntimeError("a bug")

    registry = a_registry({"a": Broken(), "b": ScriptedEngine()}, ready=False)
    async with a_running_prober(registry) as turns:
        await turns.resting()
        await turns.resting()

        assert [worker.is_ready for worker in registry.workers()] == [False, True]
    assert "probe broke" in caplog.messages


async def test_a15_a_router_without_workers_becomes_ready_with_the_first() -> None:
    """A15 (c): nobody, then only dead ones, then one that answers."""
    engines = {"dead": ScriptedEngine(health=[DOWN]), "late": ScriptedEngine(health=[DOWN, True])}
    registry = Registry(lambda endpoint, _backend: engines[endpoint.id])
    async with a_running_prober(registry) as turns:
        empty = registry.is_ready
        registry.apply(a_snapshot(*map(an_endpoint, engines)))
        await turns.resting()
        await turns.resting()
        dead = registry.is_ready
        for worker in registry.workers(KEY):
            worker.wake()
        await turns.resting()
        await turns.resting()

        assert (empty, dead, registry.is_ready) == (False, False, True)


async def test_a_rest_ends_when_somebody_wakes_it_and_not_before_the_soonest() -> None:
    """A wake cuts the interval short, but probes never follow each other faster than allowed."""
    rest = resting(0.05)
    wake = asyncio.Event()
    wake.set()
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with asyncio.timeout(5):
        await rest(wake, 60)
        woken = loop.time() - started
        wake.clear()
        await rest(wake, 0.1)
        slept = loop.time() - started - woken

    assert woken >= 0.045
    assert slept >= 0.095
