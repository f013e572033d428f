"""What workers tell reaches the policies, from simulated workers over sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from sglr_dataplane.engine import Engine, TellingEngine
from sglr_dataplane.engine.lean import lean_engine
from sglr_dataplane.engine.sglang import SGLangEngine
from sglr_dataplane.engine.telling import CacheBatch, EngineLoad
from sglr_dataplane.errors import WorkerUnavailableError
from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_dataplane.fleet.listener import CacheFollowing, Listener, LoadPolling
from sglr_dataplane.fleet.policies.cache_aware import CacheAware as CacheAwarePolicy
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.job import Job, Sampling, new_job_id
from sglr_dataplane.sim.script import Play, RpcFault, Rule, Script, Status
from sglr_dataplane.sim.settings import WorkerSettings
from sglr_dataplane.sim.worker import SimWorker
from sglr_proto.backend import CacheAware, PolicyName, Routing, SGLangBackend
from sglr_proto.spec_routing import CacheSource
from support.engines import ScriptedEngine, some_facts
from support.fleets import KEY, a_backend, a_registry, a_snapshot, an_endpoint
from support.router import eventually

PROMPT = tuple(range(1000, 1256))
BOTH = pytest.mark.parametrize("kind", [lean_engine, SGLangEngine])


def a_telling_worker(*, page_size: int = 16, play: Play | None = None) -> SimWorker:
    """Return a worker that tells of its cache, in pages."""
    settings = WorkerSettings(model_name="m", kv_events=True, page_size=page_size)
    return SimWorker(settings, Script(rules=(Rule(play=play or Play(ids=(1, 2))),)))


def a_job(ids: tuple[int, ...] = PROMPT) -> Job:
    """Return a job with a prompt of *ids*."""
    return Job(id=new_job_id(), model="m", input_ids=ids, sampling=Sampling())


async def play(engine: Engine, job: Job) -> None:
    """Have *engine* do *job*."""
    async with aclosing(engine.generate(job)) as stream:
        async for _ in stream:
            pass


@asynccontextmanager
async def a_router(
    *workers: SimWorker, backend: SGLangBackend | None = None
) -> AsyncGenerator[Registry]:
    """Run what of a router listens to *workers*, with policy CacheAware by default."""
    registry = Registry(lambda endpoint, _backend: lean_engine(endpoint.address))
    endpoints = [
        an_endpoint(f"w{n}", host="127.0.0.1", port=int(worker.address.rpartition(":")[2]))
        for n, worker in enumerate(workers)
    ]
    routing = Routing(load_interval="100ms")
    registry.apply(a_snapshot(*endpoints, backend=backend or a_backend(routing=routing)))
    for worker in registry.workers():
        worker.became_ready(some_facts())
    task = asyncio.ensure_future(Listener(registry, rest=_soon).run())
    try:
        yield registry
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await registry.aclose()


async def _soon(_seconds: float) -> None:
    await asyncio.sleep(0.02)


def _policy(registry: Registry) -> CacheAwarePolicy:
    pool = registry.pool(KEY)
    assert pool is not None
    assert isinstance(pool.policy, CacheAwarePolicy)
    return pool.policy


async def test_a_router_finds_what_another_router_sent() -> None:
    """Two routers that share nothing: the second one's first job goes where the prompt is."""
    async with a_telling_worker() as one, a_telling_worker() as two:
        async with a_router(one, two) as first, a_router(one, two) as second:
            for registry in (first, second):
                told = _policy(registry).told
                await eventually(lambda told=told: told.knows("w0") and told.knows("w1"))  # type: ignore[misc]  # the loop's own
            # Twenty conversations: one hash in two would find a single one by luck.
            for n in range(20):
                stream = await Dispatcher(first).dispatch(KEY, a_job((n, *PROMPT)))
                async with aclosing(stream):
                    async for _ in stream:
                        pass
            told = _policy(second).told
            await eventually(lambda: len(told) >= 20 * (len(PROMPT) // 16))
            for n in range(20):
                stream = await Dispatcher(second).dispatch(KEY, a_job((n, *PROMPT, 7)))
                async with aclosing(stream):
                    async for _ in stream:
                        pass

        homes = [
            {
                worker.address
                for worker in (one, two)
                for request in worker.requests
                if request.tokenized.input_ids[0] == n
            }
            for n in range(20)
        ]
    assert [len(home) for home in homes] == [1] * 20


async def test_a_cache_that_is_flushed_is_known_to_be_empty() -> None:
    """What the worker says replaces what was sent there."""
    async with a_telling_worker() as worker, a_router(worker) as registry:
        told = _policy(registry).told
        await eventually(lambda: told.knows("w0"))
        await play(registry.workers()[0].engine, a_job())
        await eventually(lambda: len(told))
        worker.frontend.cache.clear()

        await eventually(lambda: not len(told))


async def test_news_that_were_lost_are_told_anew() -> None:
    """A gap in the numbers has the whole cache told again."""
    async with a_telling_worker() as worker, a_router(worker) as registry:
        told, engine = _policy(registry).told, registry.workers()[0].engine
        await eventually(lambda: told.knows("w0"))
        await play(engine, a_job())
        await eventually(lambda: len(told))
        before = worker.recorder.calls["SubscribeKvEvents"]
        worker.frontend.kv_events.lose()
        await play(engine, a_job(tuple(range(2000, 2256))))

        await eventually(lambda: len(told) == worker.frontend.kv_events.blocks)
        assert worker.recorder.calls["SubscribeKvEvents"] == before + 1


@BOTH
async def test_both_clients_go_on_from_a_number(kind: Callable[[str], Engine]) -> None:
    """From 0 with a snapshot, from a later one with what came since, until enough was heard."""
    async with a_telling_worker(page_size=64) as worker, aclosing(kind(worker.address)) as engine:
        assert isinstance(engine, TellingEngine)
        await play(engine, a_job())
        await play(engine, a_job(tuple(range(3000, 3128))))
        heard: list[CacheBatch] = []

        def take(batch: CacheBatch) -> bool:
            heard.append(batch)
            return False

        async with asyncio.timeout(10):
            ends = [await engine.follow_cache(start, take) for start in (0, 2)]

    assert ends == [True, True]
    assert [batch.piece for batch in heard] == [(0, 1), None]
    assert [len(batch.changes) for batch in heard] == [6, 1]
    assert heard[1].sequence == 2
    assert worker.frontend.kv_events.blocks == 6


@BOTH
async def test_both_clients_ask_for_loads_and_lives(kind: Callable[[str], Engine]) -> None:
    """A worker that answers says both, and the same life as long as it lives."""
    slow = Play(ids=(1, 2), first_delay="30s")
    async with a_telling_worker(play=slow) as worker, aclosing(kind(worker.address)) as engine:
        assert isinstance(engine, TellingEngine)
        idle = await engine.load()
        job = asyncio.ensure_future(play(engine, a_job()))
        await eventually(lambda: worker.scheduler.running)
        busy = await engine.load()
        lives = {await engine.life(), await engine.life()}
        job.cancel()
        await asyncio.wait({job})

    assert (idle, busy) == (EngineLoad(0, 0), EngineLoad(1, 0))
    assert len(lives) == 1
    assert lives != {""}


@BOTH
async def test_a_worker_that_does_not_tell_is_no_failure(kind: Callable[[str], Engine]) -> None:
    """UNIMPLEMENTED is a capability it lacks."""
    missing = RpcFault(status=Status(code="UNIMPLEMENTED", message="Method not found!"))
    script = Script(rpcs={"GetLoads": missing, "GetServerInfo": missing})
    async with SimWorker(None, script) as worker, aclosing(kind(worker.address)) as engine:
        assert isinstance(engine, TellingEngine)

        assert await engine.load() is None
        assert await engine.life() == ""
        assert not await engine.follow_cache(0, lambda _batch: True)


async def test_jobs_of_other_routers_count_as_load() -> None:
    """As soon as the worker says so, and no longer than it does."""
    slow = Play(ids=(1, 2), first_delay="30s")
    async with (
        a_telling_worker(play=slow) as worker,
        a_router(
            worker,
            backend=a_backend(
                routing=Routing(policy=PolicyName.LEAST_REQUEST, load_interval="100ms")
            ),
        ) as registry,
        aclosing(lean_engine(worker.address)) as other,
    ):
        (seen,) = registry.workers()
        job = asyncio.ensure_future(play(other, a_job()))
        await eventually(lambda: seen.load == 1)
        foreign = seen.in_flight
        job.cancel()
        await asyncio.wait({job})

        await eventually(lambda: seen.load == 0)
        assert foreign == 0
        assert worker.recorder.calls["SubscribeKvEvents"] == 0


async def test_nothing_is_asked_that_the_backend_does_not_want() -> None:
    """No loads with interval 0s, no events with source Sent."""
    routing = Routing(load_interval="0s", cache_aware=CacheAware(source=CacheSource.SENT))
    async with a_telling_worker() as worker, a_router(worker, backend=a_backend(routing=routing)):
        await asyncio.sleep(0.1)

        assert worker.recorder.calls["GetLoads"] == 0
        assert worker.recorder.calls["SubscribeKvEvents"] == 0


# --- one visit ----------------------------------------------------------------------------------


class Telling(ScriptedEngine):
    """An engine that tells what a test wrote down."""

    def __init__(self) -> None:
        """Tell nothing."""
        super().__init__()
        self.lives = ["1"]
        self.starts: list[int] = []
        self.news: list[CacheBatch | WorkerUnavailableError] = []
        self.loads: list[EngineLoad | WorkerUnavailableError | None] = []

    async def load(self) -> EngineLoad | None:
        """Tell the next load."""
        said = self.loads.pop(0)
        if isinstance(said, WorkerUnavailableError):
            raise said
        return said

    async def life(self) -> str:
        """Tell the next life; the last stays."""
        return self.lives.pop(0) if len(self.lives) > 1 else self.lives[0]

    async def follow_cache(self, start: int, take: Callable[[CacheBatch], bool]) -> bool:
        """Tell the news up to the next break."""
        self.starts.append(start)
        while self.news:
            batch = self.news.pop(0)
            if isinstance(batch, WorkerUnavailableError):
                raise batch
            if not take(batch):
                break
        return True


GONE = WorkerUnavailableError("The worker cannot be reached.")


async def test_news_go_on_after_a_break_unless_another_process_is_there() -> None:
    """Numbers mean nothing to a process that did not give them."""
    engine = Telling()
    registry = a_registry({"w0": engine}, backend=a_backend(routing=Routing()))
    following = CacheFollowing(registry.workers()[0], _policy(registry).told)
    engine.news = [CacheBatch(7, piece=(0, 1)), CacheBatch(8), GONE]
    await following.visit()
    await following.visit()
    engine.lives = ["2"]
    await following.visit()

    assert engine.starts == [0, 9, 0]


async def test_what_was_told_counts_no_more_when_news_keep_breaking_off() -> None:
    """Ten times in a row: what is sent there is a better guess."""
    engine = Telling()
    registry = a_registry({"w0": engine}, backend=a_backend(routing=Routing()))
    told = _policy(registry).told
    following = CacheFollowing(registry.workers()[0], told)
    engine.news = [CacheBatch(7, piece=(0, 1)), *[GONE] * 10]
    known: list[bool] = []
    for _ in range(10):
        await following.visit()
        known.append(told.knows("w0"))

    assert known == [True] * 9 + [False]


async def test_a_load_that_is_not_told_counts_no_more() -> None:
    """A worker that stops telling is as busy as this process makes it."""
    engine = Telling()
    registry = a_registry({"w0": engine})
    (worker,) = registry.workers()
    polling = LoadPolling(worker, lambda: 2.0)
    engine.loads = [EngineLoad(3, 2), GONE, EngineLoad(1, 0), None]
    seen: list[tuple[int, float]] = []
    for _ in range(4):
        delay = await polling.visit()
        seen.append((worker.load, delay))

    assert seen == [(5, 2.0), (0, 2.0), (1, 2.0), (0, 60.0)]


async def test_workers_of_another_protocol_are_left_in_peace() -> None:
    """They have no such questions."""
    registry = a_registry({"w0": ScriptedEngine()}, backend=a_backend(routing=Routing()))
    (worker,) = registry.workers()

    assert await LoadPolling(worker, lambda: 2.0).visit() == 60
    assert await CacheFollowing(worker, _policy(registry).told).visit() == 60


async def test_a_large_fleet_is_asked_less_often_and_not_in_step() -> None:
    """Two hundred questions a second in all: with four hundred workers each waits two seconds."""
    waits: list[float] = []
    full = asyncio.Event()

    async def rest(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 400:
            full.set()
        await asyncio.Event().wait()

    engines: dict[str, ScriptedEngine] = {f"w{n}": Telling() for n in range(400)}
    for engine in engines.values():
        assert isinstance(engine, Telling)
        engine.loads = [EngineLoad(0, 0)]
    routing = Routing(policy=PolicyName.LEAST_REQUEST, load_interval="500ms")
    registry = a_registry(engines, backend=a_backend(routing=routing))
    chances = iter([0.0, 0.5] * 200)
    task = asyncio.ensure_future(Listener(registry, rest=rest, chance=lambda: next(chances)).run())
    async with asyncio.timeout(10):
        await full.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert {round(wait, 6) for wait in waits} == {1.8, 2.0}
