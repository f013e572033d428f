"""uvicorn's HTTP/1.1 protocol, made strict and bounded.

It reaches into uvicorn's classes, which promise nothing: verified on uvicorn 0.54 with httptools
0.9. ``tests/dataplane/api/test_http_protocol.py`` holds every promise and names that version.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sglr_dataplane.api.cycle_outlet import CycleOutlet, HeadFirst
from sglr_dataplane.api.faults import fault_reply
from sglr_dataplane.api.outlet import EXTENSION
from sglr_dataplane.errors import (
    HeadersTooLargeError,
    HeadTimeoutError,
    InvalidRequestError,
    RouterError,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

logger = logging.getLogger(__name__)

_VERIFIED: Final = "0.54."
"""The uvicorn whose way of writing an answer is known here to the byte."""
COUNT_REFUSAL: Final = "sglr.count_refusal"
"""The key of the lifespan's state under which an application may put what is told each refusal."""
_LINE_EXTRA: Final = 4
"""Bytes of a header line besides name and value: the colon, a space and the line's end."""


@dataclass(frozen=True, slots=True)
class ProtocolLimits:
    """What one connection may use."""

    head_bytes: int = 65536
    """Of a request's line, headers and trailers: twice what common proxies pass on."""
    head_lines: int = 200
    """Twice what Apache takes; clients and their proxies send below 50."""
    head_seconds: float = 60.0
    """From a connection's beginning, or a request's first byte, to the end of its headers: what
    nginx allows."""
    write_seconds: float = 60.0
    """Without a byte taken by the client while an answer waits for it: what nginx allows."""
    linger_seconds: float = 2.0
    """For reading on after a refusal: a close with unread bytes is a reset, which loses the answer."""


class BoundedProtocol(HttpToolsProtocol):
    """Ignores ``Upgrade``, limits headers, speaks HTTP/1.0, refuses in the envelope.

    RFC 9110, 7.8: a server may ignore Upgrade. The parser cannot, it stops before the body; so a
    request with that header is parsed again without it.
    """

    limits: ClassVar[ProtocolLimits] = ProtocolLimits()

    def __init__(self, *args: Any, **options: Any) -> None:
        """Take what uvicorn gives."""
        super().__init__(*args, **options)
        self.url = b""
        self._refusal: RouterError | None = None
        self._is_deaf = False
        self._latest: RequestResponseCycle | None = None
        """The request that came last, None before the first."""
        self._answered: RequestResponseCycle | None = None
        """The request that is or was answered last."""
        self._outlet: CycleOutlet | None = None
        """Of the request that is being answered."""
        self._head_bytes = self._head_lines = 0
        self._unfinished = 0
        """Bytes that came since the parser last told of something: it keeps them."""
        self._in_head = True
        self._has_begun = False
        """Whether a byte of the head that is not complete has come."""
        self._unsent = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for a request, not for ever."""
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Parse *data*, unless the connection is over for its client."""
        if self._is_deaf:
            return
        self._unset_keepalive_if_required()
        self._unfinished += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self._refuse(self._refusal or _invalid(str(error)))
        else:
            if self._unfinished > self.limits.head_bytes:
                self._refuse(_too_large(self.limits))
            elif self._head_timer is None and self._awaits_head:
                self._watch_head()

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as stop:
                if self.scope.get("method") == "CONNECT":
                    raise httptools.HttpParserError("CONNECT is not served") from stop
                data = self._without_upgrade() + data[stop.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            else:
                return

    def _without_upgrade(self) -> bytes:
        """Return the head that was just parsed, without what stopped the parser."""
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._head_bytes = self._head_lines = self._unfinished = 0
        self._in_head = self._has_begun = True

    def on_url(self, url: bytes) -> None:
        """Take a piece of the URL."""
        super().on_url(url)
        self._unfinished = 0
        self._head_bytes += len(url)
        if self._head_bytes > self.limits.head_bytes:
            self._stop()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a trailer is dropped: it comes after everybody has read the headers."""
        self._unfinished = 0
        self._head_lines += 1
        self._head_bytes += len(name) + len(value) + _LINE_EXTRA
        limits = self.limits
        if self._head_bytes > limits.head_bytes or self._head_lines > limits.head_lines:
            self._stop()
        if self._in_head:
            super().on_header(name, value)

    def _stop(self) -> None:
        """Have the parser end with the refusal of a head that is too large."""
        self._refusal = _too_large(self.limits)
        raise self._refusal

    def on_headers_complete(self) -> None:
        """Begin to answer, unless the request is parsed again."""
        self._unfinished = 0
        if self.parser.should_upgrade():
            self.scope["method"] = self.parser.get_method().decode("ascii")
            return
        self._in_head = self._has_begun = False
        self._unwatch_head()
        super().on_headers_complete()
        self._latest = self.cycle

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request, unless it is parsed again."""
        self._unfinished = 0
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        if uvicorn.__version__.startswith(_VERIFIED):
            self._outlet = CycleOutlet(cycle, self.transport, is_full=self.flow.write_paused)
            scope: dict[str, Any] = cast("dict[str, Any]", cycle.scope)  # it is one, typed narrowly
            scope["extensions"] = {EXTENSION: self._outlet}
            # It has all of a transport that the cycle uses.
            cycle.transport = cast("asyncio.Transport", HeadFirst(self.transport, self.loop))
        if cycle.scope["http_version"] == "1.0":
            app = _unframed(app, cycle)
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Go on with the next request; what the client has not read yet is watched."""
        _part(self._answered)
        super().on_response_complete()
        if self._write_timer is None and self.transport.get_write_buffer_size():
            self._watch_writing()

    def _refuse(self, error: RouterError) -> None:
        """Answer what is no request with *error*, after the answers that are on their way."""
        self._is_deaf = True
        logger.info("request refused", extra={"problem": error.message, "code": error.code})
        self.app_state.get(COUNT_REFUSAL, _uncounted)(error)
        cycle = self._latest
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started or self.pipeline or not cycle.more_body:
                # Bytes of ours would land within another answer, or come before it.
                cycle.keep_alive = False
                return
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.write(_rendered(error, self.url.decode("latin-1")))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._linger_timer = self.loop.call_later(self.limits.linger_seconds, self.transport.close)

    def shutdown(self) -> None:
        """Close soon; at once, where nothing but a refused client is left."""
        if self._linger_timer is not None:
            self.transport.close()
        super().shutdown()

    def pause_writing(self) -> None:
        """Wait for the client to read, not for ever."""
        super().pause_writing()
        if self._outlet is not None:
            self._outlet.is_full = True
        if self._write_timer is None:
            self._watch_writing()

    def resume_writing(self) -> None:
        """Go on: the client reads."""
        super().resume_writing()
        self._unwatch_writing()
        if self._outlet is not None:
            self._outlet.is_full = False
            if self._outlet.on_room is not None:
                self._outlet.on_room()

    @property
    def _awaits_head(self) -> bool:
        """Whether nothing can happen before more of a head comes."""
        return self._in_head or self._latest is None or self._latest.response_complete

    def _watch_head(self) -> None:
        self._head_timer = self.loop.call_later(self.limits.head_seconds, self._give_head_up)

    def _unwatch_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_head_up(self) -> None:
        """Refuse a head that does not end; there is nothing to say to who has said nothing."""
        self._head_timer = None
        if self._has_begun:
            self._refuse(_too_slow(self.limits))
        elif self._latest is None or self._latest.response_complete:
            self.transport.close()

    def _watch_writing(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.limits.write_seconds, self._check_progress)

    def _unwatch_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _check_progress(self) -> None:
        self._write_timer = None
        left = self.transport.get_write_buffer_size()
        if left >= self._unsent > 0:
            logger.info("a client does not read its answer", extra={"bytes": left})
            self.transport.abort()
        elif left:
            self._watch_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything that waits."""
        self._unwatch_writing()
        self._unwatch_head()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        super().connection_lost(exc)
        outlet, self._outlet = self._outlet, None
        _part(self._answered)
        if outlet is not None and outlet.on_gone is not None and outlet.is_gone:
            outlet.on_gone()


def _part(cycle: RequestResponseCycle | None) -> None:
    """Take the outlet of *cycle* from it: each holds the other, and would stay till a collection.

    Who answers the request has taken the outlet by now, or has no use for it any more.
    """
    if cycle is not None:
        cycle.scope.pop("extensions", None)


def _unframed(app: ASGIApp, cycle: RequestResponseCycle) -> Any:
    """Return *app* with answers of unknown length ended by the close: HTTP/1.0 has no chunks."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        has_length = False

        async def unframed(message: Message) -> None:
            nonlocal has_length
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message.get("headers", ())}
                has_length = b"content-length" in names
                if not has_length:
                    cycle.chunked_encoding = False
            elif not has_length:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, unframed)

    return answer


def _rendered(error: RouterError, path: str) -> bytes:
    """Return the whole answer for *error*, after which the connection ends."""
    reply = fault_reply(error, path)
    reply.headers["x-request-id"] = "req_" + secrets.token_hex(12)
    reply.headers["connection"] = "close"
    phrase = HTTPStatus(error.status).phrase.encode()
    lines = [b"HTTP/1.1 %d %b" % (error.status, phrase)]
    lines += [b"%b: %b" % header for header in reply.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(reply.body)])


def _invalid(problem: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"What came is no HTTP/1.1 request: {problem}.", code="invalid_http_request"
    )


def _too_slow(limits: ProtocolLimits) -> HeadTimeoutError:
    return HeadTimeoutError(
        f"The request's headers were not complete after {limits.head_seconds:g} seconds."
    )


def _uncounted(_error: RouterError) -> None:
    """Be what is told when nobody counts."""


def _too_large(limits: ProtocolLimits) -> HeadersTooLargeError:
    return HeadersTooLargeError(
        f"The request's headers are larger than the {limits.head_bytes} bytes in "
        f"{limits.head_lines} lines this router accepts."
    )
