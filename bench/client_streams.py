"""What the client library costs at 300 streams at once.

``python bench/client_streams.py [--streams 300] [--tokens 200] [--rounds 3]`` starts the mock
server in a process of its own, reads all streams with one ``AsyncClient`` and prints, medians of
the rounds: seconds for all, and microseconds of this process's CPU a chunk, for parsed chunks and
for raw ones. Every stream is compared with what the server says; a difference ends the run with
status 1.
"""
# ruff: noqa: T201  # a bench prints

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from sglr_client import AsyncClient, Limits
from sglr_client.testing import MockServer, Say

MESSAGES = [{"role": "user", "content": "Go on."}]


@dataclass(frozen=True)
class Cost:
    """What one round cost.

    Attributes:
        cpu_us: Microseconds a chunk.
        wrong: Streams that were not what the server said.
    """

    seconds: float
    cpu_us: float
    wrong: int


async def read_parsed(client: AsyncClient, tokens: int) -> bool:
    """Return whether a stream of parsed chunks has *tokens* words."""
    async with client.chat_stream("mock-model", MESSAGES) as stream:
        text = "".join([chunk.text async for chunk in stream])
    return text.split() == ["word"] * tokens


async def read_raw(client: AsyncClient, tokens: int) -> bool:
    """Return whether a stream of raw chunks has *tokens* words."""
    async with client.chat_stream("mock-model", MESSAGES, raw=True) as stream:
        words = [chunk.count(b"word") async for chunk in stream]
    return sum(words) == tokens


async def one_round(url: str, streams: int, tokens: int, *, raw: bool) -> Cost:
    """Return what *streams* streams of *tokens* chunks cost."""
    read = read_raw if raw else read_parsed
    began, cpu = time.perf_counter(), time.process_time()
    async with AsyncClient(url, limits=Limits(connections=streams), timeout=300.0) as client:
        right = await asyncio.gather(*(read(client, tokens) for _ in range(streams)))
    spent = time.process_time() - cpu
    wrong = streams - sum(right)
    return Cost(time.perf_counter() - began, spent / (streams * tokens) * 1e6, wrong)


def serve(tokens: int, parent: Connection) -> None:
    """Serve streams of *tokens* words until *parent* says to end; tells it the address first."""
    with MockServer() as server:
        server.default = Say(" ".join(["word"] * tokens))
        parent.send(server.url)
        parent.recv()


@contextmanager
def serving(tokens: int) -> Generator[str]:
    """Run the mock server in another process within the block; yields its address."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(tokens, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    wrong = 0
    with serving(asked.tokens) as url:
        for name in ("parsed", "raw"):
            costs = [
                asyncio.run(one_round(url, asked.streams, asked.tokens, raw=name == "raw"))
                for _ in range(asked.rounds)
            ]
            wrong += sum(cost.wrong for cost in costs)
            seconds = statistics.median(cost.seconds for cost in costs)
            cpu = statistics.median(cost.cpu_us for cost in costs)
            print(
                f"{asked.streams} streams of {asked.tokens} chunks, {name}: {seconds:.2f} s, "
                f"{cpu:.1f} us of CPU a chunk, {wrong} wrong"
            )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
