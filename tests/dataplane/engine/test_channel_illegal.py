"""Over a real socket no broken rule hangs a call or brings it a wrong message."""

from __future__ import annotations

import asyncio

import pytest

from sglr_dataplane.engine.h2.status import CallError
from support.h2calls import PATH, Listener, a_channel, say
from support.h2illegal import CASES, Illegal
from support.h2peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    LIMIT,
    PeerConnection,
    frame,
    h2_peer,
    head,
    message,
    plain_block,
    settings,
    trailers,
)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_each_illegal_case_fails_the_call(case: Illegal) -> None:
    """The call fails with a named error, in time; a broken connection is left."""

    async def play(connection: PeerConnection) -> None:
        if case.greets:
            connection.send(settings())
            await connection.request()
        connection.send(case.data)

    async with h2_peer(play, greets=False) as peer, a_channel(peer) as channel:
        with pytest.raises(CallError) as failure:
            await say(channel, limit=2.0)

        assert failure.value.code != 4
        if case.scope == "connection":
            async with asyncio.timeout(LIMIT):
                await peer.connections[0].closed.wait()


COMPRESSED = message(b"x", flag=1)
GRPC: dict[str, tuple[bytes, int]] = {
    "an HTML page": (
        frame(
            HEADERS,
            END_HEADERS,
            1,
            plain_block((b":status", b"200"), (b"content-type", b"text/html")),
        )
        + frame(DATA, 0, 1, message(b"wrong")),
        2,
    ),
    "a proxy's 502 with a body": (
        frame(HEADERS, END_HEADERS, 1, plain_block((b":status", b"502")))
        + frame(DATA, END_STREAM, 1, message(b"wrong")),
        14,
    ),
    "a 404 without a body": (
        frame(HEADERS, END_HEADERS | END_STREAM, 1, plain_block((b":status", b"404"))),
        12,
    ),
    "a compressed message": (head() + frame(DATA, 0, 1, COMPRESSED) + trailers(), 13),
    "a message cut short": (head() + frame(DATA, 0, 1, message(b"wrong")[:-1]) + trailers(), 13),
    "a prefix cut short": (head() + frame(DATA, 0, 1, b"\0\0") + trailers(), 13),
    "a body without trailers": (head() + frame(DATA, END_STREAM, 1, message(b"ok")), 2),
    "trailers without a status": (
        head() + frame(DATA, 0, 1, message(b"ok")) + trailers(1, plain_block((b"a", b"b"))),
        2,
    ),
    "a status of letters": (head() + trailers(1, plain_block((b"grpc-status", b"OK"))), 2),
    "a message of four gigabytes": (head() + frame(DATA, 0, 1, b"\0\xff\xff\xff\xff"), 8),
}


@pytest.mark.parametrize("name", GRPC)
async def test_what_is_no_grpc_fails_the_call(name: str) -> None:
    """Each has gRPC's own code, and nothing of its body is delivered."""
    data, code = GRPC[name]

    async def play(connection: PeerConnection) -> None:
        await connection.request()
        connection.send(data)

    async with h2_peer(play) as peer, a_channel(peer) as channel:
        listener = Listener(channel)
        await listener.until_over()

    assert listener.call.error is not None
    assert listener.call.error.code == code
    assert b"wrong" not in listener.messages


@pytest.mark.parametrize("cut", [1, 8, 9, 20, 45])
async def test_a_connection_that_ends_within_a_frame_fails_the_call(cut: int) -> None:
    """However far the answer had come."""

    async def play(connection: PeerConnection) -> None:
        await connection.request()
        connection.send((head() + frame(DATA, 0, 1, message(b"wrong")))[:-1][:cut])
        connection.close()

    async with h2_peer(play) as peer, a_channel(peer) as channel:
        with pytest.raises(CallError) as failure:
            await channel.unary(PATH, b"", limit=2.0)

    assert failure.value.code == 14


async def test_a_listener_that_raises_ends_no_other_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One owner's bug is logged, and the connection goes on for the others."""

    async def answer(connection: PeerConnection) -> None:
        first, second = await connection.request(), await connection.request()
        connection.answer(first, b"ok")
        connection.answer(second, b"ok")

    def fail() -> None:
        raise RuntimeError("bug")

    async with h2_peer(answer) as peer, a_channel(peer) as channel:
        channel.dial(channel.call(PATH, b"", timeout=LIMIT, listener=fail))
        assert await say(channel) == b"ok"

    assert "listener of a stream failed" in caplog.text
