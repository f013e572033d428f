"""Connections come, refuse, go away, fall silent, and come back."""

from __future__ import annotations

import asyncio

import h2.events
import pytest
from ports import reserved_port

from sglr_dataplane.engine.channel_options import Backoff, ChannelOptions
from sglr_dataplane.engine.h2.link import Keepalive
from sglr_dataplane.engine.h2.status import CallError
from support.h2calls import Listener, a_channel, echo, say, until
from support.h2peer import (
    GOAWAY,
    HEADERS,
    LIMIT,
    RST_STREAM,
    Peer,
    PeerConnection,
    frame,
    h2_peer,
    head,
    message,
    plain_block,
    trailers,
    word,
)

UNAVAILABLE = 14


async def test_a_refused_stream_is_sent_again_for_free() -> None:
    """REFUSED_STREAM says that nothing was done: the caller never learns of it."""

    async def refuse_once(connection: PeerConnection) -> None:
        connection.send(frame(RST_STREAM, 0, await connection.request(), word(7)))
        connection.answer(await connection.request(), b"ok")

    async with h2_peer(refuse_once) as peer, a_channel(peer) as channel:
        assert await say(channel) == b"ok"
        assert len(peer.connections[0].events(h2.events.RequestReceived)) == 2


async def test_a_worker_that_always_refuses_is_not_asked_for_ever() -> None:
    """After three free retries the call fails, as one of which the worker did nothing."""

    async def refuse(connection: PeerConnection) -> None:
        while True:
            connection.send(frame(RST_STREAM, 0, await connection.request(), word(7)))

    async with h2_peer(refuse) as peer, a_channel(peer) as channel:
        with pytest.raises(CallError) as failure:
            await say(channel)

        assert failure.value.code == UNAVAILABLE
        assert not failure.value.sent
        assert len(peer.connections[0].events(h2.events.RequestReceived)) == 4


async def test_a50_goaway_lets_running_calls_finish_and_moves_new_ones() -> None:
    """A50 d: a restarting worker's streams go on; what it did not take runs elsewhere."""
    goes = asyncio.Event()

    async def leave(connection: PeerConnection) -> None:
        if len(peer.connections) > 1:
            await echo(connection)
        first = await connection.request()
        await connection.request()
        connection.send(head(first) + frame(GOAWAY, 0, 0, word(first) + word(0)))
        await goes.wait()
        connection.send(frame(0, 0, first, message(b"first")))
        connection.send(frame(1, 0x5, first, b"\0\x0bgrpc-status\x010"))

    async with h2_peer(leave) as peer, a_channel(peer) as channel:
        first = asyncio.ensure_future(say(channel))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(say(channel))
        assert await second == b"ok"
        assert await say(channel) == b"ok"
        goes.set()

        assert await first == b"first"
        assert len(peer.connections) == 2
        async with asyncio.timeout(LIMIT):
            await peer.connections[0].closed.wait()


async def test_a_graceful_shutdown_in_two_steps_loses_nothing() -> None:
    """GOAWAY with 2^31-1 first, then with the last stream: the call above it is sent again."""

    async def leave(connection: PeerConnection) -> None:
        if len(peer.connections) > 1:
            await echo(connection)
        await connection.request()
        connection.send(frame(GOAWAY, 0, 0, word(2**31 - 1) + word(0)))
        connection.send(frame(GOAWAY, 0, 0, word(0) + word(0)))

    async with h2_peer(leave) as peer, a_channel(peer) as channel:
        assert await say(channel) == b"ok"


async def test_a_connection_that_dies_fails_its_calls_as_lost() -> None:
    """Whether the worker did something is unknown, so nothing is sent again."""

    async def die(connection: PeerConnection) -> None:
        await connection.request()
        connection.abort()

    async with h2_peer(die) as peer, a_channel(peer) as channel:
        with pytest.raises(CallError) as failure:
            await say(channel)

        assert failure.value.code == UNAVAILABLE
        assert failure.value.sent
        assert len(peer.connections) == 1


async def test_a_closed_connection_is_made_again_at_once() -> None:
    """An idle connection that the worker closed costs the next call nothing but a handshake."""

    async def answer_one(connection: PeerConnection) -> None:
        connection.answer(await connection.request(), b"ok")
        await connection.drain()
        connection.close()

    async with h2_peer(answer_one) as peer, a_channel(peer) as channel:
        for _ in range(3):
            assert await say(channel) == b"ok"
            await until(lambda: repr(channel) == "<Channel 0 links, 0 calls waiting>")

        assert len(peer.connections) == 3


async def test_a_worker_that_is_down_fails_calls_at_once_until_its_backoff_is_over() -> None:
    """Unreachable is known without a wait, and a worker that came back is used again."""
    gone = Peer()
    gone.port = reserved_port()
    options = ChannelOptions(backoff=Backoff(first=0.1, longest=0.1))
    async with a_channel(gone, options) as channel:
        for _ in range(2):
            with pytest.raises(CallError, match="failed to connect") as failure:
                await say(channel, limit=0.09)
            assert failure.value.code == UNAVAILABLE
            assert not failure.value.sent
        async with h2_peer(echo, port=gone.port) as peer:
            async with asyncio.timeout(LIMIT):
                while True:
                    try:
                        assert await say(channel) == b"ok"
                        break
                    except CallError:
                        await asyncio.sleep(0.01)
            assert len(peer.connections) == 1
            assert channel._failures == 0


async def test_a_worker_that_stays_down_is_logged_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first failure, then the 2nd, the 4th, the 8th: each with the worker's address."""
    caplog.set_level("INFO")
    gone = Peer()
    gone.port = reserved_port()
    options = ChannelOptions(backoff=Backoff(first=0.0, longest=0.0))
    async with a_channel(gone, options) as channel:
        for _ in range(9):
            with pytest.raises(CallError):
                await say(channel)

    told = [each for each in caplog.records if each.msg == "connecting to a worker failed"]
    assert [vars(each)["failures"] for each in told] == [1, 2, 4, 8]
    assert {vars(each)["worker"] for each in told} == {f"127.0.0.1:{gone.port}"}


async def test_a_lost_connection_is_told_and_a_closed_channel_is_not() -> None:
    """Whoever is there next may be another process; our own end is no news."""

    async def hang_up(connection: PeerConnection) -> None:
        connection.answer(await connection.request(), b"ok")
        await connection.drain()
        connection.close()

    lost: list[bool] = []
    async with h2_peer(hang_up) as peer, a_channel(peer) as channel:
        channel.on_lost = lambda: lost.append(True)
        await say(channel)
        await until(lambda: len(lost) == 1)
        await say(channel)
        await until(lambda: len(lost) == 2)
        lost.clear()

    async with h2_peer(echo) as peer, a_channel(peer) as channel:
        channel.on_lost = lambda: lost.append(True)
        await say(channel)

    assert lost == []


def test_the_backoff_grows_to_its_longest_within_its_jitter() -> None:
    """0.2 s, then 1.6 times more, at most 2 s, each up to a fifth shorter or longer."""
    backoff = Backoff()

    assert [round(backoff.delay(n, 0.5), 3) for n in (1, 2, 3, 9)] == [0.2, 0.32, 0.512, 2.0]
    assert backoff.delay(1, 0.0) == pytest.approx(0.16)
    assert backoff.delay(9, 0.999_999) == pytest.approx(2.4, abs=1e-3)


async def test_many_calls_make_one_connection() -> None:
    """Calls that come while a connection is being made wait for it together."""
    async with h2_peer(echo) as peer, a_channel(peer) as channel:
        assert await asyncio.gather(*(say(channel) for _ in range(50))) == [b"ok"] * 50
        assert len(peer.connections) == 1


async def test_a_peer_that_never_speaks_is_given_up() -> None:
    """TCP alone is no worker: without SETTINGS the connect timeout ends the attempt."""

    async def say_nothing(_connection: PeerConnection) -> None:
        return

    options = ChannelOptions(connect_timeout=0.1)
    async with h2_peer(say_nothing, greets=False) as peer, a_channel(peer, options) as channel:
        with pytest.raises(CallError, match="failed to connect") as failure:
            await say(channel)

        assert not failure.value.sent
        async with asyncio.timeout(LIMIT):
            await peer.connections[0].closed.wait()


async def test_a_peer_that_closes_before_it_speaks_is_unreachable() -> None:
    """A half-open port behind a load balancer is no worker."""

    async def hang_up(connection: PeerConnection) -> None:
        connection.close()

    async with h2_peer(hang_up, greets=False) as peer, a_channel(peer) as channel:
        with pytest.raises(CallError, match="failed to connect"):
            await say(channel)


async def test_closing_fails_what_runs_and_what_waits() -> None:
    """Nothing hangs on a channel that is closed, and nothing begins on it."""

    async def hold(connection: PeerConnection) -> None:
        await connection.request()
        began.set()

    began = asyncio.Event()
    options = ChannelOptions(max_connections=1)
    async with h2_peer(hold, own={3: 1}) as peer, a_channel(peer, options) as channel:
        running, waiting = Listener(channel), Listener(channel)
        async with asyncio.timeout(LIMIT):
            await began.wait()
        await channel.aclose()
        late = Listener(channel)

        for listener in (running, waiting, late):
            assert listener.call.is_over
            assert listener.call.error is not None
            assert listener.call.error.code == UNAVAILABLE
        assert repr(channel) == "<Channel closed, 0 calls waiting>"


async def test_closing_while_connecting_ends_the_attempt() -> None:
    """A worker that never speaks cannot keep a channel open."""

    async def say_nothing(_connection: PeerConnection) -> None:
        return

    async with h2_peer(say_nothing, greets=False) as peer, a_channel(peer) as channel:
        listener = Listener(channel)
        await peer.connected()
        await channel.aclose()

        assert listener.call.error is not None
        assert not listener.call.error.sent


# --- keepalive --------------------------------------------------------------------------------


async def test_a50_a_silent_dead_peer_is_noticed() -> None:
    """A50 b: a peer that answers no ping loses its calls within interval and timeout."""

    async def play_dead(connection: PeerConnection) -> None:
        await connection.request()
        connection.is_mute = True

    options = ChannelOptions(keepalive=Keepalive(interval=0.1, timeout=0.1))
    async with h2_peer(play_dead) as peer, a_channel(peer, options) as channel:
        with pytest.raises(CallError) as failure:
            await say(channel)

        assert failure.value.code == UNAVAILABLE
        assert "ping" in failure.value.details


async def test_a_silent_live_peer_is_kept() -> None:
    """A peer that answers pings may take as long as it wants for the rest."""

    async def answer_late(connection: PeerConnection) -> None:
        stream_id = await connection.request()
        for _ in range(3):
            await connection.wait_for(h2.events.PingReceived)
        connection.answer(stream_id, b"late")

    options = ChannelOptions(keepalive=Keepalive(interval=0.05, timeout=0.05))
    async with h2_peer(answer_late) as peer, a_channel(peer, options) as channel:
        assert await say(channel) == b"late"


async def test_a_peer_that_speaks_instead_of_answering_a_ping_is_asked_again() -> None:
    """Data proves life as well as an answer does; the next silence begins with a new ping."""

    async def speak(connection: PeerConnection) -> None:
        connection.is_mute = True
        stream_id = await connection.request()
        for _ in range(3):
            await connection.wait_for(h2.events.PingReceived)
            connection.send(frame(HEADERS, 0x4, stream_id, plain_block((b":status", b"103"))))
        connection.send(head(stream_id) + frame(0, 0, stream_id, message(b"ok")))
        connection.send(trailers(stream_id))

    options = ChannelOptions(keepalive=Keepalive(interval=0.1, timeout=0.1))
    async with h2_peer(speak) as peer, a_channel(peer, options) as channel:
        assert await say(channel) == b"ok"


async def test_no_ping_is_sent_without_calls() -> None:
    """GRPC's servers count pings on idle connections as abuse."""
    options = ChannelOptions(keepalive=Keepalive(interval=0.02, timeout=0.02))
    async with h2_peer(echo) as peer, a_channel(peer, options) as channel:
        await say(channel)
        before = len(peer.connections[0].events(h2.events.PingReceived))
        await asyncio.sleep(0.15)

        assert len(peer.connections[0].events(h2.events.PingReceived)) == before


async def test_a50_too_many_pings_doubles_the_interval() -> None:
    """A50 a: a server that forbids the pings gets half as many on the next connection."""

    async def forbid(connection: PeerConnection) -> None:
        stream_id = await connection.request()
        await connection.wait_for(h2.events.PingReceived)
        connection.send(frame(GOAWAY, 0, 0, word(stream_id) + word(11) + b"too_many_pings"))
        connection.close()

    keepalive = Keepalive(interval=0.05, timeout=1.0)
    async with (
        h2_peer(forbid) as peer,
        a_channel(peer, ChannelOptions(keepalive=keepalive)) as channel,
    ):
        for round_trip in (1, 2):
            with pytest.raises(CallError) as failure:
                await say(channel)
            assert "because of its pings" in failure.value.details
            assert channel.keepalive.interval == 0.05 * 2**round_trip


def test_the_default_keepalive_is_what_every_grpc_server_allows() -> None:
    """A50 a: C-core closes connections that ping more often than every 300 s."""
    assert Keepalive().interval == 300.0
