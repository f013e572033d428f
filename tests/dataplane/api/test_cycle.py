"""What a server owes applications and clients, whatever either does; over raw sockets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from starlette.routing import Router as Routes
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.lifespan.off import LifespanOff

from sglr_dataplane.api.access import Access
from sglr_dataplane.api.auth import Guard
from sglr_dataplane.api.drain import Drain
from sglr_dataplane.api.exchange import Exchange
from sglr_dataplane.api.front_door import FrontDoor
from sglr_dataplane.api.server import new_server
from sglr_dataplane.config import DrainSettings
from sglr_dataplane.fleet.backend_keys import BackendKeys
from sglr_dataplane.fleet.keys import Keys
from sglr_dataplane.fleet.rates import Meter
from sglr_dataplane.metrics import RouterMetrics
from support.served import served

SECONDS = 10.0
GET = b"GET / HTTP/1.1\r\nHost: r\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n"
Answer = Callable[[Scope, Receive, Send], Awaitable[None]]


@asynccontextmanager
async def a_server(app: ASGIApp, keep_alive: float = 30) -> AsyncGenerator[int]:
    """Serve *app* and yield the port."""
    server = new_server(app, Drain(DrainSettings()))
    server.config.lifespan_class = LifespanOff
    server.config.timeout_keep_alive = keep_alive  # type: ignore[assignment]  # seconds are seconds
    async with served(server) as port:
        yield port


async def said(port: int, sent: bytes) -> bytes:
    """Return all that is answered to *sent*, up to the close."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.read(), SECONDS)
    finally:
        writer.close()


def start(*headers: tuple[bytes, bytes], status: int = 200) -> dict[str, object]:
    """Return the message that begins an answer."""
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def part(body: bytes, *, more: bool = False) -> dict[str, object]:
    """Return a message with a part of an answer's body."""
    return {"type": "http.response.body", "body": body, "more_body": more}


def sending(*messages: dict[str, object]) -> Answer:
    """Return what answers with *messages*."""

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        for message in messages:
            await send(dict(message))

    return app


async def raising(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Fail without an answer."""
    raise KeyError("secret")


@pytest.mark.parametrize(
    "app",
    [
        raising,
        sending(),
        sending(part(b"x")),
        sending(start((b"x-a", b"b\r\nx-c: d"))),
        sending(start((b"x a", b"b"))),
    ],
    ids=["raises", "says nothing", "no head", "value", "name"],
)
async def test_what_an_application_does_not_begin_is_500(app: ASGIApp) -> None:
    """And the connection ends; nothing of the reason is told."""
    async with a_server(app) as port:
        head, _, body = (await said(port, GET)).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"connection: close" in head
    assert body == b"Internal Server Error"


@pytest.mark.parametrize(
    "messages",
    [
        (start(), part(b"one", more=True)),
        (start((b"content-length", b"9")), part(b"one", more=True)),
        (start((b"content-length", b"9")), part(b"one", more=True), part(b"")),
        (start((b"content-length", b"4")), part(b"one", more=True), part(b"more")),
        (start(), part(b"one", more=True), start()),
    ],
    ids=["chunks", "length", "short", "long", "another head"],
)
async def test_what_an_application_does_not_end_is_cut(messages: tuple[dict[str, object]]) -> None:
    """The client sees that something is missing: no last chunk, or fewer bytes than announced."""
    async with a_server(sending(*messages)) as port:
        answer = await said(port, GET)

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"one" in answer
    assert b"more" not in answer
    assert not answer.endswith(b"0\r\n\r\n")


async def test_a_head_without_more_is_sent_at_once() -> None:
    """It goes with what follows, but nothing may follow for long."""
    go_on = asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(start((b"content-length", b"2")))
        await go_on.wait()
        await send(part(b"hi"))

    async with a_server(app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
        go_on.set()
        body = await asyncio.wait_for(reader.readexactly(2), SECONDS)
        writer.close()

    assert b"content-length: 2" in head
    assert body == b"hi"


@pytest.mark.parametrize("status", [204, 304])
async def test_what_has_no_body_has_no_chunks(status: int) -> None:
    """And the next answer begins right behind its head."""
    async with a_server(sending(start(status=status), part(b""))) as port:
        answer = await said(port, GET + LAST)

    heads = answer.split(b"\r\n\r\n")
    assert [head.split()[1] for head in heads[:2]] == [b"%d" % status] * 2
    assert heads[2:] == [b""]
    assert b"chunked" not in answer


async def test_head_has_the_head_alone() -> None:
    """What the body would be is said, not sent; a length that nobody knows is not said."""
    for message in (start((b"content-length", b"3")), start()):
        async with a_server(sending(message, part(b"one"))) as port:
            answer = await said(port, GET.replace(b"GET", b"HEAD") + LAST)
        first, second = answer.split(b"\r\n\r\n", 1)

        assert (b"content-length: 3" in first) == bool(message["headers"])
        assert b"chunked" not in first
        assert second.startswith(b"HTTP/1.1 200 OK")


async def _echoed(_scope: Scope, receive: Receive, send: Send) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    await send(start((b"content-length", b"%d" % len(body))))
    await send(part(body))


async def test_a_client_that_waits_for_a_word_gets_it() -> None:
    """100 Continue, when the application wants the body; then the answer."""
    head = b"POST / HTTP/1.1\r\nHost: r\r\nExpect: 100-continue\r\nContent-Length: 2\r\n"
    async with a_server(_echoed) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + b"Connection: close\r\n\r\n")
        word = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
        writer.write(b"hi")
        answer = await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()

    assert word == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\nhi")


async def test_large_bodies_are_read_as_they_are_taken() -> None:
    """Far above what waits, one after the other on one connection."""
    body = b"0123456789abcdef" * 2**16
    head = b"POST / HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n" % len(body)
    sent = head + b"\r\n" + body + head + b"Connection: close\r\n\r\n" + body
    async with a_server(_echoed) as port:
        answer = await said(port, sent)

    assert answer.count(body) == 2


async def test_a_client_that_leaves_is_told_of_by_receive() -> None:
    """Once its body was received, and for every request that it has sent: the others never begin."""
    begun, left = asyncio.Semaphore(0), asyncio.Event()

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        await receive()
        begun.release()
        assert (await receive())["type"] == "http.disconnect"
        left.set()

    async with a_server(app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET * 3)
        await asyncio.wait_for(begun.acquire(), SECONDS)
        writer.transport.abort()
        await asyncio.wait_for(left.wait(), SECONDS)

    assert begun.locked()


async def test_a_kept_connection_is_closed_when_nothing_comes() -> None:
    """After the keep-alive's time since the last answer, not since the first."""
    async with a_server(sending(start((b"content-length", b"0")), part(b"")), 1.0) as port:
        loop = asyncio.get_running_loop()
        answered_at = loop.time()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(3):
            writer.write(GET)
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
            answered_at = loop.time()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.6)
        rest = await asyncio.wait_for(reader.read(), SECONDS)
        silent = loop.time() - answered_at
        writer.close()

    assert rest == b""
    assert silent >= 1.0


Telling = Callable[[Exchange], Awaitable[None]]


async def _whole(exchange: Exchange) -> None:
    exchange.warnings = ["one", "two", "one"]
    await exchange.answer({"a": "é"})


async def _as_it_is(exchange: Exchange) -> None:
    await exchange.answer_as_it_is(b"", "text/plain; charset=utf-8")


async def _at_once(exchange: Exchange) -> None:
    await exchange.send_events(b"data: 1\n\n", is_last=True)


async def _in_pieces(exchange: Exchange) -> None:
    exchange.warnings = ["one"]
    for piece in (b"data: 1\n\n", b"", b"x" * 5000, b"data: 2\n\n"):
        await exchange.send_events(piece)
        await asyncio.sleep(0)
    await exchange.send_events(b"", is_last=True)


async def _closing(exchange: Exchange) -> None:
    exchange.must_close = True
    exchange.rates = lambda: [("x-ratelimit-limit-requests", "3")]
    await _in_pieces(exchange)


def _wrapped(app: ASGIApp) -> ASGIApp:
    """Return *app* with everything between it and its server, as a middleware is."""

    async def wrapping(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: dict[str, object]) -> None:
            await send(message)

        await app(scope, receive, sent)  # type: ignore[arg-type]  # a message is such a dict

    return wrapping


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("tell", [_whole, _as_it_is, _at_once, _in_pieces, _closing])
async def test_what_is_said_past_asgi_is_what_is_said_through_it(
    tell: Telling, version: str
) -> None:
    """To the byte, heads included, whatever kind of answer it is."""
    clock = asyncio.get_running_loop().time
    door = FrontDoor(
        {"/": tell},
        Routes(),
        guard=Guard(keys=Keys(None), backend_keys=BackendKeys(), meter=Meter(clock)),
        drain=Drain(DrainSettings()),
        access=Access(RouterMetrics(), clock=clock, log=False),
        tracing=None,
    )
    request = LAST.replace(b"GET", b"POST").replace(b"1.1", version.encode())
    sent = request.replace(b"\r\n\r\n", b"\r\nx-request-id: mine\r\n\r\n")
    answers = []
    for app in (door, _wrapped(door)):
        async with a_server(app) as port:
            answers.append(re.sub(rb"date: [^\r]+", b"date: now", await said(port, sent)))

    past, through = answers
    assert past == through
    assert past.startswith(b"HTTP/1.1 200 OK\r\ndate: now\r\n")
    assert b"x-request-id: mine\r\n" in past
    assert past.count(b"connection: close") == 1
