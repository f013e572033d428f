"""A server's side of HTTP/2, made by the ``h2`` and ``hpack`` packages and by hand, for tests.

Nothing here uses the code under test: frames are put together from RFC 9113's own tables.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

import h2.events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings
from hpack import Encoder

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(5, 10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY_FLAG = 0x20

HEAD = ((":status", "200"), ("content-type", "application/grpc"))
OK = (("grpc-status", "0"),)
LIMIT = 5.0
"""Seconds that anything here may take."""

Fields = Iterable[tuple[str, str]]
_Event = TypeVar("_Event", bound=h2.events.Event)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return one frame, however wrong its parts are."""
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream_id) + payload


def settings(*pairs: tuple[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in pairs))


def block(fields: Fields, encoder: Encoder | None = None) -> bytes:
    """Return *fields* as a header block; without *encoder*, one that any decoder takes first."""
    return (encoder or Encoder()).encode(list(fields))


def plain_block(*fields: tuple[bytes, bytes]) -> bytes:
    """Return *fields* as literals without indexing, so that no table is touched."""
    return b"".join(
        b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value for name, value in fields
    )


REQUEST = plain_block(
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/x"), (b":authority", b"peer")
)
"""A request's header block."""
PLAIN_HEAD = plain_block((b":status", b"200"), (b"content-type", b"application/grpc"))
PLAIN_OK = plain_block((b"grpc-status", b"0"))


def head(stream_id: int = 1) -> bytes:
    """Return the HEADERS that begin a gRPC answer."""
    return frame(HEADERS, END_HEADERS, stream_id, PLAIN_HEAD)


def trailers(stream_id: int = 1, fields: bytes = PLAIN_OK) -> bytes:
    """Return the HEADERS that end a gRPC answer."""
    return frame(HEADERS, END_HEADERS | END_STREAM, stream_id, fields)


def message(content: bytes, *, flag: int = 0) -> bytes:
    """Return *content* with gRPC's prefix."""
    return bytes((flag,)) + len(content).to_bytes(4, "big") + content


def word(value: int) -> bytes:
    """Return four bytes."""
    return value.to_bytes(4, "big")


def h2_server(own: dict[int, int] | None = None) -> H2Connection:
    """Return a server of the h2 package with the settings *own*; it has said nothing yet."""
    server = H2Connection(H2Configuration(client_side=False, header_encoding=None))
    if own:
        values = {SettingCodes(key): value for key, value in own.items()}
        server.local_settings = Settings(client=False, initial_values=values)
        server.max_inbound_frame_size = values.get(SettingCodes.MAX_FRAME_SIZE, 16_384)
    return server


class PeerConnection:
    """One client's connection to an :func:`h2_peer`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, own: dict[int, int]
    ) -> None:
        """Begin with the settings *own*."""
        self.h2 = h2_server(own)
        self.received: list[h2.events.Event] = []
        """Every event so far."""
        self.closed = asyncio.Event()
        """Set when the client closed the connection."""
        self._reader, self._writer = reader, writer
        self._news = asyncio.Condition()
        self._seen = 0
        self.is_mute = False
        """Whether what ``h2`` has to say is thrown away: acknowledgements, windows, GOAWAY."""

    async def read(self) -> None:
        """Take what the client sends until it closes."""
        try:
            while data := await self._reader.read(65_536):
                for event in self.h2.receive_data(data):
                    if isinstance(event, h2.events.DataReceived):
                        self.h2.acknowledge_received_data(
                            event.flow_controlled_length, event.stream_id
                        )
                    self.received.append(event)
                self.flush()
                async with self._news:
                    self._news.notify_all()
        except OSError:
            pass  # reset, or TLS that was not closed cleanly
        self.closed.set()
        async with self._news:
            self._news.notify_all()

    async def wait_for(
        self, kind: type[_Event], accept: Callable[[_Event], bool] = lambda _event: True
    ) -> _Event:
        """Return the next event of *kind* that was not returned before."""
        async with asyncio.timeout(LIMIT), self._news:
            while True:
                while self._seen < len(self.received):
                    event = self.received[self._seen]
                    self._seen += 1
                    if isinstance(event, kind) and accept(event):
                        return event
                assert not self.closed.is_set(), f"the client left before a {kind.__name__}"
                await self._news.wait()

    async def until(self, kind: type[_Event]) -> None:
        """Return once an event of *kind* came, now or before."""
        async with asyncio.timeout(LIMIT), self._news:
            await self._news.wait_for(lambda: bool(self.events(kind)))

    async def request(self) -> int:
        """Return the id of the next stream whose request is whole."""
        event = await self.wait_for(h2.events.StreamEnded)
        return event.stream_id

    def events(self, kind: type[_Event]) -> list[_Event]:
        """Return all events of *kind* so far."""
        return [event for event in self.received if isinstance(event, kind)]

    def flush(self) -> None:
        """Send what ``h2`` has to say."""
        output = self.h2.data_to_send()
        if output and not self.is_mute:
            self.send(output)

    def send(self, data: bytes) -> None:
        """Send *data* as it is."""
        if not self._writer.is_closing():
            self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the socket took nearly everything."""
        await self._writer.drain()

    def answer(self, stream_id: int, *messages: bytes, end: Fields = OK) -> None:
        """Send a whole gRPC answer through ``h2``."""
        self.h2.send_headers(stream_id, HEAD)
        for content in messages:
            self.h2.send_data(stream_id, message(content))
        self.h2.send_headers(stream_id, end, end_stream=True)
        self.flush()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def abort(self) -> None:
        """Reset the connection."""
        self._writer.transport.abort()


class Peer:
    """What :func:`h2_peer` returns."""

    def __init__(self) -> None:
        """Begin without a client."""
        self.port = 0
        self.connections: list[PeerConnection] = []
        self._first: asyncio.Future[PeerConnection] = asyncio.get_running_loop().create_future()
        self.failures: list[BaseException] = []
        """What the handlers raised, except cancellation."""

    def add(self, connection: PeerConnection) -> None:
        """Note a client's connection."""
        self.connections.append(connection)
        if not self._first.done():
            self._first.set_result(connection)

    async def connected(self) -> PeerConnection:
        """Return the first connection once there is one."""
        async with asyncio.timeout(LIMIT):
            return await asyncio.shield(self._first)


Handler = Callable[[PeerConnection], Awaitable[None]]


@asynccontextmanager
async def h2_peer(
    handler: Handler,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    own: dict[int, int] | None = None,
    tls: ssl.SSLContext | None = None,
    greets: bool = True,
) -> AsyncGenerator[Peer]:
    """Run a server whose connections are each played by *handler*.

    Args:
        handler: Called with each connection; when it returns, the connection stays open.
        host: Loopback, of either family.
        port: 0 for one of the kernel's choice.
        own: The server's settings.
        tls: None for plain text.
        greets: Whether ``h2`` speaks, its SETTINGS first; else only the handler does.
    """
    peer = Peer()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = PeerConnection(reader, writer, own or {})
        peer.add(connection)
        connection.h2.initiate_connection()
        connection.is_mute = not greets
        connection.flush()
        tasks.add(asyncio.ensure_future(play(connection)))
        await connection.read()
        writer.close()

    async def play(connection: PeerConnection) -> None:
        try:
            await handler(connection)
        except Exception as failure:  # noqa: BLE001  # top of a task; raised at the end
            peer.failures.append(failure)
            connection.close()

    server = await asyncio.start_server(serve, host, port, ssl=tls)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        for connection in peer.connections:
            connection.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*(connection.closed.wait() for connection in peer.connections))
    assert not peer.failures, peer.failures
