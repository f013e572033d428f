"""Requests whose worker's connection is fed by hand, from its bytes to what their clients read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from sglr_dataplane.api.dialects.chat import ChatReply
from sglr_dataplane.api.relay import Relay
from sglr_dataplane.api.schema import ChatRequest
from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.h2.call import Call
from sglr_dataplane.engine.h2.link import Keepalive, Link
from sglr_dataplane.engine.h2.state import Limits
from sglr_dataplane.engine.lean_stream import LeanStream
from sglr_dataplane.errors import RouterError
from sglr_dataplane.fleet.stream import Batches
from sglr_dataplane.job import Chunk, Job, Sampling, Usage, new_job_id
from support.answers import PROMPT, answer, recipe
from support.h2peer import settings
from support.readers import Reader

SECONDS = 10.0


class Wire(asyncio.Transport):
    """A connection to a worker that takes what is written and says nothing by itself."""

    def __init__(self) -> None:
        """Have nothing written."""
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep *data*."""
        self.written += bytes(data)

    def is_closing(self) -> bool:
        """Return that it stays open."""
        return False

    def close(self) -> None:
        """Do nothing."""


class OneLink:
    """A channel whose one connection is fed by hand."""

    is_closed = False

    def __init__(self, limits: Limits | None = None) -> None:
        """Be connected, with these *limits*."""
        self.wire = Wire()
        self.link = Link(limits or Limits(), Keepalive(), lambda _link: None)
        self.link.connection_made(self.wire)
        self.link.data_received(settings())

    def call(
        self,
        _path: str,
        body: bytes,
        *,
        timeout: float,
        listener: Callable[[], None],
        fields: Iterable[tuple[str, str]] = (),
    ) -> Call:
        """Return a call, which :meth:`dial` begins."""
        assert timeout
        assert not fields
        return Call(cast("Any", self), b"", body, limit=1 << 20, listener=listener)

    def dial(self, call: Call) -> None:
        """Begin *call*."""
        call.begin(self.link)


class Client(Reader):
    """A reader whose connection may break."""

    def __init__(self, seed: int, *, full: float) -> None:
        """Be full with the chance *full*."""
        super().__init__(seed, full=full)
        self.is_moody = bool(full)
        self.breaks = False
        """Whether writing fails."""

    def write(self, part: bytes) -> None:
        """Keep *part*, or fail."""
        if self.breaks:
            raise ZeroDivisionError
        super().write(part)


@dataclass
class Request:
    """One client's request on its way."""

    asked: ChatRequest
    job: Job
    stream: LeanStream
    client: Client
    seconds: float = 1e6
    """How long it may take."""
    exchange: Any = field(default_factory=lambda: SimpleNamespace(spoke_at=0.0))
    body: bytes = b""
    usages: list[Usage] = field(default_factory=list)
    rings: int = 0
    """How often the stream's listener was called."""
    completion: dict[int, int] = field(default_factory=dict)

    @property
    def time_left(self) -> float:
        """Return the seconds that the request may still take."""
        return self.seconds

    def passed(self, chunk: Chunk) -> None:
        """Count *chunk*."""
        self.completion[chunk.index] = chunk.usage.completion_tokens

    def failed(self, failure: RouterError) -> RouterError:
        """Return *failure*."""
        return failure

    async def run(self) -> None:
        """Tell the answer as the walk of a chat does."""
        told = answer(self.asked, self._singly())
        first = await anext(told)
        reply = ChatReply(self.asked, recipe(), created=0)
        frames = reply.begin([PROMPT], first.usage) + reply.news(first)
        ends_at = time.monotonic() + self.seconds
        batches = Batches(cast("Any", self), self.stream, ends_at, time.monotonic)
        escaped = recipe().vocabulary.escaped
        # A client takes frames, and nothing else of what an outlet does.
        outlet = cast("Any", self.client)
        if batches.are_quiet and not told.told and not told.finished:
            self.client.write(frames)
            frames = b""
        relay = Relay(batches, told, reply, self.exchange, outlet, escaped)
        relay.begin()
        frames += relay.held()
        try:
            if not told.finished:
                if frames:
                    self.client.write(frames)
                self._count_rings(relay)
                await relay.run()
                frames = relay.held()
            self.client.written.append(frames + reply.end(told.usages))
        finally:
            self.usages = told.usages
            self.body = b"".join(self.client.written)

    async def _singly(self) -> AsyncIterator[Chunk]:
        async for chunk in self.stream:
            self.passed(chunk)
            yield chunk

    def _count_rings(self, relay: Relay) -> None:
        def hear() -> None:
            self.rings += 1
            relay.hear()

        self.stream.follow(hear)


@asynccontextmanager
async def requests(
    channel: OneLink,
    asked: Sequence[ChatRequest],
    *,
    full: float = 0.0,
    seed: int = 0,
    seconds: float = 1e6,
) -> AsyncGenerator[list[tuple[Request, asyncio.Task[None]]]]:
    """Begin a request for each of *asked*; their streams are 1, 3, 5 and so on."""
    begun: list[tuple[Request, asyncio.Task[None]]] = []
    for at, each in enumerate(asked):
        job = Job(new_job_id(), "m", PROMPT.ids, Sampling(n=each.sampling.n or 1))
        stream = LeanStream(cast("Any", channel), job, Deadlines())
        request = Request(each, job, stream, Client(seed + at, full=full), seconds)
        begun.append((request, asyncio.create_task(request.run())))
        await asyncio.sleep(0)
    try:
        yield begun
    finally:
        for request, task in begun:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await request.stream.aclose()
        channel.link.close()


async def settled() -> None:
    """Return when every task has done what it can."""
    for _ in range(8):
        await asyncio.sleep(0)


async def feed(channel: OneLink, begun: list[tuple[Request, Any]], reads: Iterable[bytes]) -> None:
    """Have *reads* come in, one by one; clients make room in between."""
    for read in reads:
        channel.link.data_received(read)
        await settled()
        make_room(begun)


def make_room(begun: list[tuple[Request, Any]]) -> None:
    """Have clients that do not always read make room."""
    for request, _ in begun:
        if request.client.is_moody and request.client.on_room is not None:
            request.client.on_room()


async def finished(begun: list[tuple[Request, asyncio.Task[None]]]) -> None:
    """Return when all requests are answered."""
    async with asyncio.timeout(SECONDS):
        while not all(task.done() for _, task in begun):
            make_room(begun)
            await asyncio.sleep(0)
