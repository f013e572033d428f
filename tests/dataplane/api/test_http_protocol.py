"""What the HTTP server makes of clients that are old, wrong, hostile or asleep; over raw sockets."""

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from sglr_dataplane.api.drain import Drain
from sglr_dataplane.api.http_protocol import BoundedProtocol
from sglr_dataplane.api.refusals import ProtocolLimits
from sglr_dataplane.api.server import new_server
from sglr_dataplane.config import DrainSettings
from support.served import served

SECONDS = 10.0
BODY = b'{"a": "' + b"b" * 40 + b'"}'
POST = b"POST /echo HTTP/1.1\r\nHost: r\r\n"
FRAMED = b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


class Application:
    """Echoes what it gets; ``/stream`` answers in pieces, ``/flood`` without end."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self.left = asyncio.Event()
        """Set when a client of ``/flood`` is gone."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._lifespan(receive, send)
        elif scope["path"] == "/flood":
            await self._flood(receive, send)
        elif scope["path"] == "/stream":
            await _begin(send)
            for piece in (b"one ", b"two ", b""):
                await send({"type": "http.response.body", "body": piece, "more_body": bool(piece)})
        else:
            await _echo(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})

    async def _flood(self, receive: Receive, send: Send) -> None:
        await _begin(send)
        sending = asyncio.create_task(_send_for_ever(send))
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            sending.cancel()
            self.left.set()


async def _begin(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"b")]})


async def _send_for_ever(send: Send) -> None:
    while True:
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await asyncio.sleep(0)  # a client that is gone makes send return at once


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        more = message.get("more_body", False)
    names = [name.decode() for name, _ in scope["headers"]]
    facts = {"body": body.decode(), "headers": names, "path": scope["path"]}
    answer = json.dumps(facts).encode()
    length = (b"content-length", str(len(answer)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": answer})


class Impatient(BoundedProtocol):
    """The protocol with limits that a test can wait for."""

    limits = ProtocolLimits(write_seconds=0.1, linger_seconds=0.1)


@asynccontextmanager
async def a_server(
    application: Application | None = None, protocol: type[BoundedProtocol] = BoundedProtocol
) -> AsyncGenerator[int]:
    """Run a server and yield its port."""
    server = new_server(application or Application(), Drain(DrainSettings()))
    assert issubclass(server.config.http_protocol_class, BoundedProtocol)
    server.config.http_protocol_class = protocol
    async with served(server) as port:
        yield port


async def said(port: int, *pieces: bytes) -> bytes:
    """Return all that the server says to *pieces*, up to its close."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), SECONDS)
    finally:
        writer.close()


def split(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of *answer*."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


def refusal(answer: bytes) -> tuple[int, Any]:
    """Return status and code of *answer*, which is all there is and in the envelope."""
    status, headers, body = split(answer)
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert headers["x-request-id"].startswith("req_")
    assert int(headers["content-length"]) == len(body)
    return status, error["code"]


@pytest.mark.parametrize("upgrade", [H2C, b"Connection: upgrade\r\nUpgrade: websocket\r\n"])
@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_an_offer_to_upgrade_is_ignored(upgrade: bytes, framing: str, size: int) -> None:
    """The body arrives whole, however it is cut, and the next request on the connection too."""
    chunked = b"Transfer-Encoding: chunked\r\n\r\n5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (
        BODY[:5], len(BODY) - 5, BODY[5:],
    )  # fmt: skip
    first = POST + upgrade + (FRAMED if framing == "length" else chunked)
    both = first + b"POST /next HTTP/1.1\r\nHost: r\r\nConnection: close\r\n" + FRAMED
    async with a_server() as port:
        answer = await said(port, *(both[at : at + size] for at in range(0, len(both), size)))

    one, two = (
        json.loads(part.split(b"\r\n\r\n")[1]) for part in answer.split(b"HTTP/1.1 200")[1:]
    )
    assert (one["path"], one["body"]) == ("/echo", BODY.decode())
    assert (two["path"], two["body"]) == ("/next", BODY.decode())


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl_that_offers_h2c_is_answered() -> None:
    """What ``curl --http2`` sends to an http URL."""
    async with a_server() as port:
        curl = await asyncio.create_subprocess_exec(
            "curl", "--silent", "--http2", "--data-binary", BODY.decode(),
            "--max-time", "10", f"http://127.0.0.1:{port}/echo",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(curl.communicate(), SECONDS + 2)

    assert curl.returncode == 0
    assert json.loads(out)["body"] == BODY.decode()


async def test_a_stream_to_http_1_0_has_no_chunks() -> None:
    """Its bytes as they are, and the close ends them."""
    async with a_server() as port:
        answer = await said(port, b"GET /stream HTTP/1.0\r\nHost: r\r\n\r\n")

    status, headers, body = split(answer)
    assert (status, body) == (200, b"one two ")
    assert headers["connection"] == "close"
    assert headers.keys() == {"date", "x-a", "connection"}


@pytest.mark.parametrize(("target", "path"), [(b"/echo", "/echo"), (b"http://r?a=b", "/")])
async def test_a_whole_answer_to_http_1_0_keeps_its_length(target: bytes, path: str) -> None:
    """Only what has no length is ended by the close; and an address without a path asks for /."""
    async with a_server() as port:
        answer = await said(port, b"POST %b HTTP/1.0\r\n" % target + FRAMED)

    _, headers, body = split(answer)
    assert int(headers["content-length"]) == len(body)
    assert (json.loads(body)["path"], json.loads(body)["body"]) == (path, BODY.decode())


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"BREW /coffee HTTP/1.1\r\n\r\n",
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello",
        POST + b"no colon here\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["tls", "method", "lengths", "length and chunks", "chunk", "header", "connect", "h2"],
)
async def test_what_is_no_http_is_refused_in_the_envelope(sent: bytes) -> None:
    """400 with a code and an id, then the end of the connection."""
    async with a_server() as port:
        answer = await said(port, sent)

    assert refusal(answer) == (400, "invalid_http_request")


async def test_garbage_after_a_request_does_not_spoil_its_answer() -> None:
    """The request is answered in full, then the connection ends."""
    async with a_server() as port:
        answer = await said(port, POST + FRAMED + b"\x16\x03\x01\x02\x00")

    status, _, body = split(answer)
    assert status == 200
    assert json.loads(body)["body"] == BODY.decode()


LINE = b"x-%d: %b\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        [LINE % (at, b"y") for at in range(201)],
        [LINE % (at, b"y" * 1000) for at in range(66)],
        [b"x: " + b"y" * 65536 + b"\r\n"],
    ],
    ids=["lines", "bytes", "one"],
)
async def test_too_many_headers_are_refused(lines: list[bytes]) -> None:
    """431 in the envelope, then the end of the connection."""
    async with a_server() as port:
        answer = await said(port, b"GET / HTTP/1.1\r\n", *lines, b"\r\n")

    assert refusal(answer) == (431, "headers_too_large")


@pytest.mark.parametrize(
    "lines",
    [[LINE % (at, b"y") for at in range(200)], [LINE % (at, b"y" * 1000) for at in range(64)]],
    ids=["lines", "bytes"],
)
async def test_headers_up_to_the_limit_are_read(lines: list[bytes]) -> None:
    """Two hundred lines, or nearly 64 KiB."""
    async with a_server() as port:
        answer = await said(port, b"GET / HTTP/1.0\r\n", *lines, b"\r\n")

    assert len(json.loads(split(answer)[2])["headers"]) == len(lines)


@pytest.mark.parametrize(
    "begin",
    [
        b"GET / HTTP/1.1\r\nx: ",
        b"GET /",
        b"GET / HTTP/1.1\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nx: ",
    ],
    ids=["value", "url", "name", "trailer"],
)
async def test_a_header_that_never_ends_is_refused(begin: bytes) -> None:
    """Without waiting for its end: 431 comes while the client is still sending."""
    async with a_server() as port:
        answer = await said(port, begin, *[b"a" * 1024] * 400)

    assert refusal(answer) == (431, "headers_too_large")


async def test_trailers_that_never_end_are_refused() -> None:
    """However short their lines are."""
    begin = POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    async with a_server() as port:
        answer = await said(port, begin, *[b"x: yyyyyyyyyy\r\n" * 1000] * 40)

    assert refusal(answer) == (431, "headers_too_large")


async def test_a_head_behind_a_request_has_the_same_limit() -> None:
    """Too large for its own sake, in the read that what is before it came by, too."""
    large = b"GET /large HTTP/1.1\r\n" + b"".join(LINE % (at, b"y") for at in range(201)) + b"\r\n"
    async with a_server() as port:
        status, headers, body = split(await said(port, POST + FRAMED + large))

    assert status == 200
    assert len(body) == int(headers["content-length"])


class Hasty(BoundedProtocol):
    """The protocol with a limit for heads that a test can wait for."""

    limits = ProtocolLimits(head_seconds=0.2, linger_seconds=0.1)


@pytest.mark.parametrize(
    "begin", [b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: r\r\nx: "]
)
async def test_a_head_that_stops_is_refused(begin: bytes) -> None:
    """408 in the envelope, then the end of the connection: half a head must not hold a socket."""
    async with a_server(None, Hasty) as port:
        answer = await said(port, begin)

    assert refusal(answer) == (408, "headers_timeout")


@pytest.mark.parametrize("begin", [b"", b"\r\n"])
async def test_a_connection_that_asks_nothing_is_closed(begin: bytes) -> None:
    """Without a word: there is no request to answer."""
    async with a_server(None, Hasty) as port:
        assert await said(port, begin) == b""


async def test_half_a_head_behind_an_answer_does_not_spoil_it() -> None:
    """The first request is answered, however long it takes; then the connection ends."""
    application = Application()
    async with a_server(application, Hasty) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /flood HTTP/1.1\r\nHost: r\r\n\r\nGET /")
        loop = asyncio.get_running_loop()
        end = loop.time() + 3 * Hasty.limits.head_seconds
        while loop.time() < end:
            await asyncio.wait_for(reader.readexactly(1 << 16), SECONDS)
        was_answered = not application.left.is_set()
        writer.close()
        await asyncio.wait_for(application.left.wait(), SECONDS)

    assert was_answered


async def test_a_kept_connection_may_be_silent_for_longer_than_a_head() -> None:
    """Between requests the keep-alive's limit holds."""
    async with a_server(None, Hasty) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for _ in range(2):
                writer.write(POST + FRAMED)
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
                await reader.readexactly(int(split(head)[1]["content-length"]))
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 2 * Hasty.limits.head_seconds)
        finally:
            writer.close()


async def test_trailers_are_no_headers() -> None:
    """What comes after the body changes nothing of what was decided before."""
    trailer = b"0\r\nAuthorization: Bearer x\r\n\r\n"
    async with a_server() as port:
        answer = await said(
            port, POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n", trailer
        )

    assert "authorization" not in json.loads(split(answer)[2])["headers"]


async def test_a47_a_client_that_never_reads_is_dropped() -> None:
    """After the limit without progress the application hears that its client is gone."""
    application = Application()
    async with a_server(application, Impatient) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /flood HTTP/1.1\r\nHost: r\r\n\r\n")
        try:
            await asyncio.wait_for(application.left.wait(), SECONDS)
        finally:
            writer.close()


async def test_a47_a_client_that_reads_slowly_is_kept() -> None:
    """Whoever takes some bytes within each limit may take as long as it likes."""
    application = Application()
    async with a_server(application, Impatient) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /flood HTTP/1.1\r\nHost: r\r\n\r\n")
        loop = asyncio.get_running_loop()
        end = loop.time() + 5 * Impatient.limits.write_seconds
        while loop.time() < end:
            await asyncio.wait_for(reader.readexactly(1 << 20), SECONDS)
        was_kept = not application.left.is_set()
        writer.close()
        await asyncio.wait_for(application.left.wait(), SECONDS)

    assert was_kept
