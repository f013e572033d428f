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
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        self._active: set[asyncio.Task[object]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def __repr__(self) -> str:
        return f"<Drain {self.phase} active={len(self._active)}>"

    @property
    def has_begun(self) -> bool:
        """Whether no load balancer should send requests here any more."""
        return self.phase is not DrainPhase.SERVING

    @property
    def has_expired(self) -> bool:
        """Whether what still runs is being ended."""
        return self.phase is DrainPhase.EXPIRED

    @property
    def active(self) -> int:
        """How many requests are being answered."""
        return len(self._active)

    def enter(self, task: asyncio.Task[object]) -> None:
        """Count a request that *task* answers."""
        self._active.add(task)
        self._idle.clear()

    def leave(self, task: asyncio.Task[object]) -> None:
        """Count *task*'s request no more."""
        self._active.discard(task)
        if not self._active:
            self._idle.set()

    async def run(self, *, settle: bool = True) -> None:
        """Drain; returns when no request is left, or when those left were told to end.

        Args:
            settle: Whether to go on taking requests for a while, as behind a load balancer.
        """
        self.phase = DrainPhase.SETTLING
        wait = min(self._settings.settle, self._settings.deadline) if settle else 0.0
        logger.info("draining", extra={"active": self.active, "settle": wait})
        await asyncio.sleep(wait)
        self.phase = DrainPhase.REFUSING
        await self._until_idle(self._settings.deadline - wait)
        self.phase = DrainPhase.EXPIRED
        if self._active:
            logger.warning("streams ended at the drain's deadline", extra={"active": self.active})
        for task in self._active:
            task.cancel()
        await self._until_idle(_LAST_WORDS + 1)
        logger.info("drained", extra={"active": self.active})

    async def _until_idle(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return


class Draining:
    """Lets a drain know of every request, refuses what comes too late, ends what takes too long."""

    def __init__(self, app: ASGIApp, *, drain: Drain, exempt: frozenset[str]) -> None:
        """Wrap *app*; requests for the paths in *exempt* are always answered and never waited for."""
        self._app = app
        self._drain = drain
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless the process is about to end."""
        task = asyncio.current_task()
        if scope["type"] != "http" or scope["path"] in self._exempt or task is None:
            await self._app(scope, receive, send)
            return
        reply = _Reply(send, self._drain)
        if self._drain.phase in {DrainPhase.REFUSING, DrainPhase.EXPIRED}:
            scope["state"]["failure"] = RouterDrainingError.code
            await fault_reply(_draining(), scope["path"])(scope, receive, reply)
            return
        self._drain.enter(task)
        try:
            await self._app(scope, receive, reply)
        except asyncio.CancelledError:
            if not self._drain.has_expired or task.uncancel() > 0:
                raise
            scope["state"]["failure"] = RouterDrainingError.code
            await reply.end(scope, receive)
        finally:
            self._drain.leave(task)


class _Reply:
    """One answer on its way out: what of it has been sent, and how it ends before its time."""

    def __init__(self, send: Send, drain: Drain) -> None:
        self._send = send
        self._drain = drain
        self._started = False
        self._streams = False
        self._over = False

    async def __call__(self, message: Message) -> None:
        """Send *message*; while draining the connection ends with the answer."""
        if message["type"] == "http.response.start":
            self._started = True
            headers = list(message.get("headers", ()))
            self._streams = any(
                name == b"content-type" and value.startswith(b"text/event-stream")
                for name, value in headers
            )
            if self._drain.has_begun:
                message["headers"] = [*headers, (b"connection", b"close")]
        elif message["type"] == "http.response.body":
            self._over = not message.get("more_body", False)
        await self._send(message)

    async def end(self, scope: Scope, receive: Receive) -> None:
        """End the answer with an error; nothing can be said in one that is no stream of events."""
        try:
            async with asyncio.timeout(_LAST_WORDS):
                if not self._started:
                    await fault_reply(_draining(), scope["path"])(scope, receive, self)
                elif self._streams and not self._over:
                    frames = last_frames(_draining(), scope["path"])
                    await self({"type": "http.response.body", "body": frames})
        except TimeoutError:
            logger.info("a client did not read its last frame")


def _draining() -> RouterDrainingError:
    return RouterDrainingError("This router is shutting down; send the request again.")
