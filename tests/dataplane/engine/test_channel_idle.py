"""Connections beyond the first are closed when nobody needs them."""

from __future__ import annotations

import asyncio
import contextlib

from sglr_dataplane.engine.channel_options import ChannelOptions
from support.h2calls import a_channel, say
from support.h2peer import PeerConnection, h2_peer
from support.router import eventually

MAX_CONCURRENT_STREAMS = 3
"""The setting's number on the wire (RFC 9113, 6.5.2)."""


async def test_extra_connections_are_closed_when_idle_and_the_first_stays() -> None:
    """Three calls at once over connections of one stream; afterwards one connection is enough."""

    async def answer(connection: PeerConnection) -> None:
        with contextlib.suppress(AssertionError):  # the client leaves, as it must
            while True:
                stream_id = await connection.request()
                begun.append(stream_id)
                await together.wait()
                connection.answer(stream_id, b"ok")

    begun: list[int] = []
    together = asyncio.Event()
    own = {MAX_CONCURRENT_STREAMS: 1}
    options = ChannelOptions(idle_timeout=0.1)
    async with h2_peer(answer, own=own) as peer, a_channel(peer, options) as channel:
        calls = [asyncio.ensure_future(say(channel, b"%d" % number)) for number in range(3)]
        await eventually(lambda: len(begun) == 3)
        at_once = repr(channel)
        together.set()
        answers = await asyncio.gather(*calls)
        await eventually(lambda: repr(channel) == "<Channel 1 links, 0 calls waiting>")
        later = await say(channel, b"again")

        assert at_once == "<Channel 3 links, 0 calls waiting>"
        assert answers == [b"ok"] * 3
        assert later == b"ok"
        assert len(peer.connections) == 3


async def test_a_connection_with_a_call_on_it_is_not_closed() -> None:
    """However long the call takes."""

    async def answer(connection: PeerConnection) -> None:
        stream_id = await connection.request()
        begun.append(stream_id)
        await release.wait()
        connection.answer(stream_id, b"ok")

    begun: list[int] = []
    release = asyncio.Event()
    options = ChannelOptions(idle_timeout=0.05)
    own = {MAX_CONCURRENT_STREAMS: 1}
    async with h2_peer(answer, own=own) as peer, a_channel(peer, options) as channel:
        calls = [asyncio.ensure_future(say(channel, b"%d" % number)) for number in range(2)]
        await eventually(lambda: len(begun) == 2)
        await asyncio.sleep(0.2)
        release.set()

        assert await asyncio.gather(*calls) == [b"ok"] * 2
