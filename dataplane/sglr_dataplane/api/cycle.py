"""One request on a connection, and the answer to it: what ASGI asks of a server, and the way past it."""

from __future__ import annotations

import asyncio
import logging
import re
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from sglr_dataplane.api.outlet import EXTENSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Scope

    from sglr_dataplane.api.outlet import Headers, Standing

logger = logging.getLogger(__name__)

_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}
_BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT.value, HTTPStatus.NOT_MODIFIED.value})
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NO_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_CLOSE: Final = b"connection: close\r\n"
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_HEADS_KEPT: Final = 64
"""Answers are of a few kinds."""
_KEPT: Final = 1024
_OPENINGS: Final = tuple([b"%x\r\n" % size for size in range(_KEPT)])
"""What a chunk of so many bytes begins with: a frame of one token has fewer."""
_FAILED: Final = b"Internal Server Error"
_FAILED_HEADERS: Final = (
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-length", b"%d" % len(_FAILED)),
)


class Connection(Protocol):
    """The connection that requests come by, one after the other."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    reads: bool
    """Whether what the client sends is read."""

    @property
    def standing_lines(self) -> bytes:
        """The header lines of every answer."""
        ...

    def resume_reading(self) -> None:
        """Read what the client sends, in case that stopped."""
        ...

    def on_answered(self) -> None:
        """Go on behind the answer, which is complete."""
        ...


class Cycle:
    """One request and its answer; as an outlet (:mod:`sglr_dataplane.api.outlet`), too."""

    __slots__ = (
        "_awaits_continue",
        "_connection",
        "_has_chunks",
        "_held",
        "_is_told",
        "_left",
        "_room",
        "_transport",
        "body",
        "has_begun",
        "has_body",
        "is_complete",
        "is_full",
        "is_gone",
        "keep_alive",
        "news",
        "on_gone",
        "on_room",
        "scope",
    )

    def __init__(
        self, connection: Connection, scope: Scope, *, keep_alive: bool, awaits_continue: bool
    ) -> None:
        """Take the request of *scope* from *connection*; nothing of its body has come.

        Args:
            connection: What it came by.
            scope: ASGI's, complete but for the outlet.
            keep_alive: Whether the connection may go on with another request.
            awaits_continue: Whether the client waits for a word before it sends the body.
        """
        self._connection = connection
        self._transport = connection.transport
        self.scope = scope
        self.keep_alive = keep_alive
        self._awaits_continue = awaits_continue
        self.body = bytearray()
        """What has come of the request's body and was not taken."""
        self.has_body = False
        """Whether all of it has come."""
        self._is_told = False
        """Whether the application knows that."""
        self.has_begun = False
        """Whether the answer has."""
        self.is_complete = False
        """Whether the answer is."""
        self.is_gone = False
        """Whether the client has left before that."""
        self.is_full = False
        """Whether the client does not read."""
        self._has_chunks = False
        self._left: int | None = None
        """Bytes that the answer's body still has; None when nobody knows."""
        self._held = b""
        """The answer's head, which goes with what follows it: each write wakes the client."""
        self.news: asyncio.Event | None = None
        """Wakes who waits in :meth:`receive`; None: nobody has waited."""
        self._room: asyncio.Event | None = None
        self.on_room: Callable[[], None] | None = None
        self.on_gone: Callable[[], None] | None = None
        scope["extensions"] = {EXTENSION: self}

    async def run(self, app: ASGIApp) -> None:
        """Have *app* answer; whatever it does, the client is not left without an end."""
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException as error:  # the top of the request's task
            logger.error("application failed", exc_info=error)  # noqa: TRY400  # that is it
            self._fail()
        else:
            if not self.is_complete and not self.is_gone:
                logger.error("application left its answer incomplete")
                self._fail()

    def _fail(self) -> None:
        """End what the application did not: with a status, as long as there is none."""
        if self.is_complete or self.is_gone:
            return
        if self.has_begun:
            self._flush()
            self._transport.close()
            return
        self.keep_alive = False
        self.begin(500, (), _FAILED_HEADERS, _FAILED, is_last=True)

    async def receive(self) -> Message:
        """Return the next piece of the body, or that the client has left or has its answer."""
        if self._awaits_continue and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._awaits_continue = False
        while not (self.is_gone or self.is_complete):
            self._connection.resume_reading()
            if self.body or (self.has_body and not self._is_told):
                piece, self.body = bytes(self.body), bytearray()
                self._is_told = self.has_body
                return {"type": "http.request", "body": piece, "more_body": not self.has_body}
            if self.news is None:
                self.news = asyncio.Event()
            self.news.clear()
            await self.news.wait()
        return {"type": "http.disconnect"}

    def take_body(self) -> bytes | None:
        """Return the body, if all of it has come and nothing of it was received; None otherwise."""
        if not self.has_body or self._is_told or self.is_gone:
            return None
        self._is_told = True
        if not self._connection.reads:
            self._connection.resume_reading()
        body, self.body = bytes(self.body), bytearray()
        return body

    async def send(self, message: Message) -> None:
        """Send *message*; a head goes with what follows it, or at the loop's next turn.

        Raises:
            RuntimeError: It is not what has to come next, or not what the head announced.
        """
        while self.is_full and not self.is_gone:
            if self._room is None:
                self._room = asyncio.Event()
            self._room.clear()
            await self._room.wait()
        if self.is_gone:
            return
        expected = "http.response.body" if self.has_begun else "http.response.start"
        if message["type"] != expected or self.is_complete:
            raise RuntimeError(f"{message['type']!r} was sent where {expected!r} has to come.")
        if self.has_begun:
            self._say(message.get("body", b""), is_last=not message.get("more_body", False))
            return
        self._open(message["status"], b"", message.get("headers", ()))
        self._connection.loop.call_soon(self._flush)  # nothing may follow for long

    def begin(
        self, status: int, standing: Standing, headers: Headers, part: bytes, *, is_last: bool
    ) -> None:
        """Write the answer's head, *standing* headers and others, and *part* of its body."""
        if not self.is_gone:
            self._open(status, _standing_lines(standing), headers)
            self._say(part, is_last=is_last)

    def write(self, part: bytes) -> None:
        """Write *part* as a chunk, or as it is where there are none."""
        if self.is_gone:
            return
        if self._has_chunks:
            size = len(part)
            opening = _OPENINGS[size] if size < _KEPT else b"%x\r\n" % size
            part = b"".join((opening, part, b"\r\n"))
        self._transport.write(part)

    def end(self, part: bytes) -> None:
        """Write the last *part*."""
        if not self.is_gone:
            self._say(part, is_last=True)

    def _open(self, status: int, lines: bytes, headers: Headers) -> None:
        """Begin the answer, with *lines* and *headers*; its head is held."""
        more, length, closes = _read_headers(headers)
        lines += more
        self.has_begun = True
        self._awaits_continue = False
        scope = self.scope
        if scope["method"] == "HEAD":
            self._left = 0
        elif length is not None or status in _BODILESS:
            self._left = length or 0
        elif scope["http_version"] == "1.0":
            closes = True  # it has no chunks: the close ends the answer
        else:
            self._has_chunks = True
            lines += _CHUNKED
        if closes or not self.keep_alive:
            self.keep_alive = False
            lines += _CLOSE
        first = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        self._held = b"".join((first, self._connection.standing_lines, lines, b"\r\n"))

    def _say(self, part: bytes, *, is_last: bool) -> None:
        """Write *part*, behind the head if that is held."""
        if self.scope["method"] == "HEAD":
            part = b""
        if self._has_chunks:
            if part:
                part = b"%x\r\n%b\r\n" % (len(part), part)
            if is_last:
                part += _LAST_CHUNK
        elif self._left is not None:
            self._left -= len(part)
            if self._left < 0 or (is_last and self._left):
                raise RuntimeError("The answer is not as long as its head says.")
        if self._held:
            part = self._held + part
            self._held = b""
        if part:
            self._transport.write(part)
        if is_last:
            self._complete()

    def _complete(self) -> None:
        self.is_complete = True
        self.scope.pop("extensions", None)  # see leave
        if self.news is not None:
            self.news.set()
        if not self.keep_alive:
            self._transport.close()
        self._connection.on_answered()

    def _flush(self) -> None:
        """Write a head that nothing has followed yet."""
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def find_room(self) -> None:
        """Hear that the client reads again."""
        self.is_full = False
        if self._room is not None:
            self._room.set()
        if self.on_room is not None:
            self.on_room()

    def leave(self) -> None:
        """Hear that the client has left, if it has not its answer."""
        if self.is_complete or self.is_gone:
            return
        self.is_gone = True
        # Each holds the other, and would stay till a collection; who answers has taken it by now.
        self.scope.pop("extensions", None)
        for waking in (self.news, self._room):
            if waking is not None:
                waking.set()
        if self.on_gone is not None:
            self.on_gone()


def _read_headers(headers: Headers) -> tuple[bytes, int | None, bool]:
    """Return the lines of *headers*, the length in them, and whether they end the connection.

    Raises:
        RuntimeError: HTTP cannot say one of them.
    """
    lines: list[bytes] = []
    length, closes = None, False
    for given, value in headers:
        name = given.lower()
        if not _NAME.fullmatch(name) or _NO_VALUE.search(value):
            raise RuntimeError(f"The header {given!r} is none that HTTP can say.")
        if name == b"connection":
            closes |= b"close" in [token.strip() for token in value.lower().split(b",")]
        elif name != b"transfer-encoding":  # both are the server's to say
            lines.append(b"%b: %b\r\n" % (name, value))
            if name == b"content-length":
                length = int(value)
    return b"".join(lines), length, closes


@lru_cache(_HEADS_KEPT)
def _standing_lines(headers: Standing) -> bytes:
    """Return the lines of *headers* that say nothing of length and connection."""
    return _read_headers(headers)[0]
