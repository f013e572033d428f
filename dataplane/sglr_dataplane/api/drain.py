"""Draining: how a router ends without anybody's answer being cut.

First ``/readyz`` fails, while requests are served as before: load balancers take seconds to hear of
it. Then new requests are refused, and those that run may finish. What still runs at the deadline
ends with an error that its client can read.
"""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from sglr_dataplane.api.faults import fault_reply, last_frames
from sglr_dataplane.errors import RouterDrainingError

if TYPE_CHECKING:
    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.config import DrainSettings

logger = logging.getLogger(__name__)

_LAST_WORDS: Final = 2.0
"""Seconds for the last frame of a stream: a client that does not read shall not hold us up."""


class DrainPhase(StrEnum):
    """How far a drain has come."""

    SERVING = "serving"
    SETTLING = "settling"
    """Not ready any more, but taking requests."""
    REFUSING = "refusing"
    """Finishing what runs."""
    EXPIRED = "expired"
    """Ending what runs."""


class Drain:
    """The drain of one process: its phase, and the requests that are being answered."""

    def __init__(self, settings: DrainSettings) -> None:
        """Serve."""
        self._settings = settings
        self.phase = DrainPhase.SERVING
        self._active: set[Exchange] = set()
        self._idle: asyncio.Event | None = None
        """Set when nobody is answered any more; None while nobody waits for that."""

    def __repr__(self) -> str:
        return f"<Drain {self.phase} active={len(self._active)}>"

    @property
    def has_begun(self) -> bool:
        """Whether no load balancer should send requests here any more."""
        return self.phase is not DrainPhase.SERVING

    @property
    def active(self) -> int:
        """How many requests are being answered."""
        return len(self._active)

    def enter(self, exchange: Exchange) -> None:
        """Wait for *exchange*, until it leaves; while draining its connection ends with its answer.

        Raises:
            RouterDrainingError: It comes too late, and is not waited for.
        """
        if self.phase is not DrainPhase.SERVING:
            exchange.must_close = True
            if self.phase is not DrainPhase.SETTLING:
                raise _draining()
        self._active.add(exchange)

    def leave(self, exchange: Exchange) -> None:
        """Wait for *exchange* no more, if it was waited for."""
        self._active.discard(exchange)
        if self._idle is not None and not self._active:
            self._idle.set()

    def ends(self, exchange: Exchange) -> bool:
        """Return whether the task of *exchange* was cancelled by this drain, and by nobody else."""
        is_told = self.phase is DrainPhase.EXPIRED and exchange in self._active
        return is_told and exchange.task.uncancel() <= 0

    async def run(self, *, settle: bool = True) -> None:
        """Drain; returns when no request is left, or when those left were told to end.

        Args:
            settle: Whether to go on taking requests for a while, as behind a load balancer.
        """
        self.phase = DrainPhase.SETTLING
        for exchange in self._active:
            exchange.must_close = True
        wait = min(self._settings.settle, self._settings.deadline) if settle else 0.0
        logger.info("draining", extra={"active": self.active, "settle": wait})
        await asyncio.sleep(wait)
        self.phase = DrainPhase.REFUSING
        await self._until_idle(self._settings.deadline - wait)
        self.phase = DrainPhase.EXPIRED
        if self._active:
            logger.warning("streams ended at the drain's deadline", extra={"active": self.active})
        for exchange in self._active:
            exchange.task.cancel()
        await self._until_idle(_LAST_WORDS + 1)
        logger.info("drained", extra={"active": self.active})

    async def _until_idle(self, seconds: float) -> None:
        if not self._active:
            return
        self._idle = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return


async def say_last_words(exchange: Exchange) -> None:
    """End the answer before its time; nothing can be said in one that is no stream of events."""
    exchange.failure = RouterDrainingError.code
    try:
        async with asyncio.timeout(_LAST_WORDS):
            if not exchange.status:
                await exchange.answer_with(fault_reply(_draining(), exchange.path))
            elif exchange.streams and not exchange.is_over:
                await exchange.send_events(last_frames(_draining(), exchange.path), is_last=True)
    except TimeoutError:
        logger.info("a client did not read its last frame")


def _draining() -> RouterDrainingError:
    return RouterDrainingError("This router is shutting down; send the request again.")
