"""The mock server: asyncio in a thread of its own, for blocking and asyncio tests alike."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

import msgspec

from sglr_client.testing import bodies
from sglr_client.testing.plays import Drop, Fail, Hang, Play, Raw, Say, Then

_STOP_LIMIT: Final = 10.0
"""Seconds for the thread to begin and to end."""
_TURNS: Final = 4
"""Turns of the loop after which a connection that was just accepted is known here."""
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with time 0: closing sends a reset."""


@dataclass(eq=False)
class Recorded:
    """A request the server received.

    Attributes:
        headers: With lower-case names.
        body: Decoded JSON; ``{}`` without a body.
        answered: Set when the whole answer was written.
        left: Set when the client left before that.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    answered: threading.Event = field(default_factory=threading.Event, repr=False)
    left: threading.Event = field(default_factory=threading.Event, repr=False)


class MockServer:
    """An OpenAI-style server on loopback that plays a script; a context manager.

    What is not scripted has right answers: ``/health``, ``/v1/models``, chats, completions,
    embeddings.
    """

    def __init__(
        self, models: Sequence[str] = ("mock-model",), *, tls: ssl.SSLContext | None = None
    ) -> None:
        """Offer *models*, over TLS with a context; listens from `start` on."""
        self._tls = tls
        self.models = list(models)
        """What ``/v1/models`` lists; may be changed at any time."""
        self.health_status = 200
        """What ``/health`` answers; may be changed at any time."""
        self.default: Play = Say()
        """What is played when the script is at its end."""
        self.requests: list[Recorded] = []
        """What came, ``/health`` and ``/v1/models`` included, in order."""
        self.connections = 0
        """Connections accepted so far."""
        self.in_flight = 0
        """Requests being answered."""
        self.peak = 0
        """The most requests answered at a time."""
        self.port = 0
        self._script: deque[Play] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mock-server", daemon=True)

    def __repr__(self) -> str:
        return f"<MockServer {self.url} {len(self.requests)} requests, {len(self._script)} to play>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    @property
    def generations(self) -> list[Recorded]:
        """The requests that a script answers: all but ``/health`` and ``/v1/models``."""
        return [request for request in self.requests if request.method == "POST"]

    def play(self, *plays: Play) -> None:
        """Answer the next generations so, one each, in order."""
        self._script.extend(plays)

    def start(self) -> None:
        """Listen on a free port."""
        self._thread.start()
        if not self._ready.wait(_STOP_LIMIT):
            raise RuntimeError("The mock server did not begin to listen.")

    def stop(self) -> None:
        """Cut what is in flight and end; more than once does no harm."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_STOP_LIMIT)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

            def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = group.create_task(self._connection(reader, writer))
                serving[task] = writer
                task.add_done_callback(serving.pop)

            server = await asyncio.start_server(
                on_connection, "127.0.0.1", 0, backlog=1024, ssl=self._tls
            )
            async with server:
                self.port = server.sockets[0].getsockname()[1]
                self._ready.set()
                await self._stop.wait()
                for listener in server.sockets:
                    # asyncio's server fails on connections that it accepts while it closes.
                    asyncio.get_running_loop().remove_reader(listener.fileno())
                await self._settle()
            await self._settle()
            for task, writer in tuple(serving.items()):
                writer.transport.abort()  # a task that has not begun would not close it
                task.cancel()

    async def _settle(self) -> None:
        """Let what was just accepted become known."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            begun = b""
            while True:
                request = await _request(reader, begun)
                self.requests.append(request)
                begun = await self._exchange(request, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, _HungUpError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(
        self, request: Recorded, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        """Answer *request*; return what came of the next one."""
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        watching = asyncio.ensure_future(reader.read(1))
        answering = asyncio.ensure_future(_Answer(request, writer).give(self._choose(request)))
        try:
            begun = await _first_of(watching, answering)
        except (ConnectionError, _HungUpError):
            request.left.set()
            raise
        else:
            request.answered.set()
            return begun
        finally:
            self.in_flight -= 1
            for task in (watching, answering):
                task.cancel()
            await asyncio.gather(watching, answering, return_exceptions=True)

    def _choose(self, request: Recorded) -> Play:
        if request.method == "POST":
            return self._script.popleft() if self._script else self.default
        json = "application/json"
        if request.path == "/health":
            return Raw([b""], status=self.health_status, content_type=json)
        if request.path == "/v1/models":
            return Raw([bodies.models(self.models)], content_type=json)
        return Fail(404, f"no such path: {request.path}", type="invalid_request_error")


class _HungUpError(Exception):
    """The connection is at its end, by either side's will."""


async def _first_of(watching: asyncio.Future[bytes], answering: asyncio.Future[None]) -> bytes:
    """Return what came of the next request when *answering* is done; raise if the client left."""
    both: list[asyncio.Future[Any]] = [watching, answering]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if not answering.done():
        if watching.result():
            raise ConnectionError("pipelining is not spoken here")
        raise _HungUpError
    await answering
    return watching.result() if watching.done() else b""


class _Answer:
    """Writes one answer."""

    def __init__(self, request: Recorded, writer: asyncio.StreamWriter) -> None:
        self._request = request
        self._writer = writer

    async def give(self, play: Play) -> None:
        match play:
            case Drop():
                self._reset()
            case Hang():
                await asyncio.Event().wait()
            case Fail():
                headers = {} if play.retry_after is None else {"retry-after": f"{play.retry_after}"}
                await self._whole(bodies.error(play), play.status, headers)
            case Raw():
                await self._raw(play)
            case Say():
                await asyncio.sleep(play.wait)
                await self._say(play)

    async def _say(self, say: Say) -> None:
        body, path = self._request.body, self._request.path
        if path.endswith("/embeddings"):
            await self._whole(bodies.embeddings(body))
            return
        is_chat = path.endswith("/chat/completions")
        if body.get("stream"):
            frames = bodies.chat_frames if is_chat else bodies.completion_frames
            await self._parts(frames(body, say), say.gap)
            await self._end(Then.END)
        else:
            await self._whole((bodies.chat if is_chat else bodies.completion)(body, say))

    async def _raw(self, raw: Raw) -> None:
        await self._parts(raw.parts, raw.gap, raw.status, raw.content_type)
        await self._end(raw.then)

    async def _whole(
        self, body: bytes, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        told = {"content-type": "application/json", "content-length": f"{len(body)}"}
        self._head(status, told | (headers or {}))
        self._writer.write(body)
        await self._writer.drain()

    async def _parts(
        self,
        parts: Iterable[bytes],
        gap: float,
        status: int = 200,
        content_type: str = "text/event-stream; charset=utf-8",
    ) -> None:
        self._head(status, {"content-type": content_type, "transfer-encoding": "chunked"})
        for place, part in enumerate(parts):
            await asyncio.sleep(gap if place else 0.0)
            if part:  # an empty chunk would be the body's end
                self._writer.write(b"%x\r\n%b\r\n" % (len(part), part))
                await self._writer.drain()

    async def _end(self, then: Then) -> None:
        match then:
            case Then.END:
                self._writer.write(b"0\r\n\r\n")
                await self._writer.drain()
            case Then.CUT:
                raise _HungUpError
            case Then.RESET:
                self._reset()
            case Then.HANG:
                await asyncio.Event().wait()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._writer.write(f"HTTP/1.1 {status} scripted\r\n{lines}\r\n".encode("latin-1"))

    def _reset(self) -> None:
        connection: socket.socket = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()
        raise _HungUpError


async def _request(reader: asyncio.StreamReader, begun: bytes) -> Recorded:
    head = begun + await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Recorded(method, path, headers, msgspec.json.decode(body) if body else {})
