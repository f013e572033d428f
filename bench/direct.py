"""The seed workload straight to the worker: what is left of every figure when there is no router."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from itertools import pairwise
from typing import TYPE_CHECKING

import uvloop
from tools import ANSWER, BODIES, Toolbox

from sglr_dataplane.cli.bench_figures import Record
from sglr_dataplane.cli.bench_load import arrivals
from sglr_dataplane.engine.lean import lean_engine
from sglr_dataplane.job import Job, Sampling, new_job_id
from sglr_dataplane.vocab import Vocabulary

if TYPE_CHECKING:
    from sglr_dataplane.engine.lean import LeanEngine


def measure(
    tools: Toolbox, port: int, requests: int, concurrency: int, rate: float
) -> list[Record]:
    """Return a record of each request."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(tools, port, requests, concurrency, rate))


async def _measure(
    tools: Toolbox, port: int, requests: int, concurrency: int, rate: float
) -> list[Record]:
    vocabulary = Vocabulary.from_dir(tools.model)
    engine = lean_engine(f"127.0.0.1:{port}")
    free = asyncio.Semaphore(concurrency)
    start = time.monotonic()

    async def one(due: float) -> Record:
        await asyncio.sleep(max(start + due - time.monotonic(), 0))
        async with free:
            return await _timed(engine, vocabulary, start)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(due)) for due in arrivals(requests, rate)]
    finally:
        await engine.aclose()
    return [task.result() for task in tasks]


async def _timed(engine: LeanEngine, vocabulary: Vocabulary, start: float) -> Record:
    prompt = tuple(range(1000, 1000 + BODIES["seed"].prompt))
    job = Job(new_job_id(), "qwen", prompt, Sampling(max_new_tokens=ANSWER))
    begin = time.monotonic()
    times: list[float] = []
    ids: list[int] = []
    async with aclosing(engine.generate(job)) as stream:
        async for chunk in stream:
            if chunk.token_ids:
                times.append(time.monotonic())
                ids += chunk.token_ids
    return Record(
        begin=begin - start,
        first=times[0] - begin,
        gaps=tuple(b - a for a, b in pairwise(times)),
        end=time.monotonic() - begin,
        input_tokens=len(prompt),
        output_tokens=len(ids),
        text=vocabulary.decode(ids),
    )
