"""The blocking and the asyncio client behind one awaitable face, so that a test runs on both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sglr_client import (
    AsyncClient,
    ChatChunk,
    ChatCompletion,
    Client,
    ClientError,
    RetryPolicy,
)

HI = [{"role": "user", "content": "hi"}]
QUICK = RetryPolicy(initial=0.01, cap=0.05)
"""The default policy, for tests that do not look at its waits."""


class Received:
    """What a stream gave before it ended, and the error it ended in (None: none)."""

    def __init__(self) -> None:
        """Begin empty."""
        self.chunks: list[Any] = []
        self.error: ClientError | None = None
        self.usage: Any = None
        self.skipped = 0

    @property
    def text(self) -> str:
        """The contents, joined."""
        chunks: Sequence[ChatChunk] = self.chunks
        return "".join(chunk.text for chunk in chunks)


class Door(Protocol):
    """What both clients can do."""

    client: Client | AsyncClient

    async def chat(self, **arguments: Any) -> ChatCompletion:
        """Ask "hi"."""

    async def stream(self, *, stop_after: int = 0, **arguments: Any) -> Received:
        """Ask "hi", streamed; with *stop_after* leave after that many chunks."""

    async def batch(self, requests: list[Any], **options: Any) -> list[Any]:
        """Ask a batch."""

    async def ask(self, method: str, *given: Any, **arguments: Any) -> Any:
        """Call any other method."""

    async def aclose(self) -> None:
        """Close the client."""


class BlockingDoor:
    """A Client, each call in a thread."""

    def __init__(self, url: str, **settings: Any) -> None:
        """Open it."""
        self.client = Client(url, **settings)

    async def chat(self, **arguments: Any) -> ChatCompletion:
        """As Door."""
        answer: ChatCompletion = await self.ask("chat", "m", HI, **arguments)
        return answer

    async def stream(self, *, stop_after: int = 0, **arguments: Any) -> Received:
        """As Door."""
        return await asyncio.to_thread(self._stream, stop_after, arguments)

    def _stream(self, stop_after: int, arguments: dict[str, Any]) -> Received:
        received = Received()
        with self.client.chat_stream("m", HI, **arguments) as stream:
            try:
                for chunk in stream:
                    received.chunks.append(chunk)
                    if len(received.chunks) == stop_after:
                        break
            except ClientError as error:
                received.error = error
            received.usage, received.skipped = stream.usage, stream.skipped
        return received

    async def batch(self, requests: list[Any], **options: Any) -> list[Any]:
        """As Door."""
        answers: list[Any] = await self.ask("batch_chat", requests, **options)
        return answers

    async def ask(self, method: str, *given: Any, **arguments: Any) -> Any:
        """As Door."""
        return await asyncio.to_thread(getattr(self.client, method), *given, **arguments)

    async def aclose(self) -> None:
        """As Door."""
        await asyncio.to_thread(self.client.close)


class AsyncDoor:
    """An AsyncClient."""

    def __init__(self, url: str, **settings: Any) -> None:
        """Open it."""
        self.client = AsyncClient(url, **settings)

    async def chat(self, **arguments: Any) -> ChatCompletion:
        """As Door."""
        return await self.client.chat("m", HI, **arguments)

    async def stream(self, *, stop_after: int = 0, **arguments: Any) -> Received:
        """As Door."""
        received = Received()
        async with self.client.chat_stream("m", HI, **arguments) as stream:
            try:
                async for chunk in stream:
                    received.chunks.append(chunk)
                    if len(received.chunks) == stop_after:
                        break
            except ClientError as error:
                received.error = error
            received.usage, received.skipped = stream.usage, stream.skipped
        return received

    async def batch(self, requests: list[Any], **options: Any) -> list[Any]:
        """As Door."""
        return list(await self.client.batch_chat(requests, **options))

    async def ask(self, method: str, *given: Any, **arguments: Any) -> Any:
        """As Door."""
        return await getattr(self.client, method)(*given, **arguments)

    async def aclose(self) -> None:
        """As Door."""
        await self.client.aclose()


async def failure_of(door: Door, **arguments: Any) -> ClientError:
    """Return the error a chat ends in."""
    try:
        answer = await door.chat(**arguments)
    except ClientError as error:
        return error
    raise AssertionError(f"the chat was answered: {answer!r}")


async def eventually(claim: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until *claim* returns something true."""
    async with asyncio.timeout(seconds):
        while not claim():  # noqa: ASYNC110  # the claims are about threads and sockets
            await asyncio.sleep(0.005)
