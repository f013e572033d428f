"""One request and its answer on ASGI: read the body, answer, and notice a client that leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import anyio
import orjson

from sglr_dataplane.api.auth import caller_of
from sglr_dataplane.api.faults import ClientGoneError
from sglr_dataplane.api.outlet import outlet_of
from sglr_dataplane.api.presence import Presence
from sglr_dataplane.errors import (
    BodyTimeoutError,
    InvalidRequestError,
    RequestTooLargeError,
    UnsupportedMediaTypeError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Message, Receive, Scope, Send

    from sglr_dataplane.api.outlet import Outlet
    from sglr_dataplane.errors import RouterError
    from sglr_dataplane.fleet.caller import Caller

_DISCARD_SECONDS: Final = 10.0
_BODY_SECONDS: Final = 60.0
"""Without a byte of a body that was begun: what nginx allows."""
_JSON: Final = b"application/json"
_UTF_8: Final = frozenset({b"utf-8", b"utf8", b"us-ascii"})
"""Names of it and of its part; RFC 8259 knows no other, but clients and proxies declare them."""
_SSE: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    # Proxies that buffer or compress would hold tokens back.
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class Exchange:
    """One HTTP request and the answer to it."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, *, body_seconds: float = _BODY_SECONDS
    ) -> None:
        """Hold the three parts of an ASGI call; *body_seconds* may pass without news of a body."""
        self._body_seconds = body_seconds
        self._scope = scope
        self._receive = receive
        self._send = send
        self._warnings: list[tuple[bytes, bytes]] = []
        self._body = b""
        self.arrived: float = scope["state"]["arrived"]
        """The reading of the access clock when the request came, in seconds."""
        self.content_sent_at: float | None = None
        """That of when a stream's first content was sent; None before, and without a stream."""
        self._streams = False
        self.spoke_at = 0.0
        """The reading of the loop's clock when events were last sent."""
        self._now = asyncio.get_running_loop().time
        self.outlet: Outlet | None = outlet_of(scope)
        """The way past ASGI for events after the first; None where there is none."""

    @property
    def path(self) -> str:
        """What was asked for."""
        found: str = self._scope["path"]
        return found

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The request's headers, names in lower case; keys were taken off."""
        found: list[tuple[bytes, bytes]] = self._scope["headers"]
        return found

    @property
    def request_id(self) -> str:
        """What client, router and logs call the request."""
        found: str = self._scope["state"]["request_id"]
        return found

    @property
    def streams(self) -> bool:
        """Whether a stream of events has begun."""
        return self._streams

    @property
    def caller(self) -> Caller:
        """Who asks; call after the body was read."""
        return caller_of(self._scope, self._body)

    def note(self, **facts: object) -> None:
        """Add *facts* to the request's log line; never content."""
        self._scope["state"].setdefault("facts", {}).update(facts)

    def note_failure(self, code: str | None) -> None:
        """Count the request as failed with *code*, although its status may already be sent."""
        self._scope["state"]["failure"] = code

    def warn(self, *sentences: str) -> None:
        """Tell the client in headers what of its request had no effect, instead of what was said before.

        A request that another backend takes in the end is prepared twice, for what each can do.
        """
        told = dict.fromkeys(sentences)
        self._warnings = [(b"x-sglr-warning", sentence.encode("ascii")) for sentence in told]

    async def body(self, limit: int) -> bytes:
        """Return the request's body.

        Raises:
            UnsupportedMediaTypeError: It is declared as something else than plain JSON.
            RequestTooLargeError: It is longer than *limit* bytes; the rest is not read.
            BodyTimeoutError: The client stopped sending before it was complete.
            ClientGoneError: The client left before it was complete.
        """
        headers = dict(self._scope["headers"])
        _check_media_type(headers)
        declared = int(headers.get(b"content-length", b"0"))
        pieces: list[bytes] = []
        size, came, more = declared, 0, True
        while more and size <= limit:
            piece, more = await self._piece()
            pieces.append(piece)
            came += len(piece)
            size = max(declared, came)
        if size <= limit:
            self._body = b"".join(pieces)
            return self._body
        if more:
            await self._discard()
        raise RequestTooLargeError(
            f"The request body is larger than the {limit} bytes this router accepts."
        )

    async def _piece(self) -> tuple[bytes, bool]:
        """Return the next piece of the body and whether there are more."""
        if self.outlet is not None and self.outlet.has_body:
            message = await self._receive()  # it is there
        else:
            message = await self._awaited()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        return message.get("body", b""), message.get("more_body", False)

    async def _awaited(self) -> Message:
        try:
            async with asyncio.timeout(self._body_seconds):
                return await self._receive()
        except TimeoutError:
            raise BodyTimeoutError(
                f"The request's body stopped: nothing came for {self._body_seconds:g} seconds."
            ) from None

    async def _discard(self) -> None:
        """Read what is left of the body and drop it, for a while.

        A client that is still sending when the connection closes loses the answer to a reset.
        """
        with anyio.move_on_after(_DISCARD_SECONDS):
            while (await self._piece())[1]:
                pass

    def while_connected(self, keepalive: float | None = None) -> Presence:
        """Return what cancels its block when the client leaves; see :class:`Presence`."""
        return Presence(self, keepalive)

    async def until_left(self) -> None:
        """Wait until the client has left; call after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def fail(self, failure: RouterError, frames: Callable[[RouterError], bytes]) -> None:
        """End a stream that has begun with the *frames* of *failure*.

        Raises:
            RouterError: Nothing was sent yet: *failure* can still have its status.
        """
        if not self._streams:
            raise failure
        # The status is sent: the failure travels in the stream, and there is no retry.
        self.note_failure(failure.code)
        await self.end_events(frames(failure))

    async def answer(self, content: object) -> None:
        """Answer 200 with *content* as JSON."""
        await self.answer_as_it_is(orjson.dumps(content))

    async def answer_as_it_is(self, body: bytes, media_type: str = "application/json") -> None:
        """Answer 200 with *body*, whatever is in it."""
        headers = [
            (b"content-type", media_type.encode("latin-1")),
            (b"content-length", str(len(body)).encode()),
            *self._warnings,
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def send_events(self, frames: bytes) -> None:
        """Send *frames* at once, after the headers of a stream; waits while nobody reads."""
        self.spoke_at = self._now()
        await self._begin_events()
        await self._send({"type": "http.response.body", "body": frames, "more_body": True})

    async def end_events(self, frames: bytes) -> None:
        """Send the last *frames* and end the answer."""
        await self._begin_events()
        await self._send({"type": "http.response.body", "body": frames})

    async def _begin_events(self) -> None:
        if self._streams:
            return
        self._streams = True
        await self._send(
            {"type": "http.response.start", "status": 200, "headers": [*_SSE, *self._warnings]}
        )


def _check_media_type(headers: dict[bytes, bytes]) -> None:
    declared = headers.get(b"content-type", _JSON)
    if declared != _JSON:
        _check_json(declared)
    encoding = headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding != b"identity":
        raise UnsupportedMediaTypeError(
            f"Content-Encoding {encoding.decode('latin-1')!r} is not read here; "
            "send the body uncompressed."
        )
    declared_length = headers.get(b"content-length")
    if declared_length is not None and not declared_length.isdigit():
        raise InvalidRequestError("Content-Length is not a number.")


def _check_json(declared: bytes) -> None:
    media_type, *parameters = (part.strip().lower() for part in declared.split(b";"))
    charsets = [p.partition(b"=")[2].strip(b' "') for p in parameters if p.startswith(b"charset")]
    if media_type != _JSON or not _UTF_8.issuperset(charsets):
        raise UnsupportedMediaTypeError(
            f"Content-Type {declared.decode('latin-1')!r} is not read here; "
            "send JSON in UTF-8 with Content-Type: application/json."
        )
