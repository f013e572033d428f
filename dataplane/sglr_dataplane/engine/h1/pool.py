"""The connections to one worker: kept while they are warm, within a limit, and who waits for one."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sglr_dataplane.engine.h1.call import Call, CallError, Receiver
from sglr_dataplane.engine.h1.link import Link
from sglr_dataplane.engine.sockets import set_socket_options

logger = logging.getLogger(__name__)

_MARGIN: Final = 1.0
"""Seconds before the worker's own end of an idle connection at which ours comes: a request that
crosses its close would be lost."""
_SILENCE: Final = 30.0
"""Seconds after which the kernel asks a silent peer whether it is there."""


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How one worker is connected to; per router process."""

    connect_timeout: float = 2.0
    """Seconds for TCP and TLS together."""
    most: int = 4096
    """Connections at a time; calls beyond wait their turn. One call takes one: far above the
    requests an engine runs at once, far below a process's file descriptors."""
    idle: float = 4.0
    """Seconds that an idle connection is kept: a second less than uvicorn keeps it, which serves
    SGLang and vLLM."""


class Pool:
    """The connections to one worker; made when first needed, in the loop that needs them."""

    def __init__(
        self,
        host: str,
        port: int,
        options: PoolOptions | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> None:
        """Remember where the worker is.

        Args:
            host: Name or address; IPv6 without brackets.
            port: The worker's HTTP port.
            options: See there.
            tls: None for plain text.
            server_name: What the worker's certificate must name, if not *host*.
        """
        self.host, self.port = host, port
        self._options = options or PoolOptions()
        self._tls = tls
        self._server_name = server_name
        self._idle: list[Link] = []
        """The one that was used last at the end: what is not needed grows old and goes."""
        self._links: set[Link] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._waiting: deque[Call] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self.is_closed = False
        """Whether :meth:`aclose` was called."""
        self.on_refused: Callable[[], None] = _unheard
        """Called when nobody listens at the worker's address."""

    def __repr__(self) -> str:
        """Show the state, without the address."""
        state = "closed" if self.is_closed else f"{len(self._links)} links"
        return f"<Pool {state}, {len(self._idle)} idle, {len(self._waiting)} calls waiting>"

    @property
    def links(self) -> int:
        """How many connections there are."""
        return len(self._links)

    def call(self, request: bytes, receiver: Receiver) -> Call:
        """Send *request*, head and body, now or as soon as a connection can take it.

        The receiver hears of a failure possibly before this returns.
        """
        call = Call(self, request, receiver)
        self._submit(call)
        return call

    def forget(self, call: Call) -> None:
        """Let *call* wait no longer."""
        if call in self._waiting:
            self._waiting.remove(call)

    async def aclose(self) -> None:
        """Close all connections; running and waiting calls fail."""
        self.is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for task in self._connecting:
            task.cancel()
        if self._connecting:
            await asyncio.wait(self._connecting)
        while self._waiting:
            self._waiting.popleft().fail(CallError("The pool is closed.", sent=False))
        for link in tuple(self._links):
            link.shut()

    # --- what links tell ------------------------------------------------------------------------

    def on_idle(self, link: Link) -> None:
        """Give *link* the call that waits longest, or keep it for a while."""
        is_spent = link.calls > 0 and self._limit_of(link) <= 0
        if self.is_closed or link.is_closing or is_spent:
            link.close()
            return
        while self._waiting:
            call = self._waiting.popleft()
            if not call.is_over:
                link.begin(call)
                return
        loop = asyncio.get_running_loop()
        link.idle_since = loop.time()
        self._idle.append(link)
        if self._sweep is None:
            self._sweep = loop.call_later(self._options.idle, self._close_idle)

    def on_closed(self, link: Link, call: Call | None, error: CallError) -> None:
        """Forget *link*; send *call* again where that cannot be its second time at the worker."""
        self._links.discard(link)
        if link in self._idle:
            self._idle.remove(link)
        if call is None or call.is_over:
            pass
        elif self._may_repeat(link, call):
            call.has_second_try = False
            call.link = None
            self._connect_for(call)
        else:
            call.fail(error)
        self._serve_waiting()

    def _may_repeat(self, link: Link, call: Call) -> bool:
        """Return whether *call* met a connection that the worker was closing (RFC 9110, 9.2.2)."""
        was_pooled = link.calls > 1
        return was_pooled and call.has_second_try and not call.answered and not self.is_closed

    # --- connections ----------------------------------------------------------------------------

    def _submit(self, call: Call) -> None:
        if self.is_closed:
            call.fail(CallError("The pool is closed.", sent=False))
            return
        link = self._take_idle()
        if link is not None:
            link.begin(call)
        else:
            self._connect_for(call)

    def _take_idle(self) -> Link | None:
        """Return the connection that was used last, if it is still warm."""
        if not self._idle:
            return None
        now = asyncio.get_running_loop().time()
        link = self._idle.pop()
        if now - link.idle_since < self._limit_of(link) and not link.is_closing:
            return link
        link.close()
        return None

    def _limit_of(self, link: Link) -> float:
        """Return for how many seconds *link* may be idle."""
        said = link.idle_limit
        return self._options.idle if said is None else min(self._options.idle, said - _MARGIN)

    def _close_idle(self) -> None:
        """Close what was idle for too long; look again when the next one may be."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._sweep = None
        warm: list[Link] = []
        for link in self._idle:
            if now - link.idle_since < self._limit_of(link):
                warm.append(link)
            else:
                link.close()
        self._idle = warm
        if warm:
            left = min(each.idle_since + self._limit_of(each) for each in warm) - now
            self._sweep = loop.call_later(max(left, 0.001), self._close_idle)

    def _connect_for(self, call: Call) -> None:
        """Let *call* wait for a connection, and make one if there may be one more."""
        self._waiting.append(call)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Make as many connections as calls wait for, within the limit."""
        loop = asyncio.get_running_loop()
        while (
            not self.is_closed
            and len(self._connecting) < len(self._waiting)
            and len(self._links) + len(self._connecting) < self._options.most
        ):
            task = loop.create_task(self._connect())
            self._connecting.add(task)

    async def _connect(self) -> None:
        """Add a connection, or fail the call that waits longest."""
        loop = asyncio.get_running_loop()
        link = Link(self)
        name = (self._server_name or self.host) if self._tls is not None else None
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # it runs as one
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                transport, _ = await loop.create_connection(
                    lambda: link, self.host, self.port, ssl=self._tls, server_hostname=name
                )
        except OSError as error:
            # TimeoutError and ssl.SSLError are OSErrors.
            self._connecting.discard(task)
            self._failed(error)
        except asyncio.CancelledError:
            link.abort()
            self._connecting.discard(task)
            raise
        else:
            self._connecting.discard(task)
            set_socket_options(transport.get_extra_info("socket"), _SILENCE)
            self._links.add(link)
            if link.is_closing:
                self.on_closed(link, None, CallError("The worker closed at once.", sent=False))
            self.on_idle(link)

    def _failed(self, error: OSError) -> None:
        """Fail one call for each connection that could not be made."""
        refused = isinstance(error, ConnectionRefusedError)
        # The prober tells once what state that brings the worker to.
        extra = {"worker": f"{self.host}:{self.port}", "error": f"{type(error).__name__}: {error}"}
        logger.debug("connecting to a worker failed", extra=extra)
        if refused:
            self.on_refused()
        while self._waiting:
            call = self._waiting.popleft()
            if not call.is_over:
                call.fail(CallError(f"Connecting failed: {error}", sent=call.sent, refused=refused))
                break
        self._serve_waiting()


def _unheard() -> None:
    """Be the listener when there is none."""
