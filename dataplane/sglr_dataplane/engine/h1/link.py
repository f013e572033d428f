"""One HTTP/1.1 connection to a worker: carries one call at a time, then the next."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, Protocol, cast

import httptools

from sglr_dataplane.engine.h1.call import CallError

if TYPE_CHECKING:
    from sglr_dataplane.engine.h1.call import Call

LARGEST_HEAD: Final = 65_536
"""Bytes of an answer's status line and headers: eight times what common servers write at most."""
_INFORMATIONAL: Final = range(100, 200)
_WITHOUT_BODY: Final = frozenset({204, 304})
_LONGEST_SIZE: Final = 8
"""Digits and line end of a chunk's size: up to 16 MiB."""
_KEEP_ALIVE: Final = re.compile(rb"\btimeout\s*=\s*(\d{1,6})")


class Owner(Protocol):
    """Whom a connection tells what befell it: the pool."""

    def on_idle(self, link: Link) -> None:
        """Know that *link* can carry another call."""
        ...

    def on_closed(self, link: Link, call: Call | None, error: CallError) -> None:
        """Know that *link* is closed, and *call*, if it carried one, without its whole answer."""
        ...


class Link(asyncio.Protocol):
    """One connection. Bytes of the worker go through httptools' parser to the call's receiver."""

    def __init__(self, owner: Owner) -> None:
        """Tell *owner* what happens."""
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._call: Call | None = None
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._in_body = False
        self._is_informational = False
        self._ends_with_connection = False
        self._is_between = False
        """Whether the parser is between two chunks of a body."""
        self._is_paused = False
        self._has_told = False
        self._is_done = False
        """Whether the read that is being parsed has ended a call."""
        self._is_reusable = False
        self.calls = 0
        """How many it has carried."""
        self.idle_since = 0.0
        """When its last call ended, by the loop's clock; the pool's word."""
        self.idle_limit: float | None = None
        """Seconds after which the worker closes it when it is idle, if the worker said so."""

    def __repr__(self) -> str:
        return f"<Link calls={self.calls} {'busy' if self._call is not None else 'idle'}>"

    def begin(self, call: Call) -> None:
        """Send *call*."""
        assert self._transport is not None  # noqa: S101  # the pool hands out connected links
        self._call = call
        self.calls += 1
        call.link = self
        call.sent = True
        self._transport.write(call.request)

    def abort(self) -> None:
        """Close at once; the call it carries hears nothing more."""
        self._call = None
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_closing(self) -> bool:
        """Whether it can carry no call any more."""
        return self._transport is None or self._transport.is_closing()

    def shut(self) -> None:
        """Close at once; the call it carries fails."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close an idle connection."""
        if self._transport is not None:
            self._transport.close()

    def pause(self) -> None:
        """Read no more until :meth:`resume`: TCP then holds the worker back."""
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    # --- asyncio.Protocol -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep *transport*."""
        self._transport = cast(
            "asyncio.Transport", transport
        )  # what asyncio gives a stream protocol

    def data_received(self, data: bytes) -> None:
        """Parse *data* and tell the receiver."""
        call = self._call
        if call is None:
            self._end(None, "The worker spoke without being asked.")
            return
        if self._is_between:
            # What most reads bring is one chunk, whole: "f9", its bytes, and nothing behind. The
            # parser, which is between two chunks, need not see it.
            at = data.find(b"\r\n", 1, _LONGEST_SIZE)
            if at > 0 and data.endswith(b"\r\n") and _is_size(data[:at], len(data) - at - 4):
                call.receiver.on_part(data[at + 2 : -2])
                return
        call.answered = True
        if not self._in_body:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end(call, "The worker changed the protocol.")
            return
        except httptools.HttpParserError as error:
            self._end(call, f"The worker's answer is no HTTP: {error}")
            return
        if not self._in_body and self._head_bytes > LARGEST_HEAD:
            self._end(call, f"The head of the worker's answer has more than {LARGEST_HEAD} bytes.")
            return
        if self._is_done:
            self._settle()
        if self._has_told:
            self._has_told = False
            call.receiver.on_read()

    def eof_received(self) -> None:
        """Know that the worker has closed its side; asyncio closes ours."""
        call = self._call
        if call is not None and self._in_body and self._ends_with_connection:
            self._finish(call, reusable=False)
            self._settle()
            call.receiver.on_read()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the call that was on its way."""
        call, self._call = self._call, None
        reason = f"The connection was lost: {exc}" if exc else "The worker closed the connection."
        self._owner.on_closed(self, call, CallError(reason, sent=call is not None and call.sent))

    # --- httptools ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin an answer; one that nobody asked for makes the connection useless."""
        if self._call is None:
            self._is_reusable = False
        self._headers = {}
        self._in_body = self._is_between = False
        self._ends_with_connection = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers come too late to say anything."""
        if not self._in_body:
            name = name.lower()
            known = self._headers.get(name)
            self._headers[name] = value if known is None else known + b", " + value

    def on_headers_complete(self) -> None:
        """Tell the receiver the status, unless it is a provisional one."""
        if sum(map(len, self._headers)) + sum(map(len, self._headers.values())) > LARGEST_HEAD:
            raise httptools.HttpParserError(f"its head has more than {LARGEST_HEAD} bytes")
        status = self._parser.get_status_code()
        self._is_informational = status in _INFORMATIONAL
        call = self._call
        if self._is_informational or call is None:
            return
        self._in_body = True
        headers = self._headers
        self._ends_with_connection = (
            status not in _WITHOUT_BODY
            and b"content-length" not in headers
            and b"chunked" not in headers.get(b"transfer-encoding", b"").lower()
        )
        said = _KEEP_ALIVE.search(headers.get(b"keep-alive", b""))
        self.idle_limit = float(said[1]) if said is not None else None
        self._has_told = True
        call.receiver.on_head(status, headers)

    def on_body(self, data: bytes) -> None:
        """Pass the body on."""
        if self._call is not None:
            self._has_told = True
            self._call.receiver.on_body(data)

    def on_chunk_header(self) -> None:
        """Be within a chunk."""
        self._is_between = False

    def on_chunk_complete(self) -> None:
        """Be between two chunks."""
        self._is_between = True

    def on_message_complete(self) -> None:
        """End the call, unless the real answer is still to come."""
        if self._is_informational:
            self._head_bytes = 0
        elif self._call is not None:
            self._finish(self._call, reusable=self._parser.should_keep_alive())

    def _finish(self, call: Call, *, reusable: bool) -> None:
        """Let *call* be over and tell its receiver."""
        self._call = None
        self._in_body = self._is_between = False
        self._head_bytes = 0
        self._is_done = self._has_told = True
        self._is_reusable = reusable and not self._ends_with_connection
        call.is_over = True
        call.link = None
        call.receiver.on_end()

    def _settle(self) -> None:
        """Give the connection back after a call, or close it.

        Not before the whole read was parsed: what follows an answer must not become the next one's.
        """
        transport = self._transport
        assert transport is not None  # noqa: S101  # it has just delivered bytes
        self._is_done = False
        self.resume()
        # An answer that came before all of the request was sent leaves the rest in the way.
        unsent = transport.get_write_buffer_size()
        if self._is_reusable and not unsent and not transport.is_closing():
            self._owner.on_idle(self)
        else:
            transport.close()

    def _end(self, call: Call | None, reason: str) -> None:
        """Close a connection that cannot be understood, and fail what it carried."""
        self._call = None
        if self._transport is not None:
            self._transport.abort()
        if call is not None:
            call.has_second_try = False
            call.fail(CallError(reason, sent=True))


def _is_size(digits: bytes, size: int) -> bool:
    """Return whether *digits* say *size*, which is more than the nothing that ends a body."""
    return size > 0 and digits == b"%x" % size
