"""Calls to one worker: connections, reconnecting, and who waits for which."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from sglr_dataplane.engine.channel_options import ChannelOptions
from sglr_dataplane.engine.h2.call import Call
from sglr_dataplane.engine.h2.errors import H2Error
from sglr_dataplane.engine.h2.headers import pack_fields
from sglr_dataplane.engine.h2.link import Link
from sglr_dataplane.engine.h2.status import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    CallError,
)

logger = logging.getLogger(__name__)

_USER_AGENT: Final = b"grpc-python-sglr/1"
_LARGEST_TIMEOUT: Final = 99_999_999
"""grpc-timeout has at most eight digits."""


class Channel:
    """The calls to one worker; connects when first needed, in the loop that needs it."""

    def __init__(
        self,
        host: str,
        port: int,
        options: ChannelOptions,
        *,
        chance: Callable[[], float],
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        metadata: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Remember where the worker is.

        Args:
            host: Name or address; IPv6 without brackets.
            port: The worker's gRPC port.
            options: How it is called.
            chance: Returns a number in [0, 1), for the jitter.
            tls: None for plain text; see :func:`tls_context`.
            server_name: What the worker's certificate must name, if not *host*.
            metadata: Fields of every call, such as authorization; never indexed, never logged.
        """
        self.host, self.port = host, port
        self._options = options
        self._chance = chance
        self._tls = tls
        self._server_name = server_name
        self.keepalive = options.keepalive
        """How the next connection notices a dead peer; slower after a worker forbade pings."""
        self._metadata = pack_fields(
            [(name.lower().encode(), value.encode()) for name, value in metadata], secret=True
        )
        self._blocks: dict[tuple[str, float], bytes] = {}
        """By path and timeout: of both there are a few, the methods' and the deadlines'."""
        self._links: list[Link] = []
        self._draining: set[Link] = set()
        self._waiting: deque[Call] = deque()
        self._connecting: asyncio.Task[None] | None = None
        self._tidying: asyncio.TimerHandle | None = None
        self._failures = 0
        self._retry_at = 0.0
        self.is_closed = False
        """Whether :meth:`aclose` was called."""
        self.on_lost: Callable[[], None] = _unheard
        """Called when the worker ended the last connection, or it broke."""

    def __repr__(self) -> str:
        """Show the state, without the address."""
        state = "closed" if self.is_closed else f"{len(self._links)} links"
        return f"<Channel {state}, {len(self._waiting)} calls waiting>"

    def call(
        self,
        path: str,
        message: bytes,
        *,
        timeout: float,
        listener: Callable[[], None],
        fields: Iterable[tuple[str, str]] = (),
    ) -> Call:
        """Return an RPC that :meth:`dial` starts.

        Args:
            path: ``/package.Service/Method``.
            message: The request message.
            timeout: Seconds that the worker is told to give up after; the caller keeps its own.
            listener: Called after each read that brought something, and at the call's end.
            fields: Of this call alone, in lower case.
        """
        block = self._blocks.get((path, timeout))
        if block is None:
            block = self._blocks[path, timeout] = self._render(path, timeout)
        if fields:
            block += pack_fields((name.encode(), value.encode()) for name, value in fields)
        limit = self._options.largest_message
        return Call(self, block, message, limit=limit, listener=listener)

    async def unary(
        self,
        path: str,
        message: bytes,
        *,
        limit: float,
        fields: Iterable[tuple[str, str]] = (),
    ) -> bytes:
        """Return the one message that answers a call with *fields* of its own.

        Raises:
            CallError: It ended with another status than OK, or not within *limit* seconds.
        """
        messages: list[bytes] = []
        await self.receive(path, message, limit=limit, take=messages.append, fields=fields)
        if len(messages) != 1:
            raise CallError(INTERNAL, f"The answer has {len(messages)} messages, not one.")
        return messages[0]

    async def receive(
        self,
        path: str,
        message: bytes,
        *,
        limit: float,
        take: Callable[[bytes], None],
        fields: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Give *take* each message that answers a call; what it raises ends the call.

        Raises:
            CallError: It ended with another status than OK, or not within *limit* seconds.
        """
        news = asyncio.Event()
        call = self.call(path, message, timeout=limit, listener=news.set, fields=fields)
        try:
            async with asyncio.timeout(limit):
                self.dial(call)
                while not call.is_over:
                    await news.wait()
                    news.clear()
                    for answer in call.take():
                        take(answer)
        except TimeoutError as error:
            raise CallError(DEADLINE_EXCEEDED, "Deadline Exceeded") from error
        finally:
            call.cancel()
        if call.error is not None:
            raise call.error

    def dial(self, call: Call) -> None:
        """Begin *call* now or as soon as a connection can take it, or fail it."""
        if self.is_closed:
            self._refuse([call], "The channel is closed.")
        elif call.size > self._options.largest_message:
            details = f"CLIENT: Sent message larger than max ({call.size})"
            _end(call, CallError(RESOURCE_EXHAUSTED, details, sent=False))
        elif self._waiting or not any(map(call.begin, self._links)):
            self._waiting.append(call)
            self._serve()

    def forget(self, call: Call) -> None:
        """Let *call* wait no longer."""
        if call in self._waiting:
            self._waiting.remove(call)

    async def aclose(self) -> None:
        """Close all connections; running and waiting calls fail."""
        self.is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._tidying is not None:
            self._tidying.cancel()
        self._refuse(self._take_waiting(), "The channel is closed.")
        for link in [*self._links, *self._draining]:
            link.close()

    # --- connections --------------------------------------------------------------------------

    def _serve(self) -> None:
        """Begin the calls that can be; connect for the others, or fail them."""
        while self._waiting:
            if self._waiting[0].is_over:
                self._waiting.popleft()
                continue
            if not any(map(self._waiting[0].begin, self._links)):
                break
            self._waiting.popleft()
        if not self._waiting or self._connecting is not None:
            return
        if len(self._links) >= self._options.max_connections:
            return  # a stream's end brings us back here
        loop = asyncio.get_running_loop()
        if loop.time() >= self._retry_at:
            self._connecting = loop.create_task(self._connect())
        elif not self._links:
            self._refuse(self._take_waiting(), _UNREACHABLE)

    async def _connect(self) -> None:
        """Add a connection, or fail the waiting calls when there is none at all."""
        loop = asyncio.get_running_loop()
        link = Link(self._options.limits, self.keepalive, self._on_change)
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                await self._open_link(link)
                await link.settled
        except (OSError, H2Error) as error:
            # TimeoutError and ssl.SSLError are OSErrors.
            link.close()
            self._failures += 1
            self._retry_at = loop.time() + self._options.backoff.delay(
                self._failures, self._chance()
            )
            self._log_failure(error)
            self._connecting = None
            if not self._links:
                self._refuse(self._take_waiting(), _UNREACHABLE)
        except asyncio.CancelledError:
            link.close()
            raise
        else:
            self._connecting = None
            self._failures, self._retry_at = 0, 0.0
            self._links.append(link)
            self._tidy_later()
            self._serve()

    def _tidy_later(self) -> None:
        """Look for connections that nobody needs, as long as there are several."""
        if self._tidying is None and len(self._links) > 1:
            wait = self._options.idle_timeout / 2
            self._tidying = asyncio.get_running_loop().call_later(wait, self._tidy)

    def _tidy(self) -> None:
        """Close connections beyond the first that had nothing on them for long."""
        self._tidying = None
        before = asyncio.get_running_loop().time() - self._options.idle_timeout
        for link in self._links[1:]:
            if link.idle_since is not None and link.idle_since <= before:
                self._links.remove(link)
                link.close()
        self._tidy_later()

    def _log_failure(self, error: Exception) -> None:
        # The 1st, 2nd, 4th, 8th: a worker that stays away is tried every few seconds for ever.
        if self._failures.bit_count() == 1:
            extra = {
                "worker": self._authority,
                "error": f"{type(error).__name__}: {error}",
                "failures": self._failures,
            }
            logger.info("connecting to a worker failed", extra=extra)

    async def _open_link(self, link: Link) -> None:
        """Connect *link*."""
        loop = asyncio.get_running_loop()
        server_name = (self._server_name or self.host) if self._tls is not None else None
        transport, _ = await loop.create_connection(
            lambda: link, self.host, self.port, ssl=self._tls, server_hostname=server_name
        )
        if self._tls is not None:
            connection: ssl.SSLObject = transport.get_extra_info("ssl_object")
            if connection.selected_alpn_protocol() != "h2":
                raise ConnectionError("The worker does not agree on HTTP/2 (ALPN).")

    def _on_change(self, link: Link) -> None:
        """Look again at who can begin where, after something befell *link*."""
        takes_streams = link.takes_streams
        if not takes_streams and link in self._links:
            self._links.remove(link)
            self._draining.add(link)
            if link.was_pinged_too_often:
                # gRPC: a client doubles its interval when a server finds it too short.
                interval = self.keepalive.interval * 2
                self.keepalive = replace(self.keepalive, interval=interval)
                logger.warning(
                    "worker forbids pings so often",
                    extra={"worker": self._authority, "interval": interval},
                )
            if not self._links and not self.is_closed:
                self.on_lost()
        if not takes_streams and link.is_closed:
            self._draining.discard(link)
        if self._waiting and not self.is_closed:
            self._serve()

    def _take_waiting(self) -> list[Call]:
        """Return the calls that wait, which do so no longer."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def _refuse(self, calls: Iterable[Call], details: str) -> None:
        """Fail calls of which the worker never heard."""
        for call in calls:
            _end(call, CallError(UNAVAILABLE, details, sent=False))

    @property
    def _authority(self) -> str:
        """The worker's ``host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def _render(self, path: str, timeout: float) -> bytes:
        """Return the fields that all calls of *path* share (gRPC over HTTP/2, "Requests")."""
        scheme = b"https" if self._tls is not None else b"http"
        shared = pack_fields(
            (
                (b":method", b"POST"),
                (b":scheme", scheme),
                (b":path", path.encode()),
                (b":authority", self._authority.encode()),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
                (b"user-agent", _USER_AGENT),
            )
        )
        limit = pack_fields([(b"grpc-timeout", format_timeout(timeout))])
        return shared + self._metadata + limit


_UNREACHABLE: Final = "failed to connect"


def _unheard() -> None:
    """Be the listener when there is none."""


def _end(call: Call, error: CallError) -> None:
    """Fail *call* and tell its owner."""
    call.fail(error)
    call.notify()


def format_timeout(seconds: float) -> bytes:
    """Return a grpc-timeout: at most eight digits and a unit."""
    milliseconds = max(round(seconds * 1000), 1)
    if milliseconds <= _LARGEST_TIMEOUT:
        return b"%dm" % milliseconds
    return b"%dS" % min(round(seconds), _LARGEST_TIMEOUT)


def tls_context(
    *,
    ca: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    speaks: str = "h2",
) -> ssl.SSLContext:
    """Return a context that checks the worker's certificate.

    Args:
        ca: File of the authorities to trust; None for the system's.
        certificate: File of the chain this router shows; None for none.
        key: File of its private key.
        speaks: What is spoken over it, as ALPN has it: ``h2`` or ``http/1.1``.
    """
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # RFC 9113, 9.2
    context.set_alpn_protocols([speaks])
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context
