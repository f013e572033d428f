"""A client that takes nothing of its answer holds its connection, and the worker's stream, for ever."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger(__name__)


class WriteWatch:
    """Aborts a connection that no byte of what waits for its client has left by in a while."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float
    ) -> None:
        """Abort *transport* after *seconds* without progress; nothing is watched yet."""
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._unsent = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Watch what waits now, unless it is watched."""
        if self._timer is None:
            self._unsent = self._transport.get_write_buffer_size()
            self._timer = self._loop.call_later(self._seconds, self._look)

    def end(self) -> None:
        """Watch nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        left = self._transport.get_write_buffer_size()
        if left >= self._unsent > 0:
            logger.info("a client does not read its answer", extra={"bytes": left})
            self._transport.abort()
        elif left:
            self.begin()
