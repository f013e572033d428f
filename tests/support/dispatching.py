"""Dispatchers over scripted engines: what workers fail with, and what was reported of them."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

from sglr_dataplane.errors import (
    WorkerBusyError,
    WorkerError,
    WorkerLostError,
    WorkerRefusedError,
    WorkerUnavailableError,
)
from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.fleet.stream import Stream
from sglr_dataplane.fleet.worker import Worker
from sglr_dataplane.job import Chunk, Job
from support.engines import (
    HANG,
    FakeClock,
    ScriptedEngine,
    ScriptedStream,
    Step,
)

REFUSED = WorkerUnavailableError("The worker cannot be reached.")
LOST = WorkerLostError("The worker went away.")
BUSY = WorkerBusyError("The worker's queue is full.")
BROKEN = WorkerError("The worker answered with an error (INTERNAL).")
INVALID = WorkerRefusedError("The worker refused the request.")


class Ledger:
    """The outcomes a dispatcher reported, by worker."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []

    def __call__(self, worker: Worker, outcome: str) -> None:
        """Write one outcome down."""
        self.entries.append((worker.id, str(outcome)))


class DyingEngine(ScriptedEngine):
    """An engine that takes every job and answers none, until it dies under all of them."""

    def __init__(self, die: asyncio.Event) -> None:
        """Die when *die* is set."""
        super().__init__([HANG])
        self.die = die
        self._taken = asyncio.Semaphore(0)

    async def has_jobs(self, count: int) -> None:
        """Wait until it has taken *count* jobs."""
        for _ in range(count):
            await self._taken.acquire()

    def generate(self, job: Job) -> ScriptedStream:
        """Take *job*."""
        self._taken.release()
        return DyingStream(self, job)


class DyingStream(ScriptedStream):
    """A job on an engine that dies."""

    def __init__(self, engine: DyingEngine, job: Job) -> None:
        """Wait for the death of *engine*."""
        super().__init__(engine, job, [HANG])
        self._die = engine.die

    async def _play(self, step: Step) -> Chunk:
        await self._die.wait()
        raise WorkerLostError("The worker went away.")


def a_dispatcher(
    registry: Registry, ledger: Ledger | None = None, *, clock: FakeClock | None = None
) -> Dispatcher:
    """Return a dispatcher over *registry* that waits for nothing between two attempts."""
    return Dispatcher(
        registry, on_outcome=ledger, clock=clock or time.monotonic, chance=lambda: 0.0
    )


async def all_of(stream: Stream) -> list[Chunk]:
    """Return every chunk of *stream* and close it."""
    async with aclosing(stream):
        return [chunk async for chunk in stream]


def in_flight(registry: Registry) -> int:
    """Return how many jobs the workers of *registry* are busy with."""
    return sum(worker.in_flight for worker in registry.tended())
