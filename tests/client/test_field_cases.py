"""Failures seen in the field, by their numbers, from the client's side."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sglr_client import (
    AsyncClient,
    BreakerPolicy,
    BreakerState,
    ClientError,
    Limits,
    LineTooLongError,
    RefusedError,
    RetryPolicy,
    ServerError,
    TruncatedStreamError,
)
from sglr_client.sse import EventParser
from sglr_client.testing import Drop, Fail, MockServer, Raw, Say
from support.client_doors import HI, Door, eventually, failure_of

KIB = 1024
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"text"}}]}'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'


def long_chunk(size: int) -> tuple[str, bytes]:
    """Return a content of *size* bytes of two-byte characters, and its chunk's frame."""
    content = "é" * (size // 2)
    chunk = {"choices": [{"index": 0, "delta": {"content": content}}]}
    return content, b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


def pieces(stream: bytes, size: int) -> Iterator[bytes]:
    """Yield *stream* in pieces of *size* bytes; an odd offset cuts inside a character."""
    return (stream[at : at + size] for at in range(0, len(stream), size))


@pytest.mark.parametrize("length", [70 * KIB, 600 * KIB, 3 * KIB * KIB])
@pytest.mark.parametrize("write", [KIB + 1, 64 * KIB + 1])
async def test_a06_a_long_line_is_read_whole(
    door: Door, mock_server: MockServer, length: int, write: int
) -> None:
    """A06: 70 KiB, 600 KiB, 3 MiB in one line, cut inside characters, then normal lines."""
    content, frame = long_chunk(length)
    mock_server.play(Raw(list(pieces(frame + STOP + b"\n\n", write))))

    received = await door.stream()

    assert received.error is None
    assert received.text == content


@pytest.mark.parametrize("length", [70 * KIB, 600 * KIB])
def test_a06_single_bytes_make_a_long_line_too(length: int) -> None:
    """A06: byte by byte, without quadratic work."""
    _, frame = long_chunk(length)
    parser = EventParser()

    events = [event for byte in frame for event in parser.feed(bytes([byte]))]

    assert [event.data for event in events] == [frame[6:-2]]


async def test_a06_above_the_cap_there_is_a_typed_error(
    open_door: Any, mock_server: MockServer
) -> None:
    """A06: it names the cap, and what came before is kept."""
    _, frame = long_chunk(70 * KIB)
    mock_server.play(Raw([CHUNK + b"\n\n" + frame]))

    received = await open_door(limits=Limits(line=64 * KIB)).stream()

    assert received.text == "text"
    assert isinstance(received.error, LineTooLongError)
    assert "65536" in str(received.error)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
async def test_a07_control_records_are_survived(
    door: Door, mock_server: MockServer, end: bytes
) -> None:
    """A07: retry, id, comments, empty data, no space, two data lines; no [DONE] after the finish."""
    first, second = CHUNK.split(b",", 1)
    records: list[list[bytes]] = [
        [b"retry: 3000"],
        [b"id: 7"],
        [b": ping"],
        [b"data:"],
        [CHUNK],
        [CHUNK.replace(b"data: ", b"data:")],
        [first + b",", b"data: " + second],
        [STOP],
    ]
    mock_server.play(Raw([end.join([*record, b"", b""]) for record in records]))

    received = await door.stream()

    assert (received.text, received.error) == ("text" * 3, None)


async def test_a07_the_error_record_raises(door: Door, mock_server: MockServer) -> None:
    """A07: as an error of the server, with its message."""
    error = b'event: error\ndata: {"error":{"message":"x"}}'
    mock_server.play(Raw([CHUNK + b"\n\n", error + b"\n\n"]))

    received = await door.stream()

    assert received.text == "text"
    assert isinstance(received.error, ServerError)
    assert str(received.error) == "x"


async def test_a07_the_end_before_a_finish_reason_is_truncation(
    door: Door, mock_server: MockServer
) -> None:
    """A07: silence is not success."""
    mock_server.play(Raw([CHUNK + b"\n\n"]))

    assert isinstance((await door.stream()).error, TruncatedStreamError)


async def test_a10_dead_connections_end_in_one_error_in_time(
    open_door: Any, mock_server: MockServer
) -> None:
    """A10: all attempts failing takes three of them, no more, within the one deadline."""
    mock_server.default = Drop()
    began = time.monotonic()

    error = await failure_of(open_door(retry=RetryPolicy(initial=0.2, jitter=0.0)), timeout=10.0)

    assert error.kind == "connection_lost"
    assert len(mock_server.requests) == 3
    # Two waits: 0.2 s and 0.4 s. No hot loop, and not past the deadline.
    assert 0.6 <= time.monotonic() - began < 10.0


async def test_a10_the_deadline_bounds_all_attempts_together(
    open_door: Any, mock_server: MockServer
) -> None:
    """A10: a wait that would pass it is not begun."""
    mock_server.default = Fail(503)
    began = time.monotonic()

    await failure_of(open_door(retry=RetryPolicy(initial=1.5, jitter=0.0)), timeout=4.0)

    assert len(mock_server.requests) == 2
    assert time.monotonic() - began < 4.0


@pytest.mark.parametrize("status", [400, 401, 404, 408, 409, 413, 422])
async def test_a11_deterministic_errors_are_asked_once(
    door: Door, mock_server: MockServer, status: int
) -> None:
    """A11: no 4xx but 429 is repeated, streamed or not."""
    mock_server.play(Fail(status), Fail(status))

    error = await failure_of(door)
    received = await door.stream()

    assert isinstance(error, RefusedError)
    assert error.status == status
    assert isinstance(received.error, RefusedError)
    assert len(mock_server.requests) == 2


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a11_passing_errors_are_asked_again(
    door: Door, mock_server: MockServer, status: int
) -> None:
    """A11: 429 and 5xx, three times in all."""
    mock_server.play(Fail(status), Fail(status), Say("at last"))

    assert (await door.chat()).text == "at last"


async def test_a12_bad_requests_do_not_open_the_breaker(
    open_door: Any, mock_server: MockServer
) -> None:
    """A12: after ten refused requests a good one is served."""
    door = open_door(breaker=BreakerPolicy(threshold=3))
    mock_server.play(*(Fail(status) for status in [400, 404, 413, 422, 401] * 2))
    errors = [await failure_of(door) for _ in range(10)]

    assert all(isinstance(error, RefusedError) for error in errors)
    assert (await door.chat()).text == "Hello!"


async def test_a13_busy_is_not_broken(open_door: Any, mock_server: MockServer) -> None:
    """A13: right after a crowd the next call is served, without a cooldown."""
    door = open_door(breaker=BreakerPolicy(threshold=3), retry=RetryPolicy(attempts=1))
    mock_server.play(*(Fail(status) for status in [503, 429] * 10))
    for _ in range(20):
        await failure_of(door)

    assert (await door.chat()).text == "Hello!"
    assert door.client.rules.breaker is not None
    assert door.client.rules.breaker.state(time.monotonic()) is BreakerState.CLOSED


async def test_a49_three_hundred_streams_at_once(mock_server: MockServer) -> None:
    """A49: with the limit raised all of them reach the server together, and all are whole."""
    mock_server.default = Say("a b c d e", gap=0.3)
    texts: list[str] = []

    async def listen(client: AsyncClient) -> None:
        async with client.chat_stream("m", HI) as stream:
            texts.append("".join([chunk.text async for chunk in stream]))

    async with AsyncClient(mock_server.url, limits=Limits(connections=300)) as client:
        async with asyncio.TaskGroup() as group:
            for _ in range(300):
                group.create_task(listen(client))
        again = mock_server.connections
        await client.chat("m", HI)

    assert texts == ["a b c d e"] * 300
    assert mock_server.peak == 300
    assert mock_server.connections == again == 300


async def test_a49_the_limit_is_the_documented_one(mock_server: MockServer) -> None:
    """A49: by default 100 at once; the others wait their turn instead of failing."""
    mock_server.default = Say("ok", wait=0.05)
    async with AsyncClient(mock_server.url) as client:
        answers = await client.batch_chat([{"model": "m", "messages": HI}] * 150, concurrency=150)

    assert not [answer for answer in answers if isinstance(answer, ClientError)]
    assert mock_server.peak <= 100
    assert mock_server.connections <= 100
    await eventually(lambda: mock_server.in_flight == 0)
