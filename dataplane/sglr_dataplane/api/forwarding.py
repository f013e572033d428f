"""The frames of an HTTP worker, written to the client in the calls that bring them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sglr_dataplane.job import Piece, Usage

if TYPE_CHECKING:
    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.api.outlet import Outlet
    from sglr_dataplane.fleet.stream import Batches


class Forwarder:
    """Passes the pieces of a stream to an outlet until their finish; the task only hears the end."""

    def __init__(self, batches: Batches, exchange: Exchange, outlet: Outlet) -> None:
        """Read *batches*, and write to *outlet*, which is that of *exchange*."""
        self._batches = batches
        self._exchange = exchange
        self._outlet = outlet
        self._now = asyncio.get_running_loop().time
        self._end: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._has_ended = False
        self.usage: Usage | None = None
        """What the answer has cost so far; None before the first piece."""

    async def run(self) -> bytes:
        """Return the frames that end the stream: they go with what follows them.

        Raises:
            RouterError: The worker failed; what came before is written.
        """
        self._outlet.on_room = self.hear
        self._batches.follow(self.hear)
        try:
            self.hear()
            self._batches.pipe(self._outlet, self._exchange)
            return await self._end
        finally:
            self._has_ended = True
            self._outlet.on_room = None

    def hear(self) -> None:
        """Take what has arrived; nothing while the client does not read, which stops the worker."""
        if self._has_ended or self._outlet.is_full:
            return
        try:
            self._take()
            if self._batches.has_failed and not self._has_ended:
                self._batches.pull()
        except Exception as failure:  # noqa: BLE001  # the task that waits raises it
            self._has_ended = True
            self._end.set_exception(failure)

    def _take(self) -> None:
        _, pieces = self._batches.pull()
        for piece in pieces or ():
            assert isinstance(piece, Piece)  # noqa: S101  # an engine of HTTP sends nothing else
            self.usage = piece.usage
            if piece.finish is not None:
                self._has_ended = True
                self._end.set_result(piece.data)
            elif piece.data:
                self._outlet.write(piece.data)
                self._exchange.spoke_at = self._now()
