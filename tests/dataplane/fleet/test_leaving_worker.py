"""Workers that leave keep their jobs for a while, and not for ever."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
import yaml

from sglr_dataplane.errors import WorkerUnavailableError
from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_dataplane.fleet.prober import Prober
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.job import Chunk, Job
from sglr_dataplane.sim.script import Play
from sglr_proto.snapshot import EndpointState
from sglr_proto.spec_resilience import Drain, DrainEnd
from support.dispatching import a_dispatcher, in_flight
from support.engines import HANG, FakeClock, ScriptedEngine, ScriptedStream, Step, some_facts
from support.fleets import KEY, a_backend, a_job, a_snapshot, an_endpoint
from support.router import a_worker, eventually, manifest, running_router

MINUTE = Drain(timeout="60s")


class Closable(ScriptedEngine):
    """An engine whose hanging streams end when it is closed, as a connection's do."""

    def generate(self, job: Job) -> ScriptedStream:
        """Start the next act."""
        stream = _Closable(self, job, [1, HANG])
        self.streams.append(stream)
        return stream


class _Closable(ScriptedStream):
    def __init__(self, engine: Closable, job: Job, act: list[Step]) -> None:
        super().__init__(engine, job, act)
        self._closed = engine.closed

    async def _play(self, step: Step) -> Chunk:
        if step != HANG:
            return await super()._play(step)
        await self._closed.wait()
        raise WorkerUnavailableError("The worker left before its answer was complete.")


class Fleet:
    """One backend whose worker w1 is about to leave."""

    def __init__(self, drain: Drain) -> None:
        """Have a ready worker."""
        self.clock = FakeClock()
        self.backend = a_backend(drain=drain)
        self.made: list[Closable] = []
        self.registry = Registry(self._make, clock=self.clock)
        self.registry.apply(a_snapshot(an_endpoint("w1"), backend=self.backend))
        (self.worker,) = self.registry.workers()
        self.worker.became_ready(some_facts())
        self.rests: asyncio.Queue[float] = asyncio.Queue()

    def _make(self, *_: object) -> Closable:
        self.made.append(Closable())
        return self.made[-1]

    async def _rest(self, wake: asyncio.Event, seconds: float) -> None:
        self.rests.put_nowait(seconds)
        await wake.wait()

    @asynccontextmanager
    async def tended(self) -> AsyncGenerator[Dispatcher]:
        """Have a prober tend it."""
        prober = Prober(self.registry, clock=self.clock, vary=lambda: 0.5, rest=self._rest)
        task = asyncio.ensure_future(prober.run())
        try:
            yield a_dispatcher(self.registry, clock=self.clock)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def rested(self) -> float:
        """Return how long the prober is about to rest, as soon as it is."""
        async with asyncio.timeout(5):
            return await self.rests.get()

    def leave(self, how: str) -> None:
        """Be terminated, or no longer listed."""
        if how == "terminates":
            here = (an_endpoint("w1", state=EndpointState.DRAINING),)
            self.registry.apply(a_snapshot(*here, backend=self.backend, version=2))
        else:
            self.registry.apply(a_snapshot(backend=self.backend, version=2))


LEAVING = pytest.mark.parametrize("how", ["terminates", "is gone"])


@LEAVING
async def test_a_stream_ends_when_its_workers_time_to_drain_is_over(how: str) -> None:
    """Not before; then as if the worker had gone away, and nothing stays in flight."""
    fleet = Fleet(MINUTE)
    async with fleet.tended() as dispatcher:
        await fleet.rested()
        async with aclosing(await dispatcher.dispatch(KEY, a_job())) as stream:
            await anext(stream)
            fleet.leave(how)
            rest = asyncio.ensure_future(anext(stream))
            fleet.worker.wake()
            within = min(await fleet.rested(), 60.0)
            fleet.clock.pass_by(59)
            fleet.worker.wake()
            last = await fleet.rested()
            early = rest.done()
            fleet.clock.pass_by(1)
            fleet.worker.wake()

            with pytest.raises(WorkerUnavailableError):
                await asyncio.wait_for(rest, 5)

    assert within <= 5.0
    assert last == pytest.approx(1.0)
    assert not early
    assert in_flight(fleet.registry) == 0


async def test_a_worker_that_terminates_has_a_new_client_after_the_cut() -> None:
    """It may still be the last resort of somebody."""
    fleet = Fleet(MINUTE)
    async with fleet.tended() as dispatcher:
        await fleet.rested()
        async with aclosing(await dispatcher.dispatch(KEY, a_job())) as stream:
            await anext(stream)
            fleet.leave("terminates")
            fleet.clock.pass_by(60)
            fleet.worker.wake()
            with pytest.raises(WorkerUnavailableError):
                await asyncio.wait_for(anext(stream), 5)

    assert [engine.closed.is_set() for engine in fleet.made] == [True, False]
    assert fleet.worker.engine is fleet.made[1]


async def test_streams_go_on_for_ever_where_the_backend_wants_it() -> None:
    """With onTimeout Keep."""
    fleet = Fleet(Drain(timeout="0s", on_timeout=DrainEnd.KEEP))
    fleet.leave("terminates")

    assert fleet.worker.overdue_in(fleet.clock() + 1e6) is None


async def test_a_worker_that_stays_after_all_has_no_time_to_drain() -> None:
    """An endpoint that is ready again is as it was."""
    fleet = Fleet(MINUTE)
    fleet.leave("terminates")
    leaving = fleet.worker.overdue_in(fleet.clock())
    fleet.registry.apply(a_snapshot(an_endpoint("w1"), backend=fleet.backend, version=3))

    assert leaving == 60.0
    assert fleet.worker.overdue_in(fleet.clock()) is None


async def test_a_client_is_told_when_its_worker_is_taken_off_the_list(tmp_path: Path) -> None:
    """An error frame and [DONE] within the drain's time, over sockets."""
    endless = Play(pieces=("one ", *["more "] * 500), delay="50ms")
    async with a_worker(endless) as leaving, a_worker(Play(text="Yes.")) as staying:

        def written(*workers: str) -> str:
            document = yaml.safe_load(manifest(*workers))
            document["spec"]["drain"] = {"timeout": "300ms"}
            return json.dumps(document)

        async with (
            running_router(tmp_path, written(leaving.address)) as router,
            router.http.stream(
                "POST",
                "/v1/chat/completions",
                json={
                    "model": "m",
                    "stream": True,
                    "messages": [{"role": "user", "content": "go"}],
                },
            ) as answer,
        ):
            lines: list[str] = []
            async for line in answer.aiter_lines():
                lines.append(line)
                if "one" in line:
                    router.manifest.write_text(written(staying.address))
            await eventually(lambda: leaving.cancelled)

    said = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert said[-1]["error"]["code"] == "worker_unavailable"
    assert [line for line in lines if line][-1] == "data: [DONE]"
