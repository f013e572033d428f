"""Faults of servers and networks, and what callers learn of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest
from ports import reserved_port

from sglr_client import (
    AuthenticationError,
    Breaker,
    BreakerOpenError,
    BreakerPolicy,
    ConnectFailedError,
    ConnectionLostError,
    DeadlineError,
    InvalidAnswerError,
    InvalidRequestError,
    Limits,
    NotFoundError,
    RefusedError,
    RetryPolicy,
    ServerError,
    StreamError,
    Timeouts,
    TlsError,
    TruncatedStreamError,
)
from sglr_client.testing import Drop, Fail, Hang, MockServer, Raw, Say, Then
from support.client_doors import Door, eventually, failure_of

HEAD = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"worker died","type":"server_error","code":"worker_error"}}\n\n'


async def test_a_refusal_tells_all_it_knows(door: Door, mock_server: MockServer) -> None:
    """Status, type, code and the server's sentence."""
    mock_server.play(Fail(404, "no model 'm'", "invalid_request_error", "model_not_found"))

    error = await failure_of(door)

    assert isinstance(error, NotFoundError)
    assert (error.status, error.type, error.code) == (
        404,
        "invalid_request_error",
        "model_not_found",
    )
    assert str(error) == "no model 'm'"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, InvalidRequestError), (401, AuthenticationError), (403, AuthenticationError)],
)
async def test_statuses_have_classes(
    door: Door, mock_server: MockServer, status: int, kind: type[RefusedError]
) -> None:
    """So that callers need not compare numbers."""
    mock_server.play(Fail(status))

    assert type(await failure_of(door)) is kind


async def test_an_error_in_no_shape_is_shown(door: Door, mock_server: MockServer) -> None:
    """A proxy's page is quoted, not lost."""
    mock_server.play(Raw([b"<html>Bad Gateway"], status=400, content_type="text/html"))

    assert str(await failure_of(door)) == "The server answered 400: <html>Bad Gateway"


async def test_an_error_under_status_200_is_an_error(door: Door, mock_server: MockServer) -> None:
    """Some gateways answer so, with and without streaming."""
    mock_server.default = Raw(
        [b'{"error":{"message":"no","type":"invalid_request_error"}}'],
        content_type="application/json",
    )

    assert isinstance(await failure_of(door), InvalidRequestError)
    assert isinstance((await door.stream()).error, InvalidRequestError)


async def test_an_answer_that_is_none_is_told(door: Door, mock_server: MockServer) -> None:
    """JSON that breaks the API's promise, and a stream that is none."""
    mock_server.play(
        Raw([b'{"choices":3}'], content_type="application/json"),
        Raw([b'{"choices":[]}'], content_type="application/json"),
    )

    assert isinstance(await failure_of(door), InvalidAnswerError)
    assert type((await door.stream()).error) is StreamError


async def test_an_answer_above_the_limit_is_not_read(
    open_door: Any, mock_server: MockServer
) -> None:
    """Memory is bounded."""
    mock_server.play(Raw([b"x" * 1000] * 3, content_type="application/json", then=Then.HANG))

    error = await failure_of(open_door(limits=Limits(answer=1500)))

    assert "1500 bytes" in str(error)


async def test_nobody_listening_is_a_failed_connection(open_door: Any) -> None:
    """After three attempts."""
    door = open_door(f"http://127.0.0.1:{reserved_port()}")

    assert isinstance(await failure_of(door), ConnectFailedError)


async def test_a_tls_failure_is_not_retried(open_door: Any) -> None:
    """A plain server behind an https URL stays one."""
    writers: list[asyncio.StreamWriter] = []

    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writers.append(writer)

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        door = open_door(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        error = await failure_of(door)
        for writer in writers:
            writer.close()
            with contextlib.suppress(ConnectionError):  # the client may have reset it
                await writer.wait_closed()

    assert isinstance(error, TlsError)
    assert len(writers) == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fail(500),
        Fail(502),
        Fail(503),
        Fail(429),
        Drop(),
        Raw([], then=Then.RESET),
        Raw([], then=Then.CUT),
        Raw([b": ping\n\n", HEAD], then=Then.RESET),
        Raw([HEAD], then=Then.CUT),
        Raw([HEAD], then=Then.END),
        Raw([HEAD, ERROR], then=Then.END),
    ],
    ids=str,
)
async def test_a_stream_is_tried_again_before_its_first_content(
    door: Door, mock_server: MockServer, fault: Any
) -> None:
    """The caller sees one stream, with one role chunk."""
    mock_server.play(fault, fault, Say("all well"))

    received = await door.stream()

    assert received.error is None
    assert received.text == "all well"
    assert [c.choices[0].delta.role for c in received.chunks].count("assistant") == 1
    assert len(mock_server.requests) == 3


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Raw([HEAD, WORD], then=Then.RESET), ConnectionLostError),
        (Raw([HEAD, WORD], then=Then.CUT), ConnectionLostError),
        (Raw([HEAD, WORD], then=Then.END), TruncatedStreamError),
        (Raw([HEAD, WORD, ERROR, DONE], then=Then.END), ServerError),
    ],
    ids=["reset", "cut", "end", "error"],
)
async def test_a_stream_is_not_tried_again_after_its_first_content(
    door: Door, mock_server: MockServer, fault: Any, kind: type[Exception]
) -> None:
    """What came is kept, and the failure is told: A04, seen from the client's side."""
    mock_server.play(fault)

    received = await door.stream()

    assert received.text == "word"
    assert type(received.error) is kind
    assert len(mock_server.requests) == 1


@pytest.mark.parametrize("then", [Then.END, Then.CUT, Then.RESET])
async def test_the_end_may_come_without_done(
    door: Door, mock_server: MockServer, then: Then
) -> None:
    """After the finish reason the answer is complete, however the connection ends."""
    mock_server.play(Raw([HEAD, WORD, STOP, b": end\n\n"], then=then, gap=0.02))

    received = await door.stream()

    assert (received.text, received.error) == ("word", None)


async def test_done_is_the_end_though_the_connection_stays(
    door: Door, mock_server: MockServer
) -> None:
    """A server that forgets to end the body does not hold the caller."""
    mock_server.play(Raw([WORD, STOP, DONE], then=Then.HANG))
    began = time.monotonic()

    received = await door.stream()

    assert (received.text, received.error) == ("word", None)
    assert time.monotonic() - began < 15


async def test_a_non_streamed_body_that_breaks_off_is_asked_again(
    door: Door, mock_server: MockServer
) -> None:
    """Nothing of it was handed out."""
    half = Raw([b'{"choices":['], content_type="application/json", then=Then.RESET)
    mock_server.play(half, Say("whole"))

    assert (await door.chat()).text == "whole"


@pytest.mark.parametrize(
    "play",
    [Hang(), Raw([b": ping\n\n"] * 1000, gap=0.02), Raw([b"x"] * 1000, gap=0.02)],
    ids=["silent", "keep-alives", "trickle"],
)
async def test_a_call_ends_in_its_time(door: Door, mock_server: MockServer, play: Any) -> None:
    """Whatever trickles in meanwhile: silence, comments or a body without end."""
    mock_server.default = play
    began = time.monotonic()

    error = await failure_of(door, timeout=0.3)
    received = await door.stream(timeout=0.3)

    assert isinstance(error, DeadlineError)
    assert isinstance(received.error, DeadlineError)
    assert time.monotonic() - began < 15


async def test_content_in_time_lets_a_stream_go_on(door: Door, mock_server: MockServer) -> None:
    """The timeout is for the first content; a long answer is not cut."""
    mock_server.play(Say("a b c d e f", gap=0.1))

    received = await door.stream(timeout=0.3)

    assert (received.text, received.error) == ("a b c d e f", None)


async def test_a_silent_stream_is_given_up(door: Door, mock_server: MockServer) -> None:
    """After its idle time."""
    mock_server.play(Raw([WORD], then=Then.HANG))

    received = await door.stream(timeout=Timeouts(idle=0.1))

    assert isinstance(received.error, DeadlineError)
    assert received.error.phase == "idle"
    assert received.text == "word"


async def test_a_whole_stream_can_be_bounded(door: Door, mock_server: MockServer) -> None:
    """However lively it is."""
    mock_server.play(Raw([WORD] * 1000, gap=0.02))

    received = await door.stream(timeout=Timeouts(stream_total=0.2))

    assert isinstance(received.error, DeadlineError)
    assert received.error.phase == "total"


async def test_a_late_head_is_tried_again(door: Door, mock_server: MockServer) -> None:
    """The headers' time is the network's, within the call's own."""
    mock_server.play(Hang(), Say("second"))

    received = await door.stream(timeout=Timeouts(headers=0.1))

    assert (received.text, received.error) == ("second", None)


async def test_a_full_pool_says_so(open_door: Any, mock_server: MockServer) -> None:
    """The error names the limit, and waiting for a place is not another attempt."""
    door = open_door(limits=Limits(connections=1))
    mock_server.play(Hang())
    first = asyncio.create_task(failure_of(door, timeout=1.0))
    await eventually(lambda: mock_server.in_flight == 1)

    error = await failure_of(door, timeout=0.1)

    assert isinstance(error, DeadlineError)
    assert error.phase == "pool"
    assert "All 1 connections" in str(error)
    await first


async def test_retry_after_is_waited_for(open_door: Any, mock_server: MockServer) -> None:
    """Not less than the server asked."""
    mock_server.play(Fail(429, retry_after=0.3), Say("now"))
    began = time.monotonic()

    answer = await open_door(retry=RetryPolicy(initial=0.001)).chat()

    assert answer.text == "now"
    assert time.monotonic() - began >= 0.3


async def test_retry_after_past_the_deadline_fails_at_once(
    door: Door, mock_server: MockServer
) -> None:
    """Waiting could not help."""
    mock_server.play(Fail(503, retry_after=30))
    began = time.monotonic()

    error = await failure_of(door, timeout=15.0)

    assert isinstance(error, RefusedError)
    assert error.retry_after == 30
    assert time.monotonic() - began < 10


async def test_a_storm_of_failures_does_not_triple_the_load(
    open_door: Any, mock_server: MockServer
) -> None:
    """Beyond the reserve, retries are a fifth of the requests."""
    door = open_door(retry=RetryPolicy(initial=0.001, reserve=2.0), breaker=None)
    mock_server.default = Fail(500)

    for _ in range(20):
        await failure_of(door)

    assert 20 + 4 <= len(mock_server.requests) <= 20 + 2 + 4


async def test_a_broken_host_is_left_alone_and_then_probed(
    open_door: Any, mock_server: MockServer
) -> None:
    """Open: nothing is sent. After the cooldown one good answer closes it."""
    breaker = Breaker(BreakerPolicy(threshold=2, cooldown=0.3))
    door = open_door(retry=RetryPolicy(attempts=1), breaker=breaker)
    mock_server.play(Fail(500), Drop())
    for _ in range(2):
        await failure_of(door)

    refused = await failure_of(door)

    assert isinstance(refused, BreakerOpenError)
    assert len(mock_server.requests) == 2
    await eventually(lambda: breaker.state(time.monotonic()) == "half_open")
    assert (await door.chat()).text == "Hello!"
    assert breaker.state(time.monotonic()) == "closed"


async def test_a_probe_that_is_left_gives_its_place_back(
    open_door: Any, mock_server: MockServer
) -> None:
    """A caller who leaves the probing stream does not block the host for ever."""
    door = open_door(
        retry=RetryPolicy(attempts=1), breaker=BreakerPolicy(threshold=1, cooldown=0.01)
    )
    mock_server.play(Fail(500), Raw([HEAD], then=Then.HANG))
    await failure_of(door)
    await eventually(lambda: door.client.rules.breaker.state(time.monotonic()) == "half_open")
    left = await door.stream(timeout=Timeouts(total=0.1))

    assert isinstance(left.error, DeadlineError)
    await eventually(lambda: door.client.rules.breaker.state(time.monotonic()) == "half_open")
    assert (await door.chat()).text == "Hello!"


async def test_a_header_that_cannot_be_sent_is_told(door: Door, mock_server: MockServer) -> None:
    """And nothing is sent."""
    error = await failure_of(door, headers={"x-bad": "a\nb"})

    assert error.kind == "unsendable"
    assert mock_server.requests == []
