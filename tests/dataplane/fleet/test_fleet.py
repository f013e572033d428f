"""The whole fleet over sockets: simulated workers, the grpcio client, prober and dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from ports import reserved_port

from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.lean import LeanEngine, lean_engine
from sglr_dataplane.engine.sglang import SGLangEngine
from sglr_dataplane.errors import NoAvailableWorkersError, RouterError
from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_dataplane.fleet.prober import Prober
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.fleet.schedule import Schedule
from sglr_dataplane.sim.script import Incident, Play, Rule, Script
from sglr_dataplane.sim.settings import WorkerSettings
from sglr_dataplane.sim.worker import SimWorker
from sglr_proto.snapshot import Endpoint, Snapshot
from support.fleets import KEY, a_backend, a_job, a_snapshot, an_endpoint

FAST = Schedule(interval=0.1, soonest=0.02, failures=2, facts=0.2)


def a_snapshot_of(*workers: SimWorker, version: int = 1, model: str = "m") -> Snapshot:
    """Return a snapshot with an endpoint for each of *workers*, in their order."""
    endpoints: list[Endpoint] = []
    for number, worker in enumerate(workers):
        host, _, port = worker.address.rpartition(":")
        endpoints.append(an_endpoint(f"w{number}", host=host, port=int(port)))
    return a_snapshot(*endpoints, backend=a_backend(model=model), version=version)


@asynccontextmanager
async def a_fleet(
    *workers: SimWorker,
    model: str = "m",
    engine: type[SGLangEngine] | Callable[..., LeanEngine] = SGLangEngine,
) -> AsyncGenerator[Registry]:
    """Run a fleet of *workers*, called by clients of the kind *engine*."""
    deadlines = Deadlines(connect=0.3, probe=0.3, facts=0.3)
    registry = Registry(lambda endpoint, _backend: engine(endpoint.address, deadlines=deadlines))
    registry.apply(a_snapshot_of(*workers, model=model))
    task = asyncio.ensure_future(Prober(registry, schedule_of=lambda _: FAST).run())
    try:
        yield registry
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await registry.aclose()


async def until(holds: Callable[[], bool]) -> None:
    """Return as soon as *holds* is true; fail after five seconds."""
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110  # states, not events, are what is promised
            await asyncio.sleep(0.005)


def playing(play: Play, *, model: str = "m", port: int = 0) -> SimWorker:
    """Return a worker that answers everything with *play*."""
    return SimWorker(WorkerSettings(model_name=model, port=port), Script(rules=(Rule(play=play),)))


async def answer(registry: Registry) -> tuple[int, ...]:
    """Return the token ids of one job."""
    async with aclosing(await Dispatcher(registry).dispatch(KEY, a_job())) as stream:
        return tuple([token async for chunk in stream for token in chunk.token_ids])


async def test_jobs_go_round_and_survive_the_loss_of_a_worker() -> None:
    """Two workers take turns; when one is killed every job is answered by the other."""
    async with (
        playing(Play(ids=(1,))) as one,
        playing(Play(ids=(2,))) as two,
        a_fleet(one, two) as registry,
    ):
        await until(lambda: registry.count(KEY).ready == 2)
        before = {await answer(registry) for _ in range(2)}
        await one.crash()
        after = [await answer(registry) for _ in range(6)]
        await until(lambda: registry.count(KEY).ready == 1)

        assert before == {(1,), (2,)}
        assert after == [(2,)] * 6
        assert [worker.in_flight for worker in registry.workers()] == [0, 0]


async def test_a_job_that_ends_engines_ends_two_at_most() -> None:
    """A request that kills whoever takes it is replayed once and then refused."""
    killer = Play(ids=(1,), incidents=(Incident(die="exit"),))
    async with (
        playing(killer) as one,
        playing(killer) as two,
        playing(killer) as three,
        a_fleet(one, two, three) as registry,
    ):
        await until(lambda: registry.count(KEY).ready == 3)
        with pytest.raises(NoAvailableWorkersError):
            await answer(registry)

        deaths = [len(worker.recorder.deaths) for worker in (one, two, three)]
        assert sorted(deaths) == [0, 1, 1]


async def test_another_model_in_a_workers_place_is_noticed() -> None:
    """A worker that restarts with another model gets no job; back with the right one, it does."""
    port = reserved_port()
    async with playing(Play(ids=(1,)), port=port) as first, a_fleet(first) as registry:
        (worker,) = registry.workers()
        await until(lambda: worker.is_ready)
        await first.stop(0)
        async with playing(Play(ids=(9,)), model="other", port=port):
            await until(lambda: "other" in (worker.problem or ""))
            wrong = registry.candidates(KEY)
        async with playing(Play(ids=(3,)), port=port):
            await until(lambda: worker.is_ready and not worker.suspect)

            assert wrong == ()
            assert await answer(registry) == (3,)


async def test_a_model_that_took_a_workers_place_is_never_asked() -> None:
    """From the moment the connection is lost no job goes there before its facts were read again."""
    port = reserved_port()
    async with (
        playing(Play(ids=(1,)), port=port) as first,
        a_fleet(first, engine=lean_engine) as registry,
    ):
        await until(lambda: registry.count(KEY).ready == 1)
        before = await answer(registry)
        await first.crash()
        await until(lambda: registry.count(KEY).ready == 0)
        async with playing(Play(ids=(9,)), model="other", port=port) as other:
            for _ in range(20):
                with pytest.raises(NoAvailableWorkersError):
                    await answer(registry)
                await asyncio.sleep(0)
            asked = other.recorder.received
        async with playing(Play(ids=(3,)), port=port):
            await until(lambda: registry.count(KEY).ready == 1)
            after = await answer(registry)

    assert (before, asked, after) == ((1,), [], (3,))


async def test_a_stream_outlives_the_snapshot_that_drops_its_worker() -> None:
    """A worker that leaves finishes its stream; then its connection is closed."""
    async with (
        playing(Play(ids=tuple(range(1, 9)), delay="20ms")) as leaver,
        a_fleet(leaver) as registry,
    ):
        await until(lambda: registry.count(KEY).ready == 1)
        (worker,) = registry.workers()
        stream = await Dispatcher(registry).dispatch(KEY, a_job())
        registry.apply(a_snapshot(version=2))
        async with aclosing(stream):
            ids = tuple([token async for chunk in stream for token in chunk.token_ids])
        await until(lambda: registry.tended() == ())

        assert ids == tuple(range(1, 9))
        with pytest.raises(RouterError, match="left"):
            await worker.engine.is_serving()
