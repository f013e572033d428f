"""A request's work ends when its client leaves, and a silent stream is kept alive meanwhile."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sglr_dataplane.api.faults import UNEXPECTED, ClientGoneError
from sglr_dataplane.errors import RouterError

if TYPE_CHECKING:
    from types import TracebackType

    from sglr_dataplane.api.exchange import Exchange

logger = logging.getLogger(__name__)

KEEPALIVE: Final = b": keep-alive\n\n"


class Presence:
    """Cancels its block when the client of an exchange leaves; enter it after the body was read.

    No task watches where the server tells of a client's leaving through the outlet, and none waits
    for a silence that most streams never have.
    """

    def __init__(self, exchange: Exchange, keepalive: float | None = None) -> None:
        """Watch the client of *exchange*.

        Args:
            exchange: The request and its answer.
            keepalive: Seconds of silence after which a stream gets a comment; the first one begins
                the stream, and the answer then has its status. None: never.
        """
        self._exchange = exchange
        self._keepalive = keepalive
        self._loop = exchange.task.get_loop()
        self._cancelling = exchange.task.cancelling()
        self._has_left = False
        self._timer: asyncio.TimerHandle | None = None
        self._beside: list[asyncio.Task[None]] = []

    def __enter__(self) -> None:
        """Begin to watch."""
        outlet = self._exchange.outlet
        if outlet is None:
            self._beside.append(self._loop.create_task(self._watch()))
        elif outlet.is_gone:
            self._leave()
        else:
            outlet.on_gone = self._leave
        if self._keepalive is not None:
            self._exchange.spoke_at = self._loop.time()
            self._timer = self._loop.call_later(self._keepalive, self._look)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End watching.

        Raises:
            ClientGoneError: The client left and the block was cancelled.
            RouterError: What the client is told of any other exception than its own.
        """
        outlet = self._exchange.outlet
        if outlet is not None:
            outlet.on_gone = None
        if self._timer is not None:
            self._timer.cancel()
        for task in self._beside:
            task.cancel()
        if self._has_left:
            cancels = self._exchange.task.uncancel()
            if isinstance(error, asyncio.CancelledError) and cancels <= self._cancelling:
                raise ClientGoneError from error
        if isinstance(error, Exception) and not isinstance(error, RouterError | ClientGoneError):
            # The last place that can still end a stream in its own words.
            logger.error(
                "request failed unexpectedly", exc_info=error, extra={"path": self._exchange.path}
            )
            raise RouterError(UNEXPECTED) from error

    def _leave(self) -> None:
        """Cancel the block: nobody is there."""
        if not self._has_left:
            self._has_left = True
            self._exchange.task.cancel()

    async def _watch(self) -> None:
        """Wait until the client leaves, where only ASGI tells."""
        await self._exchange.until_left()
        self._leave()

    def _look(self) -> None:
        """Send a comment if nothing was sent for long: proxies cut silent streams."""
        if self._keepalive is None:
            return
        left = self._exchange.spoke_at + self._keepalive - self._loop.time()
        if left <= 0:
            self._beside = [task for task in self._beside if not task.done()]
            self._beside.append(self._loop.create_task(self._exchange.send_events(KEEPALIVE)))
            left = self._keepalive
        self._timer = self._loop.call_later(left, self._look)
