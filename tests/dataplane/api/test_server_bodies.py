"""Bodies that stop, in other charsets, and crashes after the answer has begun."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from starlette.routing import Router as Routes
from uvicorn.lifespan.off import LifespanOff

from sglr_dataplane.api.access import Access
from sglr_dataplane.api.auth import Guard
from sglr_dataplane.api.drain import Drain
from sglr_dataplane.api.exchange import Exchange
from sglr_dataplane.api.front_door import Endpoint, FrontDoor
from sglr_dataplane.api.http_protocol import BoundedProtocol
from sglr_dataplane.api.presence import Presence
from sglr_dataplane.api.refusals import ProtocolLimits
from sglr_dataplane.api.server import new_server
from sglr_dataplane.api.sse import failure_frame
from sglr_dataplane.config import DrainSettings
from sglr_dataplane.errors import RouterError
from sglr_dataplane.fleet.backend_keys import BackendKeys
from sglr_dataplane.fleet.keys import Keys
from sglr_dataplane.fleet.rates import Meter
from sglr_dataplane.metrics import RouterMetrics
from support.router import RunningRouter, eventually
from support.served import served

SECONDS = 10.0
PATH = "/v1/chat/completions"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 10\r\n\r\n"


@asynccontextmanager
async def answered_by(
    endpoint: Endpoint, metrics: RouterMetrics, limits: ProtocolLimits | None = None
) -> AsyncGenerator[int]:
    """Serve *endpoint* behind the front door, and yield the port."""
    clock = asyncio.get_running_loop().time
    app = FrontDoor(
        {PATH: endpoint},
        Routes(),
        guard=Guard(keys=Keys(None), backend_keys=BackendKeys(), meter=Meter(clock)),
        drain=Drain(DrainSettings()),
        access=Access(metrics, clock=clock, log=False),
        tracing=None,
    )
    server = new_server(app, Drain(DrainSettings()))
    server.config.lifespan_class = LifespanOff
    if limits is not None:
        server.config.http_protocol_class = type("Limited", (BoundedProtocol,), {"limits": limits})
    async with served(server) as port:
        yield port


async def said(port: int, sent: bytes) -> tuple[bytes, bytes]:
    """Return head and body of all that is answered to *sent*, up to the close."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        head, _, body = (await asyncio.wait_for(reader.read(), SECONDS)).partition(b"\r\n\r\n")
    finally:
        writer.close()
    return head, body


def counted(metrics: RouterMetrics, name: str, **labels: str) -> float | None:
    """Return the value of a series."""
    return metrics.registry.get_sample_value(name, labels)


@pytest.mark.parametrize("begun", [b"", b'{"a"'])
async def test_a_body_that_stops_is_refused(begun: bytes) -> None:
    """408 in the envelope after the limit, the connection closed, nothing in flight."""
    metrics = RouterMetrics()

    async def endpoint(exchange: Exchange) -> None:
        await exchange.body(1000, seconds=0.1)

    async with answered_by(endpoint, metrics) as port:
        head, body = await said(port, POST + begun)

    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["error"]["code"] == "body_timeout"
    assert counted(metrics, "sglr_requests_in_flight") == 0
    assert counted(metrics, "sglr_requests_total", route=PATH, outcome="body_timeout") == 1


async def test_a_body_that_came_whole_and_is_too_large_is_refused_at_once() -> None:
    """Without a declared length, complete before it is read: there is nothing left to wait for."""
    metrics = RouterMetrics()

    async def endpoint(exchange: Exchange) -> None:
        await asyncio.wait_for(exchange.body(9), 3)

    async with answered_by(endpoint, metrics) as port:
        head = POST.replace(b"Content-Length: 10", b"Transfer-Encoding: chunked")
        answer, body = await said(port, head + b"a\r\n0123456789\r\n0\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(body)["error"]["code"] == "request_too_large"


async def test_a_crash_within_a_stream_is_an_error_frame(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Internal error and [DONE] follow what was sent; the log has the traceback; it is a failure."""
    metrics = RouterMetrics()

    async def endpoint(exchange: Exchange) -> None:
        await exchange.body(1000)
        try:
            with Presence(exchange):
                await exchange.send_events(b"data: {}\n\n")
                raise KeyError("secret")
        except RouterError as failure:
            await exchange.fail(failure, failure_frame)

    async with answered_by(endpoint, metrics) as port:
        sent = POST.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0123456789"
        head, body = await said(port, sent)

    first, error, done, end = body.split(b"\n\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert (first, done, end) == (b"data: {}", b"data: [DONE]", b"")
    assert json.loads(error[6:])["error"]["code"] == "internal_error"
    assert b"secret" not in body
    assert "KeyError: 'secret'" in caplog.text
    assert counted(metrics, "sglr_requests_total", route=PATH, outcome="internal_error") == 1


@pytest.mark.parametrize(
    ("declared", "status"),
    [
        ("application/json; charset=utf-16", 415),
        ("application/json; boundary=x; Charset=latin1", 415),
        ('application/json; charset="UTF-8"', 200),
        ("application/json;charset=utf-8", 200),
        ("application/json", 200),
    ],
)
async def test_json_is_read_in_utf_8(shared: RunningRouter, declared: str, status: int) -> None:
    """A body that is declared in another charset is refused, not misread."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hello"}]})
    answer = await shared.http.post(PATH, content=body, headers={"content-type": declared})

    assert answer.status_code == status
    if status != 200:
        assert answer.json()["error"]["code"] == "unsupported_media_type"


async def test_a47_a_client_that_never_reads_ends_its_request() -> None:
    """The block in which a worker is called is cancelled, and nothing stays in flight."""
    metrics = RouterMetrics()
    cancelled = asyncio.Event()

    async def endpoint(exchange: Exchange) -> None:
        await exchange.body(1000)
        with Presence(exchange, 0.01):
            try:
                while True:
                    await exchange.send_events(b"data: " + b"x" * 65536 + b"\n\n")
                    await asyncio.sleep(0)  # as for a worker's next chunk
            except asyncio.CancelledError:
                cancelled.set()
                raise

    limits = ProtocolLimits(write_seconds=0.1)
    async with answered_by(endpoint, metrics, limits) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(POST + b"0123456789")
        try:
            await asyncio.wait_for(cancelled.wait(), SECONDS)
            await eventually(lambda: counted(metrics, "sglr_requests_in_flight") == 0)
        finally:
            writer.close()

    labels = {"route": PATH, "outcome": "client_closed_request"}
    assert counted(metrics, "sglr_requests_total", **labels) == 1
