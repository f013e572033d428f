"""A streamed answer, for blocking callers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, Self, TypeVar

from sglr_client.rules import Account
from sglr_client.stream_facts import StreamFacts

T = TypeVar("T")


class Stream(StreamFacts, Generic[T]):
    """The chunks of one answer, in order; the request is sent when the first is asked for.

    Iterate it to its end, or close it: ``with client.chat_stream(…) as stream``. Closing early
    closes the connection, which tells the server to stop.
    """

    def __init__(self, account: Account, items: Generator[Any]) -> None:
        """Hand out *items* and tell what *account* knows."""
        super().__init__(account)
        self._items = items

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        item: T = next(self._items)
        return item

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the answer if it has not ended; more than once does no harm."""
        self._items.close()

    def run(self, on_chunk: Callable[[T], object]) -> bool:
        """Call *on_chunk* with each chunk; it stops the stream by returning False.

        Returns:
            True when the answer ran to its end.
        """
        with self:
            return all(on_chunk(chunk) is not False for chunk in self)
