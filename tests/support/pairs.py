"""A simulated worker and the grpcio client of it, over a real socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.sglang import SGLangEngine
from sglr_dataplane.job import Chunk, Job, Sampling, new_job_id
from sglr_dataplane.sim.script import Play, Rule, Script
from sglr_dataplane.sim.settings import WorkerSettings
from sglr_dataplane.sim.worker import SimWorker


def a_job(*, n: int = 1, stream: bool = True, ids: tuple[int, ...] = (1, 2)) -> Job:
    """Return a job no other test has."""
    return Job(id=new_job_id(), model="sim", input_ids=ids, sampling=Sampling(n=n), stream=stream)


def plays(play: Play, *others: Play) -> Script:
    """Return a script that answers everything with *play*; choice by choice if there are more."""
    return Script(rules=(Rule(play=(play, *others)),))


@asynccontextmanager
async def a_pair(
    script: Script, *, deadlines: Deadlines | None = None, settings: WorkerSettings | None = None
) -> AsyncGenerator[tuple[SimWorker, SGLangEngine]]:
    """Run a worker with *script* and an engine that is its client."""
    async with SimWorker(settings, script) as worker:
        engine = SGLangEngine(worker.address, deadlines=deadlines)
        async with aclosing(engine):
            yield worker, engine


async def all_of(engine: SGLangEngine, job: Job) -> list[Chunk]:
    """Return every chunk of *job*."""
    async with aclosing(engine.generate(job)) as stream:
        return [chunk async for chunk in stream]


def ids(chunks: list[Chunk]) -> tuple[int, ...]:
    """Return all token ids of *chunks*."""
    return tuple(token for chunk in chunks for token in chunk.token_ids)
