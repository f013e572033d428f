"""A raw HTTP/1.1 peer on loopback: each connection does what the test wrote for it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sglr_dataplane.engine.h1.call import CallError
from sglr_dataplane.engine.h1.pool import Pool, PoolOptions

SECONDS = 10.0
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REQUEST = b"GET / HTTP/1.1\r\nhost: w\r\n\r\n"

Talk = Callable[["Peer", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Peer:
    """What was seen."""

    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list[bytes])
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the first request."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client closed a connection."""

    async def request(self, reader: asyncio.StreamReader) -> bytes:
        """Return the next request without a body."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head)
        self.asked.set()
        return head


def answering(*answers: bytes) -> Talk:
    """Return a talk in which each request of a connection has its answer; then it is closed."""

    async def talk(peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await peer.request(reader)
            writer.write(answer)
        await writer.drain()
        if await reader.read(1) == b"":
            peer.left.set()

    return talk


@asynccontextmanager
async def a_peer(*talks: Talk, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Peer]:
    """Run a peer whose n-th connection has the n-th of *talks*, the last for ever."""
    peer = Peer()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        talk = talks[min(peer.connections, len(talks) - 1)]
        peer.connections += 1
        try:
            await talk(peer, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            peer.left.set()
        except asyncio.CancelledError:
            pass  # the test is over; asyncio would report it
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Answer:
    """A receiver that keeps all it hears."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[bytes, bytes] = {}
        self.parts: list[bytes] = []
        self.failure: CallError | None = None
        self.over = asyncio.Event()
        self.heard = asyncio.Event()

    @property
    def body(self) -> bytes:
        """All that came."""
        return b"".join(self.parts)

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Keep them."""
        self.status, self.headers = status, headers

    def on_body(self, data: bytes) -> None:
        """Keep it."""
        self.parts.append(data)

    def on_part(self, data: bytes) -> None:
        """Keep it, and have heard something."""
        self.on_body(data)
        self.on_read()

    def on_end(self) -> None:
        """Be over."""
        self.over.set()

    def on_failure(self, error: CallError) -> None:
        """Be over with a failure."""
        self.failure = error
        self.over.set()

    def on_read(self) -> None:
        """Have heard something."""
        self.heard.set()


@asynccontextmanager
async def a_pool(
    port: int, options: PoolOptions | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Pool]:
    """Return a pool of connections to *port*, closed at the end."""
    pool = Pool("127.0.0.1", port, options, tls=tls)
    try:
        yield pool
    finally:
        await pool.aclose()


async def ask(pool: Pool, request: bytes = REQUEST) -> Answer:
    """Return the answer to *request*, complete or failed."""
    answer = Answer()
    pool.call(request, answer)
    async with asyncio.timeout(SECONDS):
        await answer.over.wait()
    return answer
