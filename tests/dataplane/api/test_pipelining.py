"""Clients that send their next requests before they have the answer to the first."""

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from starlette.types import Receive, Scope, Send

from sglr_dataplane.api.cycle import Cycle
from sglr_dataplane.api.drain import Drain
from sglr_dataplane.api.http_protocol import BoundedProtocol
from sglr_dataplane.api.server import new_server
from sglr_dataplane.config import DrainSettings
from support.served import served

SECONDS: Final = 10.0
GET: Final = b"GET /%d HTTP/1.1\r\nHost: r\r\n\r\n"
POST: Final = b"POST /%b HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST: Final = b"GET /last HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n"
OFFER: Final = b"Connection: upgrade\r\nUpgrade: websocket\r\n"
HELD_AT_MOST: Final = 300
"""As many small requests as fit in a few kilobytes."""


class Application:
    """Answers with the path and the body; ``/0`` when it is let go."""

    def __init__(self) -> None:
        """Hold nobody yet."""
        self.has_one = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.left = asyncio.Event()
        """Set when the client of ``/0`` has left before it was let go."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        if scope["path"] == "/hasty":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if scope["path"] == "/0":
            self.has_one.set()
            leaving = asyncio.create_task(self._watch(receive))
            await self.goes_on.wait()
            leaving.cancel()
        answer = b"%b %d\n" % (scope["raw_path"], len(body))
        length = (b"content-length", b"%d" % len(answer))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": answer})

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()


@asynccontextmanager
async def a_server(application: Application) -> AsyncGenerator[int]:
    """Run a server and yield its port."""
    server = new_server(application, Drain(DrainSettings()))
    server.config.http_protocol_class = BoundedProtocol
    async with served(server) as port:
        try:
            yield port
        finally:
            application.goes_on.set()


def held() -> int:
    """Return how many requests the server holds."""
    return sum(isinstance(each, Cycle) for each in gc.get_objects())


async def paths(port: int, application: Application, sent: bytes) -> list[bytes]:
    """Return what is answered to *sent*, all of which comes while the first is not answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        await asyncio.wait_for(application.has_one.wait(), SECONDS)
        application.goes_on.set()
        said = await asyncio.wait_for(reader.read(), SECONDS)
    finally:
        writer.close()
    return [part.rpartition(b"\r\n")[2].strip() for part in said.split(b"HTTP/1.1 200")[1:]]


async def test_requests_behind_others_are_held_as_bytes() -> None:
    """A megabyte of small requests would otherwise be a hundred megabytes of large objects."""
    application = Application()
    async with a_server(application) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join([GET % number for number in range(30_000)]))
        await asyncio.wait_for(application.has_one.wait(), SECONDS)
        assert held() <= HELD_AT_MOST

        application.goes_on.set()
        for number in range(1_000):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
            assert head.startswith(b"HTTP/1.1 200 ")
            assert await reader.readline() == b"/%d 0\n" % number
            assert number % 200 or held() <= HELD_AT_MOST
        writer.close()


async def test_all_that_came_behind_a_request_is_answered_in_order() -> None:
    """Whatever it is: with bodies larger than what is read at once, chunks, offers to upgrade."""
    sent = b""
    wanted: list[bytes] = []
    for number in range(60):
        size = (0, 3, 9_000, 150_000)[number % 4]
        head = b"POST /%d HTTP/1.1\r\nHost: r\r\n" % number + OFFER * (number % 3 == 1)
        if number % 2:
            sent += head + b"Content-Length: %d\r\n\r\n" % size + b"b" * size
        else:
            chunk = b"%x\r\n%b\r\n" % (size, b"c" * size) if size else b""
            sent += head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n\r\n"
        wanted.append(b"/%d %d" % (number, size))
    application = Application()
    async with a_server(application) as port:
        assert await paths(port, application, sent + LAST) == [*wanted, b"/last 0"]


async def test_what_is_no_request_ends_the_connection_behind_the_answers_before_it() -> None:
    """Far behind as well: they are not lost, and it is not answered before they are."""
    sent = b"".join([GET % number for number in range(500)])
    application = Application()
    async with a_server(application) as port:
        answers = await paths(port, application, sent + b"\x00 is no request\r\n\r\n")

    assert answers[:499] == [b"/%d 0" % number for number in range(499)]


async def test_a_client_that_leaves_is_noticed_with_requests_waiting() -> None:
    """The worker of the first must not go on for nobody."""
    application = Application()
    async with a_server(application) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"".join([GET % number for number in range(1_000)]))
        await asyncio.wait_for(application.has_one.wait(), SECONDS)
        writer.close()
        await asyncio.wait_for(application.left.wait(), SECONDS)


async def test_a_body_that_cannot_be_read_is_not_answered_twice() -> None:
    """After its answer another would be taken for that to the client's next request."""
    async with a_server(Application()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(POST % b"hasty")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
        writer.write(b"zz\r\n")
        rest = await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()

    assert head.startswith(b"HTTP/1.1 204 ")
    assert rest == b""


async def test_a_body_that_cannot_be_read_is_refused() -> None:
    """While nothing was answered the client hears why."""
    async with a_server(Application()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(POST % b"patient" + b"zz\r\n")
        said = await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()

    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 400 ") == 1
    assert b"HTTP/1.1 200 " not in said
