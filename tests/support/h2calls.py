"""Calls over a channel, for tests against an :mod:`support.h2peer`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sglr_dataplane.engine.channel import Channel
from sglr_dataplane.engine.channel_options import ChannelOptions
from sglr_dataplane.engine.h2.call import Call
from support.h2peer import LIMIT, Peer, PeerConnection

PATH = "/test.Echo/Say"


@asynccontextmanager
async def a_channel(
    peer: Peer, options: ChannelOptions | None = None, *, host: str = "127.0.0.1", **more: Any
) -> AsyncGenerator[Channel]:
    """Return a channel to *peer* without jitter; closed at the end."""
    channel = Channel(host, peer.port, options or ChannelOptions(), chance=lambda: 0.5, **more)
    try:
        yield channel
    finally:
        await channel.aclose()


async def say(channel: Channel, message: bytes = b"hi", *, limit: float = LIMIT) -> bytes:
    """Return the answer to *message*."""
    return await channel.unary(PATH, message, limit=limit)


async def until(claim: Callable[[], bool]) -> None:
    """Return once *claim* is true, which nobody announces."""
    async with asyncio.timeout(LIMIT):
        while not claim():
            await _a_moment()


async def _a_moment() -> None:
    await asyncio.sleep(0.001)


async def echo(connection: PeerConnection) -> None:
    """Answer every request with the bytes ``ok``; a handler of h2_peer."""
    while True:
        connection.answer(await connection.request(), b"ok")


class Listener:
    """One call and what it brought, taken whenever there is news unless *paused*."""

    def __init__(self, channel: Channel, message: bytes = b"hi", *, paused: bool = False) -> None:
        """Start the call."""
        self.messages: list[bytes] = []
        self.paused = paused
        self.rings = 0
        """How often the call had news."""
        self._news = asyncio.Event()
        self.call: Call = channel.call(PATH, message, timeout=LIMIT, listener=self._listen)
        channel.dial(self.call)

    def _listen(self) -> None:
        self.rings += 1
        if not self.paused:
            self.messages += self.call.take()
        self._news.set()

    async def until_messages(self, count: int) -> None:
        """Return once *count* messages were taken."""
        async with asyncio.timeout(LIMIT):
            while len(self.messages) < count:
                await self._news.wait()
                self._news.clear()

    async def until_over(self) -> None:
        """Return once the call is over."""
        async with asyncio.timeout(LIMIT):
            while not self.call.is_over:
                await self._news.wait()
                self._news.clear()
