"""A small HTTP/1.1 server for a simulated worker: requests in, answers out, connections that break."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

import msgspec

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with time 0: closing sends a reset."""


class HungUpError(Exception):
    """The connection is over: its client left, or it was cut on purpose."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    """By their names in lower case."""
    content: bytes

    def body(self) -> dict[str, Any] | None:
        """Return the JSON object that came; None when it is none."""
        try:
            found: object = msgspec.json.decode(self.content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return found if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType]  # JSON


class Reply:
    """Writes the answer to one request."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        """Write to *writer*."""
        self._writer = writer

    async def whole(
        self, body: bytes, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """Answer with JSON."""
        length = {"content-type": "application/json", "content-length": str(len(body))}
        self._head(status, length | (headers or {}))
        self._writer.write(body)
        await self._writer.drain()

    def begin_events(self) -> None:
        """Begin a stream of events."""
        told = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
        self._head(200, told)

    async def event(self, event: bytes) -> None:
        """Send *event* in a chunk of its own, as uvicorn does."""
        self._writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        await self._writer.drain()

    async def end_events(self) -> None:
        """End the stream."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def reset(self) -> None:
        """Break the connection, and raise."""
        connection: socket.socket = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()
        raise HungUpError

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        phrase = HTTPStatus(status).phrase
        self._writer.write(f"HTTP/1.1 {status} {phrase}\r\nserver: uvicorn\r\n{lines}\r\n".encode())


Answering = Callable[[Request, Reply], Awaitable[None]]


class HttpServer:
    """Serves while its context is entered."""

    def __init__(self, answer: Answering, host: str, port: int, *, idle: float = 5.0) -> None:
        """Have requests answered by *answer*.

        Args:
            answer: Called once for each request; cancelled when its client leaves.
            host: Where to listen.
            port: 0: the kernel chooses.
            idle: Seconds after which an idle connection is closed, as uvicorn does.
        """
        self._answer = answer
        self._host = host
        self._port = port
        self._idle = idle
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """``host:port``; the port is 0 until it listens."""
        return f"{self._host}:{self._port}"

    async def __aenter__(self) -> Self:
        """Listen; raises OSError when the port is taken."""
        self._server = await asyncio.start_server(
            self._welcome, self._host, self._port, backlog=1024
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop at once."""
        await self.stop(0)

    async def stop(self, grace: float) -> None:
        """Take no more connections, and cut those that are left after *grace* seconds."""
        if self._server is not None:
            self._server.close()
        if self._tasks and grace:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            begun = b""
            while True:
                async with asyncio.timeout(self._idle):
                    head = begun + await reader.readuntil(b"\r\n\r\n")
                begun = await self._exchange(await _request(head, reader), reader, writer)
        except (
            asyncio.IncompleteReadError,
            ConnectionError,
            HungUpError,
            TimeoutError,
            ValueError,
        ):
            pass
        except asyncio.CancelledError:
            pass  # the server ends; whoever waits for it cancelled this
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        """Answer *request*; return what came of the next one. Ends when the client leaves."""
        answering = asyncio.ensure_future(self._answer(request, Reply(writer)))
        listening = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answering, listening}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done() and not listening.result():
                raise HungUpError
            await answering
            return listening.result() if listening.done() else b""
        finally:
            answering.cancel()
            listening.cancel()
            await asyncio.gather(answering, listening, return_exceptions=True)


async def _request(head: bytes, reader: asyncio.StreamReader) -> Request:
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target.partition("?")[0], headers, content)
