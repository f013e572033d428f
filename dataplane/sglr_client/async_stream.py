"""A streamed answer, for asyncio."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from typing import Any, Generic, Self, TypeVar

from sglr_client.rules import Account
from sglr_client.stream_facts import StreamFacts

T = TypeVar("T")


class AsyncStream(StreamFacts, Generic[T]):
    """The chunks of one answer, in order; the request is sent when the first is asked for.

    Iterate it to its end, or close it: ``async with client.chat_stream(…) as stream``. Closing
    early, or cancelling the task that reads, closes the connection: the server then stops.
    """

    def __init__(self, account: Account, items: AsyncGenerator[Any]) -> None:
        """Hand out *items* and tell what *account* knows."""
        super().__init__(account)
        self._items = items

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        item: T = await anext(self._items)
        return item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop the answer if it has not ended; more than once does no harm."""
        await self._items.aclose()

    async def run(self, on_chunk: Callable[[T], object]) -> bool:
        """Call *on_chunk*, a function or a coroutine function, with each chunk.

        It stops the stream by returning False.

        Returns:
            True when the answer ran to its end.
        """
        async with self:
            async for chunk in self:
                answer = on_chunk(chunk)
                if inspect.isawaitable(answer):
                    answer = await answer
                if answer is False:
                    return False
        return True
