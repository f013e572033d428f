"""One request and its answer: read the body, answer, and notice a client that leaves."""

from __future__ import annotations

import asyncio
import re
from os import urandom
from typing import TYPE_CHECKING, Any, Final

import anyio
import orjson

from sglr_dataplane.api.faults import ClientGoneError
from sglr_dataplane.api.outlet import EXTENSION
from sglr_dataplane.errors import (
    BodyTimeoutError,
    InvalidRequestError,
    RequestTooLargeError,
    UnsupportedMediaTypeError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sglr_dataplane.api.outlet import Outlet, Standing
    from sglr_dataplane.errors import RouterError
    from sglr_dataplane.fleet.keys import Key

Headers = list[tuple[bytes, bytes]]

_DISCARD_SECONDS: Final = 10.0
_BODY_SECONDS: Final = 60.0
"""Without a byte of a body that was begun: what nginx allows."""
_ID: Final = b"x-request-id"
_VISIBLE_ASCII: Final = re.compile(rb"[!-~]{1,128}")
_JSON: Final = b"application/json"
_UTF_8: Final = frozenset({b"utf-8", b"utf8", b"us-ascii"})
"""Names of it and of its part; RFC 8259 knows no other, but clients and proxies declare them."""
_NONE: Final[dict[str, Any]] = {}
_SSE: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    # Proxies that buffer or compress would hold tokens back.
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Exchange:
    """One HTTP request and the answer to it, from the front door to the log line."""

    text: bytes | None = None
    """The request's body; None before it was read."""
    key: Key | None = None
    """The router's key that it came with; None for none."""
    opens: tuple[str, frozenset[str]] | None = None
    """Whose key it came with, and the backends it opens; None for none of a backend's own."""
    is_confined = False
    """Whether it may use those backends and no others."""
    failure: str | None = None
    """What the request failed with, although its status may be sent; None: nothing."""
    status = 0
    """The answer's; 0 before it has begun."""
    warnings: Sequence[str] = ()
    """What the client is told in headers: what of its request had no effect."""
    streams = False
    """Whether a stream of events has begun."""
    is_over = False
    """Whether all of the answer was sent."""
    must_close = False
    """Whether the connection ends with the answer."""
    rates: Callable[[], Iterable[tuple[str, str]]] | None = None
    """Returns the headers that tell the key's rates; None without one."""
    content_sent_at: float | None = None
    """The access clock's reading when a stream's first content was sent; None before, and without a
    stream."""
    spoke_at = 0.0
    """The reading of the loop's clock when events were last sent."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, arrived: float) -> None:
        """Hold the three parts of an ASGI call, which *arrived* by the access log's clock."""
        self._scope = scope
        self._receive = receive
        self._send = send
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # servers run applications in tasks
        self.task: asyncio.Task[object] = task
        """What answers the request."""
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        """What was asked for."""
        self.headers: Headers = scope["headers"]
        """The request's headers, names in lower case; once it was admitted, without its key."""
        self.fields: dict[bytes, bytes] = dict(self.headers)
        """The same by their names; of several with one name the last."""
        self.request_id = (
            _given_id(self.headers) if _ID in self.fields else "req_" + urandom(12).hex()
        )
        """What client, router and logs call the request."""
        self.arrived = arrived
        self.facts: dict[str, object] = scope.setdefault("state", {}).get("facts") or {}
        """What the log line says besides; never content."""
        outlet = scope.get("extensions", _NONE).get(EXTENSION)
        self.outlet: Outlet | None = outlet
        """The way past ASGI for events after the first; None where there is none."""
        # Whoever has wrapped what sends has something to say in heads.
        self._direct = outlet if outlet is not None and outlet.send == send else None

    def note(self, **facts: object) -> None:
        """Add *facts* to the request's log line; never content."""
        self.facts |= facts

    def rid_of_keys(self, headers: Headers) -> None:
        """Have nothing but *headers* of the request's from here on."""
        self.headers = self._scope["headers"] = headers
        self.fields = dict(headers)

    async def body(self, limit: int, *, seconds: float = _BODY_SECONDS) -> bytes:
        """Return the request's body; the same one when asked again.

        Args:
            limit: Bytes it may have.
            seconds: That may pass without news of it.

        Raises:
            UnsupportedMediaTypeError: It is declared as something else than plain JSON.
            RequestTooLargeError: It is longer than *limit* bytes; the rest is not read.
            BodyTimeoutError: The client stopped sending before it was complete.
            ClientGoneError: The client left before it was complete.
        """
        if self.text is not None:
            return self.text
        declared = _declared_length(self.fields)
        if self.outlet is not None and declared <= limit:
            self.text = self.outlet.take_body()
            if self.text is not None:
                if len(self.text) > limit:
                    raise _too_large(limit)
                return self.text
        self.text = await self._gathered(declared, limit, seconds)
        return self.text

    async def _gathered(self, declared: int, limit: int, seconds: float) -> bytes:
        """Return all of the body, of which *declared* bytes were announced."""
        pieces: list[bytes] = []
        size, came, more = declared, 0, True
        while more and size <= limit:
            piece, more = await self._piece(seconds)
            pieces.append(piece)
            came += len(piece)
            size = max(declared, came)
        if size <= limit:
            return b"".join(pieces)
        if more:
            await self._discard(seconds)
        raise _too_large(limit)

    async def _piece(self, seconds: float) -> tuple[bytes, bool]:
        """Return the next piece of the body and whether there are more."""
        try:
            async with asyncio.timeout(seconds):
                message = await self._receive()
        except TimeoutError:
            raise BodyTimeoutError(
                f"The request's body stopped: nothing came for {seconds:g} seconds."
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        return message.get("body", b""), message.get("more_body", False)

    async def _discard(self, seconds: float) -> None:
        """Read what is left of the body and drop it, for a while.

        A client that is still sending when the connection closes loses the answer to a reset.
        """
        with anyio.move_on_after(_DISCARD_SECONDS):
            while (await self._piece(seconds))[1]:
                pass

    async def until_left(self) -> None:
        """Wait until the client has left; call after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def fail(self, failure: RouterError, frames: Callable[[RouterError], bytes]) -> None:
        """End a stream that has begun with the *frames* of *failure*.

        Raises:
            RouterError: Nothing was sent yet: *failure* can still have its status.
        """
        if not self.streams:
            raise failure
        # The status is sent: the failure travels in the stream, and there is no retry.
        self.failure = failure.code
        await self.send_events(frames(failure), is_last=True)

    async def answer(self, content: object) -> None:
        """Answer 200 with *content* as JSON."""
        await self.answer_as_it_is(orjson.dumps(content))

    async def answer_as_it_is(self, body: bytes, media_type: str = "application/json") -> None:
        """Answer 200 with *body*, whatever is in it."""
        standing = ((b"content-type", media_type.encode("latin-1")),)
        length = (b"content-length", b"%d" % len(body))
        await self._begin(standing, [length], body, is_last=True)

    async def answer_with(self, app: ASGIApp) -> None:
        """Answer with what *app* makes of the request; it finds this exchange in the scope's state."""
        state = self._scope["state"]
        state["exchange"] = self
        try:
            await app(self._scope, self._receive, self.send)
        finally:
            del state["exchange"]  # each holds the other, and would stay till a collection

    async def send_events(self, frames: bytes, *, is_last: bool = False) -> None:
        """Send *frames* at once, after the headers of a stream; waits while nobody reads."""
        self.spoke_at = self.task.get_loop().time()
        if not self.streams:
            self.streams = True
            await self._begin(_SSE, [], frames, is_last=is_last)
            return
        self.is_over = is_last
        direct = self._direct
        if direct is None or direct.is_full:
            message = {"type": "http.response.body", "body": frames, "more_body": not is_last}
            await self._send(message)
        elif is_last:
            direct.end(frames)
        elif frames:
            direct.write(frames)

    async def _begin(
        self, standing: Standing, headers: Headers, part: bytes, *, is_last: bool
    ) -> None:
        """Begin an answer with *standing* headers and others, and with *part* of its body."""
        if self.warnings:
            told = dict.fromkeys(self.warnings)
            headers += [(b"x-sglr-warning", each.encode("ascii")) for each in told]
        direct = self._direct
        if direct is None or direct.is_full:
            headers = [*standing, *headers]
            await self.send({"type": "http.response.start", "status": 200, "headers": headers})
            await self.send({"type": "http.response.body", "body": part, "more_body": not is_last})
            return
        self.status, self.is_over = 200, is_last
        direct.begin(200, standing, headers + self._stamps(), part, is_last=is_last)

    async def send(self, message: Message) -> None:
        """Send *message*, as ASGI has it; a head with what every answer of this exchange says."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._stamps()]
        else:
            self.is_over = not message.get("more_body", False)
        await self._send(message)

    def _stamps(self) -> Headers:
        """Return the headers of every answer of this exchange, whatever it is."""
        stamps: Headers = []
        if self.rates is not None:
            stamps += [(name.encode(), value.encode()) for name, value in self.rates()]
        if self.must_close:
            stamps.append((b"connection", b"close"))
        stamps.append((_ID, self.request_id.encode()))
        return stamps


def _given_id(headers: Headers) -> str:
    """Return the client's ``x-request-id`` where it is 1 to 128 visible characters, else a new one."""
    given = next(value for name, value in headers if name == _ID)
    return given.decode() if _VISIBLE_ASCII.fullmatch(given) else "req_" + urandom(12).hex()


def _too_large(limit: int) -> RequestTooLargeError:
    return RequestTooLargeError(
        f"The request body is larger than the {limit} bytes this router accepts."
    )


def _declared_length(fields: dict[bytes, bytes]) -> int:
    """Return how many bytes of JSON a request with *fields* announces, 0 where it does not say.

    Raises:
        UnsupportedMediaTypeError: It announces something else.
        InvalidRequestError: The length is no number.
    """
    media_type = fields.get(b"content-type", _JSON)
    if media_type != _JSON:
        _check_json(media_type)
    encoding = fields.get(b"content-encoding")
    if encoding is not None and (encoding := encoding.strip().lower()) != b"identity":
        raise UnsupportedMediaTypeError(
            f"Content-Encoding {encoding.decode('latin-1')!r} is not read here; "
            "send the body uncompressed."
        )
    length = fields.get(b"content-length")
    if length is None:
        return 0
    if not length.isdigit():
        raise InvalidRequestError("Content-Length is not a number.")
    return int(length)


def _check_json(declared: bytes) -> None:
    media_type, *parameters = (part.strip().lower() for part in declared.split(b";"))
    charsets = [p.partition(b"=")[2].strip(b' "') for p in parameters if p.startswith(b"charset")]
    if media_type != _JSON or not _UTF_8.issuperset(charsets):
        raise UnsupportedMediaTypeError(
            f"Content-Type {declared.decode('latin-1')!r} is not read here; "
            "send JSON in UTF-8 with Content-Type: application/json."
        )
