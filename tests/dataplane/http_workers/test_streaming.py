"""Field failures about streams and cancelling, with HTTP workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from sglr_client.testing import Hang, MockServer, Raw, Say, Then
from support.http_workers import MODEL, a_chat, an_http_backend
from support.router import SECONDS, RunningRouter, eventually, running_router

PATH = "/v1/chat/completions"


def chunk(text: str, **fields: Any) -> bytes:
    """Return one event of a chat."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **fields}
    return b"data: " + json.dumps({"choices": [choice]}, ensure_ascii=False).encode() + b"\n\n"


END = chunk("", finish_reason="stop")
DONE = b"data: [DONE]\n\n"
ASKED: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
}


@asynccontextmanager
async def router_and_worker(
    folder: Path, **fields: Any
) -> AsyncGenerator[tuple[RunningRouter, MockServer]]:
    """Run a router over one mock worker; *fields* are the router's."""
    with MockServer([MODEL]) as worker:
        async with running_router(folder, an_http_backend(worker), **fields) as router:
            yield router, worker


async def in_flight(router: RunningRouter) -> float:
    """Return how many jobs the router says its worker has."""
    text = (await router.http.get("/metrics")).text
    lines = [line for line in text.splitlines() if line.startswith("sglr_worker_in_flight{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


@pytest.mark.parametrize("size", [70 * 2**10, 600 * 2**10, 3 * 2**20])
@pytest.mark.parametrize("width", [1024, 65_536])
async def test_a06_long_lines_arrive_whole(tmp_path: Path, size: int, width: int) -> None:
    """A06: a line of megabytes passes, cut within characters or not."""
    stream = chunk("é" * (size // 2)) + chunk("x") + END + DONE
    parts = [stream[at : at + width] for at in range(0, len(stream), width)]
    async with router_and_worker(tmp_path) as (router, worker):
        worker.play(Raw(parts))
        answer = await router.http.post(PATH, json=a_chat(stream=True))

    assert answer.content == stream


async def test_a07_the_sdk_reads_what_control_records_would_end(tmp_path: Path) -> None:
    """A07: openai-python lives through a stream that it would not live through from the worker."""
    records = b"retry: 3000\n\nid: 7\n\n: ping\n\ndata:\n\nevent: ping\ndata:\n\n"
    events = [records, chunk("Hel"), records, chunk("lo"), END, records]
    async with router_and_worker(tmp_path) as (router, worker), router.sdk() as sdk:
        for end in (b"\n", b"\r\n"):
            worker.play(Raw([event.replace(b"\n", end) for event in [*events, DONE]]))
            stream = await sdk.chat.completions.create(**ASKED)
            texts = [each.choices[0].delta.content async for each in stream]

            assert texts == ["Hel", "lo", ""]


async def test_a07_an_error_record_raises_in_the_sdk(tmp_path: Path) -> None:
    """A07: after content the SDK raises; the worker's sentence is in it."""
    boom = b'event: error\ndata: {"error":{"message":"boom"}}\n\n'
    async with router_and_worker(tmp_path) as (router, worker), router.sdk() as sdk:
        worker.play(Raw([chunk("Hel"), boom, DONE], gap=0.02))
        stream = await sdk.chat.completions.create(**ASKED)
        with pytest.raises(openai.APIError, match="boom"):
            async for _ in stream:
                pass


async def test_a05_silence_before_the_first_token_is_broken(tmp_path: Path) -> None:
    """A05: comments keep proxies from cutting a stream that waits."""
    async with router_and_worker(tmp_path, keepalive=0.05) as (router, worker):
        worker.play(Say("Hi.", wait=0.3))
        answer = await router.http.post(PATH, json=a_chat(stream=True))

    assert answer.text.startswith(": keep-alive\n\n")
    assert answer.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("stream", "play"),
    [(False, Hang()), (True, Hang()), (True, Say("word " * 1000, gap=0.05))],
    ids=["whole", "silent stream", "talking stream"],
)
async def test_a08_a_client_that_leaves_ends_the_worker_s_request(
    tmp_path: Path, stream: bool, play: Hang | Say
) -> None:
    """A08, A09: streamed or not, before the first token or after it; no failure of the worker."""
    async with router_and_worker(tmp_path) as (router, worker):
        worker.play(play)
        body = json.dumps(a_chat(stream=stream)).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", int(router.url.rpartition(":")[2]))
        writer.write(
            b"POST %b HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % (PATH.encode(), len(body)) + body
        )
        await eventually(lambda: worker.generations)
        writer.close()
        await writer.wait_closed()

        await eventually(worker.generations[0].left.is_set, seconds=2)
        await eventually(lambda: _is_idle(router))
        text = (await router.http.get("/metrics")).text

    assert 'outcome="failed"' not in text
    assert "Traceback" not in text


async def _is_idle(router: RunningRouter) -> bool:
    return await in_flight(router) == 0


async def test_a49_three_hundred_streams_reach_one_worker(tmp_path: Path) -> None:
    """A49: no hidden ceiling of connections stands between."""
    count = 300
    async with router_and_worker(tmp_path) as (router, worker):
        worker.default = Raw([chunk("a")], then=Then.HANG)
        port = int(router.url.rpartition(":")[2])
        body = json.dumps(a_chat(stream=True)).encode()
        request = (
            b"POST %b HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % (PATH.encode(), len(body)) + body
        )
        writers: list[asyncio.StreamWriter] = []
        for _ in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            writers.append(writer)
        await eventually(lambda: worker.peak >= count)
        for writer in writers:
            writer.close()
        await eventually(lambda: _is_idle(router))

    assert worker.peak >= count


async def test_a47_a_client_that_does_not_read_holds_the_worker_back(tmp_path: Path) -> None:
    """A47: the worker is not read from while its client is not; memory stays."""
    part = chunk("x" * 65_000)
    async with router_and_worker(tmp_path) as (router, worker):
        worker.play(Raw([part] * 3000))
        body = json.dumps(a_chat(stream=True)).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", int(router.url.rpartition(":")[2]))
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it
        writer.write(
            b"POST %b HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % (PATH.encode(), len(body)) + body
        )
        await eventually(lambda: worker.generations)
        request = worker.generations[0]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await asyncio.to_thread(request.answered.wait, 0.4)
        writer.close()
        await eventually(request.left.is_set, seconds=SECONDS)

    assert not request.answered.is_set()


async def test_several_choices_need_all_their_finishes(tmp_path: Path) -> None:
    """A stream without [DONE] is whole with n finish reasons, and truncated with fewer."""
    both = [chunk("a"), END, END.replace(b'"index": 0', b'"index": 1')]
    async with router_and_worker(tmp_path) as (router, worker):
        worker.play(Raw(both), Raw(both[:2]))
        whole = await router.http.post(PATH, json=a_chat(stream=True, n=2))
        cut = await router.http.post(PATH, json=a_chat(stream=True, n=2))

    assert "error" not in whole.text
    assert '"code":"truncated_stream"' in cut.text
