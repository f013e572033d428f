"""The lean HTTP/1.1 client: calls, their connections, and the pool."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

import support.h2peer
from sglr_dataplane.engine.channel import tls_context
from sglr_dataplane.engine.h1.head import Heads
from sglr_dataplane.engine.h1.pool import PoolOptions
from support.h1peer import OK, REQUEST, SECONDS, Answer, Peer, a_peer, a_pool, answering, ask

PEMS = Path(support.h2peer.__file__).parent / "h2tls"


async def test_connections_are_used_again() -> None:
    """Calls one after the other share a connection."""
    async with a_peer(answering(OK, OK)) as peer, a_pool(peer.port) as pool:
        answers = [await ask(pool), await ask(pool)]

    assert [answer.body for answer in answers] == [b"ok", b"ok"]
    assert peer.connections == 1


async def test_calls_at_a_time_have_a_connection_each() -> None:
    """Nobody waits for another's answer."""
    async with a_peer(answering(OK)) as peer, a_pool(peer.port) as pool:
        await asyncio.gather(ask(pool), ask(pool), ask(pool))

    assert peer.connections == 3


async def test_a_dead_pooled_connection_is_replaced_once() -> None:
    """A call that met a connection the worker was closing is sent again, over a new one."""
    async with a_peer(answering(OK), answering(OK)) as peer, a_pool(peer.port) as pool:
        await ask(pool)
        # The peer now closes the connection as soon as it hears anything more.
        second = await ask(pool)

    assert (second.failure, second.body) == (None, b"ok")
    assert peer.connections == 2


async def test_a_call_is_not_sent_a_third_time() -> None:
    """The new connection's end is the call's."""

    async def mute(peer: Peer, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await peer.request(reader)

    async with a_peer(answering(OK), mute) as peer, a_pool(peer.port) as pool:
        await ask(pool)
        second = await ask(pool)

    assert second.failure is not None
    assert second.failure.sent
    assert peer.connections == 2


async def test_a_new_connection_that_ends_is_not_replaced() -> None:
    """Nothing speaks for a connection that was idle for too long: the request may be the cause."""
    async with a_peer(answering()) as peer, a_pool(peer.port) as pool:
        answer = await ask(pool)

    assert answer.failure is not None
    assert answer.failure.sent
    assert peer.connections == 1


async def test_an_answer_that_has_begun_is_not_asked_for_again() -> None:
    """One byte of an answer is too much for a second try."""

    async def half(peer: Peer, reader: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        for answer in (OK, b"HTTP/1.1 200"):
            await peer.request(reader)
            w.write(answer)

    async with a_peer(half, answering(OK)) as peer, a_pool(peer.port) as pool:
        await ask(pool)
        second = await ask(pool)
        third = await ask(pool)

    assert second.failure is not None
    assert third.body == b"ok"


async def test_an_idle_connection_is_given_up_in_time() -> None:
    """It is closed before the worker would close it."""
    async with (
        a_peer(answering(OK, OK)) as peer,
        a_pool(peer.port, PoolOptions(idle=0.05)) as pool,
    ):
        await ask(pool)
        async with asyncio.timeout(SECONDS):
            await peer.left.wait()

        assert pool.links == 0


async def test_without_idle_time_each_call_has_a_connection_of_its_own() -> None:
    """Not even one that waits gets a connection that was used."""
    options = PoolOptions(most=1, idle=0)
    async with a_peer(answering(OK, OK)) as peer, a_pool(peer.port, options) as pool:
        answers = await asyncio.gather(ask(pool), ask(pool))

    assert [answer.body for answer in answers] == [b"ok", b"ok"]
    assert peer.connections == 2


async def test_the_worker_says_how_long_it_keeps_a_connection() -> None:
    """``Keep-Alive: timeout=1`` leaves no second to use it in."""
    kept = b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\nok"
    async with a_peer(answering(kept)) as peer, a_pool(peer.port) as pool:
        await ask(pool)
        await ask(pool)

    assert peer.connections == 2


async def test_calls_beyond_the_limit_wait_their_turn() -> None:
    """No more connections than allowed; whoever came first is served first."""
    order: list[int] = []

    async def one(at: int) -> None:
        await ask(pool)
        order.append(at)

    async with (
        a_peer(answering(OK, OK, OK)) as peer,
        a_pool(peer.port, PoolOptions(most=1)) as pool,
    ):
        await asyncio.gather(*(one(at) for at in range(3)))

    assert order == [0, 1, 2]
    assert peer.connections == 1


async def test_a_call_that_waits_can_be_cancelled() -> None:
    """It is never sent."""
    async with (
        a_peer(answering(OK, OK)) as peer,
        a_pool(peer.port, PoolOptions(most=1)) as pool,
    ):
        first, second = Answer(), Answer()
        pool.call(REQUEST, first)
        pool.call(REQUEST, second).cancel()
        async with asyncio.timeout(SECONDS):
            await first.over.wait()

    assert len(peer.requests) == 1
    assert not second.over.is_set()


async def test_cancelling_closes_the_connection() -> None:
    """The worker notices, and its receiver hears nothing more."""

    async def slow(peer: Peer, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await peer.request(reader)
        if await reader.read(1) == b"":
            peer.left.set()

    async with a_peer(slow) as peer, a_pool(peer.port) as pool:
        answer = Answer()
        call = pool.call(REQUEST, answer)
        async with asyncio.timeout(SECONDS):
            await peer.asked.wait()
        call.cancel()
        async with asyncio.timeout(SECONDS):
            await peer.left.wait()

    assert answer.failure is None
    assert pool.links == 0


@pytest.mark.parametrize(
    "extra", [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", b"HTTP/1.1 200", b"noise"]
)
async def test_what_follows_an_answer_is_nobodys(extra: bytes) -> None:
    """An answer that nobody asked for never becomes the next call's."""
    async with a_peer(answering(OK + extra), answering(OK)) as peer, a_pool(peer.port) as pool:
        first = await ask(pool)
        second = await ask(pool)

    assert (first.body, second.body) == (b"ok", b"ok")
    assert peer.connections == 2


async def test_provisional_answers_are_passed_over() -> None:
    """100 and 103 are no answers."""
    hints = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    async with a_peer(answering(hints + OK, OK)) as peer, a_pool(peer.port) as pool:
        answers = [await ask(pool), await ask(pool)]

    assert [(answer.status, answer.body) for answer in answers] == [(200, b"ok")] * 2


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    """HTTP/1.0 servers do so; the connection is not used again."""

    async def closing(peer: Peer, reader: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        await peer.request(reader)
        w.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")

    async with a_peer(closing) as peer, a_pool(peer.port) as pool:
        answers = [await ask(pool), await ask(pool)]

    assert [(answer.failure, answer.body) for answer in answers] == [(None, b"all of it")] * 2
    assert peer.connections == 2


@pytest.mark.parametrize(
    "cut",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-le",
    ],
)
async def test_a_cut_answer_is_a_failure(cut: bytes) -> None:
    """An end that HTTP does not know is no end."""

    async def cutting(peer: Peer, reader: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        await peer.request(reader)
        w.write(cut)

    async with a_peer(cutting) as peer, a_pool(peer.port) as pool:
        answer = await ask(pool)

    assert answer.failure is not None
    assert answer.failure.sent


@pytest.mark.parametrize(
    "odd",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_a_failure(odd: bytes) -> None:
    """Two lengths, other protocols and endless heads end the call and its connection."""
    async with a_peer(answering(odd)) as peer, a_pool(peer.port) as pool:
        answer = await ask(pool)

        assert answer.failure is not None
        assert pool.links == 0


async def test_an_early_answer_frees_no_connection_with_a_request_still_in_it() -> None:
    """413 comes while the body is on its way: what is left of it must not be the next request."""

    async def early(peer: Peer, reader: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        await peer.request(reader)
        w.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await w.drain()
        await asyncio.sleep(0.2)

    request = b"POST / HTTP/1.1\r\ncontent-length: 50000000\r\n\r\n" + bytes(50_000_000)
    async with a_peer(early, answering(OK)) as peer, a_pool(peer.port) as pool:
        first = await ask(pool, request)
        second = await ask(pool)

    assert (first.status, second.status) == (413, 200)
    assert peer.connections == 2


async def test_nobody_there_is_told_as_such() -> None:
    """A refused connection has sent nothing, and the engine hears of it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening
        async with a_pool(taken.getsockname()[1]) as pool:
            refusals: list[str] = []
            pool.on_refused = lambda: refusals.append("refused")
            answer = await ask(pool)

    assert answer.failure is not None
    assert (answer.failure.sent, answer.failure.refused) == (False, True)
    assert refusals == ["refused"]


async def test_a_connection_that_is_not_made_in_time_fails_its_call() -> None:
    """A full backlog answers nobody."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for each in fillers:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        async with a_pool(port, PoolOptions(connect_timeout=0.1)) as pool:
            answer = await ask(pool)
        for each in fillers:
            each.close()

    assert answer.failure is not None
    assert not answer.failure.sent


async def test_a_held_back_worker_waits() -> None:
    """While a connection is paused the kernel's buffers fill, and no more is read."""
    sent = 0

    async def flood(peer: Peer, reader: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        nonlocal sent
        await peer.request(reader)
        w.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(2000):
            w.write(b"10000\r\n" + bytes(65_536) + b"\r\n")
            await w.drain()
            sent += 65_536

    async with a_peer(flood) as peer, a_pool(peer.port) as pool:
        answer = Answer()
        call = pool.call(REQUEST, answer)
        async with asyncio.timeout(SECONDS):
            await answer.heard.wait()
        assert call.link is not None
        call.link.pause()
        before = -1
        while sent != before:  # until the kernel is full
            before = sent
            await asyncio.sleep(0.1)
        stopped = len(answer.body)
        answer.heard.clear()
        call.link.resume()
        async with asyncio.timeout(SECONDS):
            await answer.heard.wait()
        call.cancel()

    assert stopped < 2**20
    assert before < 64 * 2**20


async def test_closing_the_pool_fails_what_runs_and_what_waits() -> None:
    """Nobody is left waiting, and nothing is connected again."""
    async with a_peer(answering()) as peer:
        async with a_pool(peer.port, PoolOptions(most=1)) as pool:
            running, waiting = Answer(), Answer()
            pool.call(REQUEST, running)
            pool.call(REQUEST, waiting)
            await asyncio.sleep(0)
        async with asyncio.timeout(SECONDS):
            await running.over.wait()
            await waiting.over.wait()
        late = await ask(pool)

    assert all(answer.failure is not None for answer in (running, waiting, late))


async def test_tls_is_spoken_with_the_worker_that_the_certificate_names() -> None:
    """ALPN says http/1.1; a certificate of strangers is no connection."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(PEMS / "worker.pem")
    server.set_alpn_protocols(["http/1.1"])
    async with a_peer(answering(OK, OK), tls=server) as peer:
        trusted = tls_context(ca=str(PEMS / "ca.pem"), speaks="http/1.1")
        async with a_pool(peer.port, tls=trusted) as pool:
            good = await ask(pool)
        stranger = tls_context(ca=str(PEMS / "stranger.pem"), speaks="http/1.1")
        async with a_pool(peer.port, tls=stranger) as pool:
            bad = await ask(pool)

    assert good.body == b"ok"
    assert bad.failure is not None
    assert not bad.failure.sent


def test_heads_hold_what_was_given_and_no_more() -> None:
    """Method, path, host, the worker's key; no line break gets through."""
    heads = Heads("w:1", [("Authorization", "Bearer k")])

    assert heads.post("/p", b"{}", [(b"x-request-id", b"r")]) == (
        b"POST /p HTTP/1.1\r\nhost: w:1\r\nuser-agent: sglr\r\naccept-encoding: identity\r\n"
        b"authorization: Bearer k\r\nx-request-id: r\r\n"
        b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    )
    with pytest.raises(ValueError, match="line break"):
        heads.post("/p", b"", [(b"x", b"a\r\nevil: 1")])
