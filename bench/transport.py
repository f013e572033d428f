"""What one message of a worker costs the router: lean transport against grpcio.

``python bench/transport.py [--rounds 5]`` prints microseconds of CPU a message, of the client's
process alone, medians of interleaved rounds. "batch" is what the hot path uses, "one by one" is
``async for``; "grpcio" is the reference client. The kernel's share of reading the socket is in all
of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import uvloop

from sglr_dataplane.engine import Engine
from sglr_dataplane.engine.lean import LeanEngine, lean_engine
from sglr_dataplane.engine.sglang import SGLangEngine
from sglr_dataplane.job import Job, Sampling, new_job_id

PROMPT = tuple(range(1000, 1500))


@dataclass(frozen=True)
class Case:
    """How much is sent, and how fast."""

    name: str
    streams: int
    tokens: int
    beat: float
    """Seconds between a stream's tokens; 0 floods."""


CASES = (
    Case("flood, 32 streams", 32, 2_000, 0.0),
    Case("500 requests of one token", 500, 1, 0.0),
    Case("paced, 200 streams on one 26 ms beat", 200, 100, 0.026),
)


def a_job() -> Job:
    """Return a job of 500 prompt tokens."""
    return Job(new_job_id(), "m", PROMPT, Sampling(max_new_tokens=1_000))


async def one_by_one(engine: Engine, case: Case) -> int:
    """Return the tokens of all streams, read by ``async for``."""

    async def read() -> int:
        count = 0
        async with aclosing(engine.generate(a_job())) as stream:
            async for chunk in stream:
                count += len(chunk.token_ids)
        return count

    return sum(await asyncio.gather(*(read() for _ in range(case.streams))))


async def in_batches(engine: LeanEngine, case: Case) -> int:
    """Return the tokens of all streams, taken by a callback a read."""
    loop = asyncio.get_running_loop()

    def begin() -> asyncio.Future[int]:
        over: asyncio.Future[int] = loop.create_future()
        stream = engine.generate(a_job())
        count = 0

        def take() -> None:
            nonlocal count
            for chunk in stream.drain():
                count += len(chunk.token_ids)
            if stream.is_over and not over.done():
                over.set_result(count)

        stream.start(take)
        return over

    return sum(await asyncio.gather(*(begin() for _ in range(case.streams))))


async def measure(run: Callable[[], Awaitable[int]], case: Case) -> float:
    """Return CPU microseconds a message."""
    before = time.process_time()
    count = await run()
    spent = time.process_time() - before
    if count != case.streams * case.tokens:
        raise RuntimeError(f"{count} tokens came, not {case.streams * case.tokens}.")
    return spent / count * 1e6


async def one_round(address: str, case: Case) -> dict[str, float]:
    """Return the figure of each client."""
    lean, reference = lean_engine(address), SGLangEngine(address)
    async with aclosing(lean), aclosing(reference):
        return {
            "lean, batch": await measure(lambda: in_batches(lean, case), case),
            "lean, one by one": await measure(lambda: one_by_one(lean, case), case),
            "grpcio": await measure(lambda: one_by_one(reference, case), case),
        }


def run_case(case: Case, rounds: int) -> dict[str, float]:
    """Return the medians of *rounds* against a worker of its own."""
    worker = Path(__file__).with_name("flood_worker.py")
    command = [sys.executable, str(worker), str(case.tokens), str(case.beat)]
    with subprocess.Popen(  # noqa: S603  # this interpreter and a file of ours
        command, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            port = process.stdout.readline().strip() if process.stdout is not None else ""
            address = f"127.0.0.1:{port}"
            figures = [uvloop.run(one_round(address, case)) for _ in range(rounds + 1)][1:]
        finally:
            process.kill()
    return {name: statistics.median(each[name] for each in figures) for name in figures[0]}


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = {case.name: run_case(case, arguments.rounds) for case in CASES}
    if arguments.json:
        sys.stdout.write(json.dumps(results, indent=2) + "\n")
        return
    for name, figures in results.items():
        sys.stdout.write(f"{name}\n")
        for client, figure in figures.items():
            sys.stdout.write(f"  {client:20} {figure:7.2f} us a message\n")


if __name__ == "__main__":
    main()
