"""Probes that have a worker generate a token: only on request, and never what traffic proves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

import pytest

from sglr_dataplane.engine import Engine, GeneratingEngine
from sglr_dataplane.engine.lean import lean_engine
from sglr_dataplane.engine.sglang import SGLangEngine
from sglr_dataplane.errors import DeadlineExceededError
from sglr_dataplane.fleet.prober import Checkup
from sglr_dataplane.fleet.schedule import Schedule
from sglr_dataplane.fleet.worker import Worker, WorkerState
from sglr_dataplane.sim.script import RpcFault, Script, Status
from sglr_dataplane.sim.worker import SimWorker
from support.engines import FakeClock, ScriptedEngine
from support.fleets import a_registry

EVERY_MINUTE = Schedule(interval=5, failures=2, generation=60)
LATE = DeadlineExceededError("The worker did not answer within 25 s.")


def _checkup(
    engine: ScriptedEngine, schedule: Schedule = EVERY_MINUTE
) -> tuple[Worker, Checkup, FakeClock]:
    clock = FakeClock()
    (worker,) = a_registry({"w1": engine}, ready=False).workers()
    return worker, Checkup(worker, schedule, clock), clock


async def test_no_token_is_asked_for_unless_the_backend_wants_it() -> None:
    """The default costs no GPU."""
    engine = ScriptedEngine()
    worker, checkup, _ = _checkup(engine, replace(EVERY_MINUTE, generation=None))

    await checkup.run()

    assert worker.is_ready
    assert engine.generated == 0


async def test_a_token_is_asked_for_at_first_and_then_once_in_the_interval() -> None:
    """However often the cheap probes come."""
    engine = ScriptedEngine()
    worker, checkup, clock = _checkup(engine)
    for _ in range(25):
        await checkup.run()
        clock.pass_by(5)

    assert worker.is_ready
    assert engine.generated == 3  # at 0, 60 and 120 s


async def test_a_worker_that_answers_jobs_is_not_asked() -> None:
    """Its answers are tokens already."""
    engine = ScriptedEngine()
    worker, checkup, clock = _checkup(engine)
    for _ in range(25):
        worker.answered(clock(), 0.2)
        await checkup.run()
        clock.pass_by(5)

    assert engine.generated == 0


@pytest.mark.parametrize("said", [False, LATE])
async def test_a_worker_that_generates_nothing_goes_down(
    said: bool | DeadlineExceededError,
) -> None:
    """As after any failed probes: when as many in a row fail as it takes; one that does is well."""
    engine = ScriptedEngine()
    worker, checkup, clock = _checkup(engine)
    await checkup.run()
    states: list[str] = []
    engine.generations = [said, said, True]
    for _ in range(3):
        clock.pass_by(60)
        await checkup.run()
        states.append(worker.state)

    assert states == [WorkerState.READY, WorkerState.UNHEALTHY, WorkerState.READY]


async def test_a15_a_worker_that_answers_while_its_probe_is_late_is_alive() -> None:
    """A15 (a): HealthCheck waits behind long prefills while jobs are answered: no failure."""
    engine = ScriptedEngine()
    worker, checkup, clock = _checkup(engine)
    await checkup.run()

    async def late() -> bool:
        clock.pass_by(25)
        worker.answered(clock(), 0.2)
        raise LATE

    engine.generates = late  # type: ignore[method-assign]  # a probe during which a job is answered
    for _ in range(4):
        clock.pass_by(60)
        await checkup.run()

    assert worker.state is WorkerState.READY
    assert worker.problem is None


@pytest.mark.parametrize("kind", [lean_engine, SGLangEngine])
async def test_both_clients_call_the_schedulers_health_check(
    kind: Callable[[str], Engine],
) -> None:
    """True when a token came; the worker's own error when it refuses."""
    script = Script(rpcs={})
    async with SimWorker(None, script) as worker, aclosing(kind(worker.address)) as engine:
        assert isinstance(engine, GeneratingEngine)
        async with asyncio.timeout(10):
            generates = await engine.generates()

    assert generates
    assert worker.recorder.calls["HealthCheck"] == 1


@pytest.mark.parametrize("kind", [lean_engine, SGLangEngine])
async def test_a_health_check_that_fails_is_an_error(kind: Callable[[str], Engine]) -> None:
    """Which the prober counts."""
    fault = RpcFault(status=Status(code="DEADLINE_EXCEEDED", message="too slow"))
    script = Script(rpcs={"HealthCheck": fault})
    async with SimWorker(None, script) as worker, aclosing(kind(worker.address)) as engine:
        assert isinstance(engine, GeneratingEngine)
        with pytest.raises(DeadlineExceededError):
            await engine.generates()
