"""Calls over a channel: answers, limits, and who waits for which connection."""

from __future__ import annotations

import asyncio

import h2.events
import pytest

from sglr_dataplane.engine.channel_options import ChannelOptions
from sglr_dataplane.engine.h2.state import Limits
from sglr_dataplane.engine.h2.status import CallError
from support.h2calls import Listener, a_channel, echo, say
from support.h2peer import (
    DATA,
    LIMIT,
    PeerConnection,
    frame,
    h2_peer,
    head,
    message,
    trailers,
)

MAX_CONCURRENT_STREAMS = 3


def bodies(connection: PeerConnection) -> dict[int, bytes]:
    """Return the request messages so far, by stream."""
    received = connection.events(h2.events.DataReceived)
    return {event.stream_id: event.data[5:] for event in received}


async def test_a_call_is_what_grpc_says_a_request_is() -> None:
    """Method, path, scheme, authority, te, content type, timeout and metadata."""
    async with h2_peer(echo) as peer, a_channel(peer, metadata=[("X-Key", "secret")]) as channel:
        assert await say(channel, b"hello", limit=3) == b"ok"

        connection = peer.connections[0]
        (request,) = connection.events(h2.events.RequestReceived)
        (data,) = connection.events(h2.events.DataReceived)
    fields = dict(request.headers)
    assert fields[b":method"] == b"POST"
    assert fields[b":path"] == b"/test.Echo/Say"
    assert fields[b":scheme"] == b"http"
    assert fields[b":authority"] == b"127.0.0.1:%d" % peer.port
    assert fields[b"te"] == b"trailers"
    assert fields[b"content-type"] == b"application/grpc"
    assert fields[b"grpc-timeout"] == b"3000m"
    assert fields[b"x-key"] == b"secret"
    assert data.data == b"\0\0\0\0\x05hello"


async def test_a_status_other_than_ok_is_raised() -> None:
    """With its code, its decoded message and its trailers."""

    async def refuse(connection: PeerConnection) -> None:
        end = (("grpc-status", "9"), ("grpc-message", "no%20way"), ("why", "because"))
        connection.answer(await connection.request(), end=end)

    async with h2_peer(refuse) as peer, a_channel(peer) as channel:
        with pytest.raises(CallError) as failure:
            await say(channel)

    assert (failure.value.code, failure.value.details) == (9, "no way")
    assert dict(failure.value.trailers)[b"why"] == b"because"


async def test_an_answer_of_trailers_only_is_a_status() -> None:
    """One HEADERS frame is a whole answer."""

    async def refuse(connection: PeerConnection) -> None:
        stream_id = await connection.request()
        fields = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "5")]
        connection.h2.send_headers(stream_id, fields, end_stream=True)
        connection.flush()

    async with h2_peer(refuse) as peer, a_channel(peer) as channel:
        with pytest.raises(CallError) as failure:
            await say(channel)

    assert failure.value.code == 5


@pytest.mark.parametrize("count", [0, 2])
async def test_a_unary_answer_has_one_message(count: int) -> None:
    """None or two are an error, not a guess."""

    async def answer(connection: PeerConnection) -> None:
        connection.answer(await connection.request(), *[b"x"] * count)

    async with h2_peer(answer) as peer, a_channel(peer) as channel:
        with pytest.raises(CallError, match=f"{count} messages"):
            await say(channel)


async def test_a_call_that_gets_no_answer_ends_and_is_cancelled() -> None:
    """The caller's own limit holds, and the worker hears of it."""

    async def ignore(connection: PeerConnection) -> None:
        await connection.request()

    async with h2_peer(ignore) as peer, a_channel(peer) as channel:
        with pytest.raises(CallError) as failure:
            await say(channel, limit=0.1)
        reset = await peer.connections[0].wait_for(h2.events.StreamReset)

    assert failure.value.code == 4
    assert reset.error_code == 8


async def test_all_that_a_read_brings_is_one_call_of_the_listener() -> None:
    """A thousand messages in one write wake the owner far less than a thousand times."""

    async def flood(connection: PeerConnection) -> None:
        await connection.request()
        messages = b"".join(frame(DATA, 0, 1, message(b"%d" % n)) for n in range(1_000))
        connection.send(head() + messages + trailers())

    async with h2_peer(flood) as peer, a_channel(peer) as channel:
        listener = Listener(channel)
        await listener.until_over()

    assert listener.messages == [b"%d" % n for n in range(1_000)]
    assert listener.call.error is None
    assert listener.rings <= 10


async def test_a49_streams_above_the_limit_get_another_connection() -> None:
    """A49: with 100 streams a connection, 300 calls run at once on three connections."""
    running = asyncio.Semaphore(0)
    go_on = asyncio.Event()

    async def answer_together(connection: PeerConnection) -> None:
        requests = [await connection.request() for _ in range(100)]
        for _ in requests:
            running.release()
        await go_on.wait()
        for stream_id in requests:
            connection.answer(stream_id, b"ok")

    own = {MAX_CONCURRENT_STREAMS: 100}
    async with h2_peer(answer_together, own=own) as peer, a_channel(peer) as channel:
        calls = [asyncio.ensure_future(say(channel)) for _ in range(300)]
        async with asyncio.timeout(LIMIT):
            for _ in calls:
                await running.acquire()
        go_on.set()

        assert await asyncio.gather(*calls) == [b"ok"] * 300
        assert len(peer.connections) == 3


async def test_calls_above_all_limits_wait_their_turn() -> None:
    """With one connection of two streams, five calls are answered two at a time, in order."""
    order: list[bytes] = []
    most = 0

    async def answer(connection: PeerConnection) -> None:
        nonlocal most
        while True:
            stream_id = await connection.request()
            most = max(most, connection.h2.open_inbound_streams)
            order.append(bodies(connection)[stream_id])
            connection.answer(stream_id, b"ok")

    own = {MAX_CONCURRENT_STREAMS: 2}
    options = ChannelOptions(max_connections=1)
    async with h2_peer(answer, own=own) as peer, a_channel(peer, options) as channel:
        answers = await asyncio.gather(*(say(channel, b"%d" % number) for number in range(5)))

    assert answers == [b"ok"] * 5
    assert order == [b"0", b"1", b"2", b"3", b"4"]
    assert most <= 2


async def test_a_cancelled_call_in_the_queue_takes_no_turn() -> None:
    """Who gives up while waiting is never sent."""

    async def hold(connection: PeerConnection) -> None:
        first = await connection.request()
        await release.wait()
        connection.answer(first, b"ok")
        connection.answer(await connection.request(), b"ok")

    release = asyncio.Event()
    own = {MAX_CONCURRENT_STREAMS: 1}
    options = ChannelOptions(max_connections=1)
    async with h2_peer(hold, own=own) as peer, a_channel(peer, options) as channel:
        first = asyncio.ensure_future(say(channel, b"first"))
        await (await peer.connected()).until(h2.events.StreamEnded)
        given_up, last = Listener(channel, b"given up"), Listener(channel, b"last")
        given_up.call.cancel()
        release.set()
        await last.until_over()

        assert await first == b"ok"
        assert list(bodies(peer.connections[0]).values()) == [b"first", b"last"]


async def test_a_cancel_is_on_the_wire_before_it_returns() -> None:
    """RST_STREAM with CANCEL, without any await in between."""

    async def hold(connection: PeerConnection) -> None:
        connection.send(head(await connection.request()))

    async with h2_peer(hold) as peer, a_channel(peer) as channel:
        listener = Listener(channel)
        await (await peer.connected()).until(h2.events.StreamEnded)
        listener.call.cancel()
        listener.call.cancel()

        reset = await peer.connections[0].wait_for(h2.events.StreamReset)
        assert reset.error_code == 8
        assert len(peer.connections[0].events(h2.events.StreamReset)) == 1
        assert listener.call.is_over


async def test_a_prompt_of_400000_tokens_arrives_whole() -> None:
    """1.2 MB against a server with the default windows."""

    async def measure(connection: PeerConnection) -> None:
        stream_id = await connection.request()
        size = sum(len(event.data) for event in connection.events(h2.events.DataReceived))
        connection.answer(stream_id, b"%d" % size)

    async with h2_peer(measure) as peer, a_channel(peer) as channel:
        assert await say(channel, bytes(1_200_000)) == b"1200005"


async def test_an_answer_far_above_the_window_arrives_whole() -> None:
    """A50: 5 MB in one message: room is given while the message is put together."""
    big = bytes(range(256)) * 20_000

    async def answer(connection: PeerConnection) -> None:
        stream_id = await connection.request()
        connection.h2.send_headers(
            stream_id, [(":status", "200"), ("content-type", "application/grpc")]
        )
        rest = message(big)
        while rest:
            size = min(connection.h2.local_flow_control_window(stream_id), 16_384, len(rest))
            if size:
                connection.h2.send_data(stream_id, rest[:size])
                connection.flush()
                rest = rest[size:]
            else:
                await connection.wait_for(h2.events.WindowUpdated)
        connection.h2.send_headers(stream_id, [("grpc-status", "0")], end_stream=True)
        connection.flush()

    async with h2_peer(answer) as peer, a_channel(peer) as channel:
        assert await say(channel) == big


async def test_messages_above_the_limit_are_refused_both_ways() -> None:
    """RESOURCE_EXHAUSTED with grpc's words; what is too large to send is never sent."""

    async def answer(connection: PeerConnection) -> None:
        while True:
            connection.answer(await connection.request(), bytes(1_001))

    options = ChannelOptions(largest_message=1_000)
    async with h2_peer(answer) as peer, a_channel(peer, options) as channel:
        with pytest.raises(CallError, match=r"Received message larger than max \(1001 vs. 1000\)"):
            await say(channel)
        with pytest.raises(CallError, match="Sent message larger than max") as failure:
            await say(channel, bytes(1_001))

        assert failure.value.code == 8
        assert len(peer.connections[0].events(h2.events.RequestReceived)) == 1


async def test_a47_a_call_that_nobody_reads_stops_the_worker_and_no_other_call() -> None:
    """A47: the worker can send a paused call its window and no more; others go on."""
    sent: dict[int, int] = {}

    async def flood(connection: PeerConnection) -> None:
        paused, busy = await connection.request(), await connection.request()
        for stream_id in (paused, busy):
            fields = [(":status", "200"), ("content-type", "application/grpc")]
            connection.h2.send_headers(stream_id, fields)
        chunk = message(bytes(95))
        while sent.get(busy, 0) < 400_000:
            for stream_id in (paused, busy):
                if connection.h2.local_flow_control_window(stream_id) >= len(chunk):
                    connection.h2.send_data(stream_id, chunk)
                    sent[stream_id] = sent.get(stream_id, 0) + len(chunk)
            connection.flush()
            if connection.h2.local_flow_control_window(busy) < len(chunk):
                await connection.wait_for(h2.events.WindowUpdated, lambda e: e.stream_id == busy)

    options = ChannelOptions(limits=Limits(connection_window=100_000))
    async with h2_peer(flood) as peer, a_channel(peer, options) as channel:
        paused = Listener(channel, b"paused", paused=True)
        busy = Listener(channel, b"busy")
        await busy.until_messages(4_000)

        assert sent[1] <= 32_768
        assert not paused.call.is_over
        taken = paused.call.take()
        assert taken == [bytes(95)] * (sent[1] // 100)
