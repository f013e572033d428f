"""What a stream of any protocol does while nothing has come: wait, be woken, and end once."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglr_dataplane.errors import RouterError


class WaitingStream(ABC):
    """The waiting of a stream that is read one by one; a batch's reader never waits."""

    def __init__(self) -> None:
        """Belong to the running loop."""
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self.failure: RouterError | None = None
        """Why the stream ended early; None while it runs, after its finish, and once it was raised."""

    @abstractmethod
    def close(self) -> None:
        """End the worker's call if it still runs."""

    def _last_word(self) -> Exception:
        """Return what ends the iteration: the failure once, else StopAsyncIteration."""
        failure, self.failure = self.failure, None
        return StopAsyncIteration() if failure is None else failure

    async def _wait(self) -> None:
        """Wait for news."""
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._waiter = None

    def _wake(self) -> None:
        """End the wait for news."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
