"""What leaves past ASGI is what leaves through it, whatever the connection is and does."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from sglr_dataplane.api.cycle import Cycle
from sglr_dataplane.api.drain import Drain
from sglr_dataplane.api.server import new_server
from sglr_dataplane.app import Router
from sglr_dataplane.config import DrainSettings, RouterConfig, ServerTls
from sglr_dataplane.sim.script import Incident, Play, Rule, Script
from sglr_dataplane.sim.worker import SimWorker
from support.router import RunningRouter, a_worker, eventually, manifest, running_router
from support.served import served
from support.sim import sim_worker

SECONDS = 15.0
TEXT = "It is 12 °C — 你好, 🙂 né. " * 4
PEMS = Path(__file__).parents[2] / "support" / "h2tls"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


BODY: Any = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}


def a_request(*lines: str, version: str = "1.1") -> bytes:
    """Return a request for a stream, as its bytes."""
    body = json.dumps(BODY).encode()
    head = [
        f"POST /v1/chat/completions HTTP/{version}",
        "Host: r",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *lines,
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


async def connected(router: RunningRouter) -> Streams:
    """Return a connection to *router*."""
    return await asyncio.open_connection("127.0.0.1", int(router.url.rpartition(":")[2]))


async def head_of(reader: asyncio.StreamReader) -> dict[str, str]:
    """Return the status and the headers of the next answer."""
    async with asyncio.timeout(SECONDS):
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    return {"status": status.split()[1], **dict(line.lower().split(": ", 1) for line in lines)}


async def chunks_of(reader: asyncio.StreamReader) -> bytes:
    """Return the body of an answer in chunks; fails on any that is not framed to the byte."""
    body = b""
    async with asyncio.timeout(SECONDS):
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            assert await reader.readexactly(2) == b"\r\n"
        assert await reader.readexactly(2) == b"\r\n"
    return body


def text_of(body: bytes) -> str:
    """Return the text of a stream that is complete."""
    *frames, done, rest = body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    choices = [json.loads(frame.removeprefix("data: "))["choices"][0] for frame in frames]
    assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["stop"]
    return "".join(choice["delta"].get("content", "") for choice in choices)


@pytest.fixture
async def router(tmp_path: Path) -> AsyncGenerator[RunningRouter]:
    """Return a ready router over a worker that says a text, two tokens in a chunk."""
    async with (
        a_worker(Play(text=TEXT)) as worker,
        running_router(tmp_path, manifest(worker.address)) as running,
    ):
        yield running


async def test_a_connection_is_kept_for_the_next_stream(router: RunningRouter) -> None:
    """Every answer is framed to its end, so that the next one begins where it should."""
    reader, writer = await connected(router)
    try:
        for _ in range(3):
            writer.write(a_request())
            head = await head_of(reader)
            assert (head["status"], head["transfer-encoding"]) == ("200", "chunked")
            assert text_of(await chunks_of(reader)) == TEXT
    finally:
        writer.close()


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """Have memory freed by reference counts alone."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.usefixtures("_no_collector")
async def test_an_answered_request_leaves_nothing_to_the_collector(router: RunningRouter) -> None:
    """Kept connections, new ones and those that a client breaks off: all is freed at once."""

    def left() -> int:
        return sum(isinstance(each, Cycle) for each in gc.get_objects())

    reader, writer = await connected(router)
    try:
        for _ in range(5):
            writer.write(a_request())
            await head_of(reader)
            await chunks_of(reader)
    finally:
        writer.close()
    for _ in range(5):
        reader, writer = await connected(router)
        writer.write(a_request())
        await head_of(reader)
        writer.close()
    await eventually(lambda: left() == 1)  # on the connection that the router was waited for by


async def test_pipelined_streams_are_answered_one_after_the_other(router: RunningRouter) -> None:
    """The second never writes into the first, although both are there from the start."""
    reader, writer = await connected(router)
    try:
        writer.write(a_request() + a_request() + a_request("Connection: close"))
        for _ in range(3):
            assert (await head_of(reader))["status"] == "200"
            assert text_of(await chunks_of(reader)) == TEXT
        assert await asyncio.wait_for(reader.read(), SECONDS) == b""
    finally:
        writer.close()


async def test_http_1_0_gets_the_frames_without_chunks(router: RunningRouter) -> None:
    """Its stream ends with the connection."""
    reader, writer = await connected(router)
    try:
        writer.write(a_request(version="1.0"))
        head = await head_of(reader)
        body = await asyncio.wait_for(reader.read(), SECONDS)
    finally:
        writer.close()

    assert "transfer-encoding" not in head
    assert text_of(body) == TEXT


async def test_head_is_refused_without_a_body(router: RunningRouter) -> None:
    """And the connection goes on with the next request."""
    reader, writer = await connected(router)
    try:
        writer.write(b"HEAD /v1/chat/completions HTTP/1.1\r\nHost: r\r\n\r\n")
        assert (await head_of(reader))["status"] == "405"
        writer.write(a_request())
        assert (await head_of(reader))["status"] == "200"
        assert text_of(await chunks_of(reader)) == TEXT
    finally:
        writer.close()


async def test_a_stream_over_tls_is_whole(tmp_path: Path) -> None:
    """The transport is another one; the frames are the same."""
    tls = ServerTls(str(PEMS / "worker.pem"), str(PEMS / "worker.pem"))
    trust = ssl.create_default_context(cafile=str(PEMS / "ca.pem"))
    async with (
        a_worker(Play(text=TEXT)) as worker,
        running_router(tmp_path, manifest(worker.address), ready=False, tls=tls) as running,
        httpx2.AsyncClient(
            base_url=running.url.replace("http:", "https:"), verify=trust, timeout=SECONDS
        ) as http,
    ):
        await eventually(lambda: _is_ready(http))
        for _ in range(2):
            answer = await http.post("/v1/chat/completions", json=BODY)
            assert text_of(answer.content) == TEXT


async def _is_ready(http: httpx2.AsyncClient) -> bool:
    return (await http.get("/readyz")).status_code == 200


@asynccontextmanager
async def over_h11(folder: Path, worker: SimWorker) -> AsyncGenerator[httpx2.AsyncClient]:
    """Run a router on uvicorn's other protocol and return a client of it."""
    path = folder / "backends.yaml"
    path.write_text(manifest(worker.address))
    router = Router(RouterConfig(manifest=str(path), cache_dir=str(folder)))
    router.apply(router.manifest.load())
    server = new_server(router.app, Drain(DrainSettings()))
    server.config.http_protocol_class = H11Protocol
    async with (
        served(server) as port,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as http,
    ):
        yield http


async def test_a_server_without_an_outlet_streams_through_asgi(tmp_path: Path) -> None:
    """Under h11 nothing is written past ``send``, and the stream is the same."""
    async with (
        a_worker(Play(text=TEXT)) as worker,
        over_h11(tmp_path, worker) as http,
    ):
        await eventually(lambda: _is_ready(http))
        answer = await http.post("/v1/chat/completions", json=BODY)

    assert text_of(answer.content) == TEXT


async def test_a45_a_client_that_vanishes_ends_its_generation(tmp_path: Path) -> None:
    """In the middle of a stream: the worker hears of it, although it says nothing more."""
    play = Play(text=TEXT, incidents=(Incident(after=3, hang=True),))
    async with (
        a_worker(play) as worker,
        running_router(tmp_path, manifest(worker.address)) as running,
    ):
        reader, writer = await connected(running)
        writer.write(a_request())
        await head_of(reader)
        await asyncio.wait_for(reader.readuntil(b'"content":" is"'), SECONDS)
        writer.transport.abort()
        await eventually(lambda: len(worker.recorder.cancelled) == 1)


async def test_a47_a_client_that_does_not_read_stops_its_own_worker_stream_only(
    tmp_path: Path,
) -> None:
    """Others are answered meanwhile; and when it goes, its generation ends."""
    endless = Play(ids=(64,) * 60_000)
    async with (
        a_worker(endless, Play(text=TEXT)) as worker,
        running_router(tmp_path, manifest(worker.address)) as running,
    ):
        asleep = socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2])))
        asleep.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            asleep.sendall(a_request())
            await eventually(lambda: len(worker.recorder.received) == 1)
            reader, writer = await connected(running)
            writer.write(a_request("Connection: close"))
            await head_of(reader)
            assert text_of(await chunks_of(reader)) == TEXT
            writer.close()
            await eventually(lambda: len(worker.recorder.finished) == 1)
            assert not worker.recorder.cancelled
        finally:
            asleep.close()
        await eventually(lambda: len(worker.recorder.cancelled) == 1)


async def test_a49_three_hundred_streams_run_at_once(tmp_path: Path) -> None:
    """All reach the worker and have their first token, over what connections it takes."""
    script = Script(rules=(Rule(play=Play(text=TEXT, incidents=(Incident(after=2, hang=True),))),))
    async with (
        sim_worker(script, model_name="m", max_running_requests=300) as worker,
        running_router(tmp_path, manifest(worker.address)) as running,
        AsyncExitStack() as stack,
    ):
        open_streams: list[Streams] = []
        for _ in range(300):
            reader, writer = await connected(running)
            stack.callback(writer.transport.abort)
            writer.write(a_request())
            open_streams.append((reader, writer))
        async with asyncio.timeout(SECONDS):
            for reader, _ in open_streams:
                await reader.readuntil(b'"content":"I"')
        assert len(worker.recorder.received) == 300
        assert worker.recorder.finished == []
        await stack.aclose()
        await eventually(lambda: len(worker.recorder.cancelled) == 300)
