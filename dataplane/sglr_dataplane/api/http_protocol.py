"""HTTP/1.1 for uvicorn's server: strict, bounded, and short.

uvicorn makes one of these for each connection, counts connections and tasks, keeps the date and
says when to end; that is all that is known of it here. httptools parses, and a Cycle answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import unquote

import httptools
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from sglr_dataplane.api.cycle import Cycle
from sglr_dataplane.api.refusals import ProtocolLimits, invalid, rendered, too_large, too_slow
from sglr_dataplane.api.write_watch import WriteWatch

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

    from sglr_dataplane.errors import RouterError

logger = logging.getLogger(__name__)

COUNT_REFUSAL: Final = "sglr.count_refusal"
"""The key of the lifespan's state under which an application may put what is told each refusal."""
_LINE_EXTRA: Final = 4
"""Bytes of a header line besides name and value: the colon, a space and the line's end."""
_UNREAD_BYTES: Final = 65536
"""Of a body that the application has not taken: above that the client has to wait."""
_PIECE: Final = 4096
"""Bytes parsed at once: no more become requests, objects 50 times as large, before their turn."""
_URLS_KEPT: Final = 32
"""Requests ask for a few paths over and over."""


class BoundedProtocol(asyncio.Protocol):
    """Ignores ``Upgrade``, limits headers, speaks HTTP/1.0, refuses in the envelope.

    RFC 9110, 7.8: a server may ignore Upgrade. The parser cannot, it stops before the body; so a
    request with that header is parsed again without it.
    """

    limits: ClassVar[ProtocolLimits] = ProtocolLimits()

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Take what uvicorn gives."""
        self._app: Any = config.loaded_app  # pyright: ignore[reportUnknownMemberType]  # uvicorn's
        self._idle_seconds = config.timeout_keep_alive
        self._server = server_state
        self._app_state = app_state
        self.loop = _loop or asyncio.get_running_loop()
        self._parser = _new_parser(self)
        self._scope: dict[str, Any] = {}
        """What the scopes of all requests have in common."""
        self._standing: list[tuple[bytes, bytes]] | None = None
        self._standing_lines = b""
        self._url = b""
        self._method = ""
        self._headers: list[tuple[bytes, bytes]] = []
        self._awaits_continue = False
        self._refusal: RouterError | None = None
        self._is_deaf = False
        self._latest: Cycle | None = None
        """The request that came last, None before the first."""
        self._answered: Cycle | None = None
        """The request that is or was answered last."""
        self._waiting = deque[Cycle]()
        """Requests that came before the one before was answered, the next one first."""
        self._later = bytearray()
        """What came behind those, not parsed yet; empty while none waits."""
        self._unfinished = 0
        """Bytes that came since a head began, or the parser told of something behind it."""
        self._in_head = True
        self._has_begun = False
        """Whether a byte of the head that is not complete has come."""
        self._is_full = False
        """Whether the client does not read."""
        self.reads = True
        self._idle_since: float | None = None
        """When the last answer was complete, by the loop's clock; None while there is something."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a stream's
        """Wait for a request, not for ever."""
        self.transport = transport
        self._unread = WriteWatch(transport, self.loop, self.limits.write_seconds)
        self._server.connections.add(self)  # type: ignore[arg-type]  # it wants what can be shut down
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "server": get_local_addr(transport),
            "client": get_remote_addr(transport),
            "scheme": "https" if is_ssl(transport) else "http",
            "root_path": "",
        }
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Parse *data*, unless the connection is over for its client."""
        if self._is_deaf:
            return
        self._idle_since = None
        if len(data) <= _PIECE and not self._waiting:
            self._parse(data)
        else:
            self._later += data
            self._read_on()

    def _read_on(self) -> None:
        """Parse what came, up to a request that waits for its turn."""
        later = self._later
        while later and not self._waiting and not self._is_deaf:
            piece, later[:_PIECE] = bytes(later[:_PIECE]), b""
            self._parse(piece)
        if later:
            self._pause_reading()
            self._unwatch_head()  # the rest of it may have come

    def _parse(self, data: bytes) -> None:
        """Parse *data*, the next that came."""
        self._unfinished += len(data)
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as stop:
                self._feed_without_upgrade(data[stop.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(self._refusal or invalid(str(error)))
            return
        if self._unfinished > self.limits.head_bytes:
            self._refuse(too_large(self.limits))
        elif self._head_timer is None and (
            self._in_head or self._latest is None or self._latest.is_complete
        ):
            self._watch_head()  # nothing can happen before more of a head comes

    def _feed_without_upgrade(self, rest: bytes) -> None:
        """Parse the head that was just parsed again, without what stopped the parser, and *rest*."""
        while True:
            if self._method == "CONNECT":
                raise httptools.HttpParserError("CONNECT is not served")
            version = self._parser.get_http_version().encode()
            lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, version)]
            lines += [b"%b: %b" % header for header in self._headers if header[0] != b"upgrade"]
            self._parser = _new_parser(self)
            data = b"\r\n".join([*lines, b"", rest])
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as stop:
                rest = data[stop.args[0] :]
            else:
                return

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url = b""
        self._headers = []
        self._awaits_continue = False
        self._unfinished = 0
        self._in_head = self._has_begun = True

    def on_url(self, url: bytes) -> None:
        """Take a piece of the URL."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a trailer is dropped: it comes after everybody has read the headers."""
        if self._in_head:
            name = name.lower()
            self._headers.append((name, value))
            if name == b"expect":
                self._awaits_continue = value.lower() == b"100-continue"

    def _check_head(self) -> None:
        """Have the parser end with the refusal of a head that is too large."""
        lines, limits = self._headers, self.limits
        size = len(self._url) + sum(map(len, chain.from_iterable(lines))) + _LINE_EXTRA * len(lines)
        if size > limits.head_bytes or len(lines) > limits.head_lines:
            self._refusal = too_large(limits)
            raise self._refusal

    def on_headers_complete(self) -> None:
        """Begin to answer, unless the request is parsed again."""
        parser = self._parser
        self._check_head()
        self._unfinished = 0
        self._method = parser.get_method().decode("ascii")
        if parser.should_upgrade():
            return
        self._in_head = self._has_begun = False
        if self._head_timer is not None:
            self._unwatch_head()
        path, raw_path, query = _read_url(self._url)
        scope = self._scope | {
            "method": self._method,
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self._headers,
            "state": self._app_state.copy(),
        }
        version = parser.get_http_version()
        if version != "1.1":
            scope["http_version"] = version
        cycle = Cycle(
            self,
            scope,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            awaits_continue=self._awaits_continue,
        )
        before, self._latest = self._latest, cycle
        if before is None or before.is_complete:
            self._answer(cycle)
        else:
            self._waiting.append(cycle)
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._unfinished = 0
        cycle = self._latest
        if cycle is None or cycle.is_complete:
            return
        cycle.body += body
        if len(cycle.body) > _UNREAD_BYTES:
            self._pause_reading()
        if cycle.news is not None:
            cycle.news.set()

    def on_message_complete(self) -> None:
        """End a request, unless it is parsed again."""
        self._unfinished = 0
        cycle = self._latest
        if cycle is not None and not self._parser.should_upgrade():
            cycle.has_body = True
            if cycle.news is not None:
                cycle.news.set()

    def _answer(self, cycle: Cycle) -> None:
        """Have the application answer."""
        self._answered = cycle
        cycle.is_full = self._is_full
        task = self.loop.create_task(cycle.run(self._app))
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    @property
    def standing_lines(self) -> bytes:
        """The header lines of every answer; the server renews their headers each second."""
        headers = self._server.default_headers
        if headers is not self._standing:
            self._standing = headers
            self._standing_lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        return self._standing_lines

    def on_answered(self) -> None:
        """Go on with the next request; what the client has not read yet is watched."""
        self._server.total_requests += 1
        if not self.transport.is_closing():
            if self._waiting:
                self._answer(self._waiting.popleft())
                self._read_on()
            else:
                self._idle_since = self.loop.time()
                if self._idle_timer is None:
                    self._idle_timer = self.loop.call_later(self._idle_seconds, self._end_idling)
            self.resume_reading()
        if self.transport.get_write_buffer_size():
            self._unread.begin()

    def _refuse(self, error: RouterError) -> None:
        """Answer what is no request with *error*, after the answers that are on their way."""
        self._is_deaf = True
        self._later.clear()
        logger.info("request refused", extra={"problem": error.message, "code": error.code})
        cycle = self._latest
        is_body = cycle is not None and not cycle.has_body  # of a request that is counted
        if COUNT_REFUSAL in self._app_state and not is_body:
            self._app_state[COUNT_REFUSAL](error)
        if cycle is not None and not cycle.is_complete:
            if cycle.has_begun or self._waiting or cycle.has_body:
                # Bytes of ours would land within another answer, or come before it.
                cycle.keep_alive = False
                return
            cycle.leave()
        if cycle is None or not (is_body and cycle.is_complete):
            self.transport.write(rendered(error, self._url.decode("latin-1")))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._linger_timer = self.loop.call_later(self.limits.linger_seconds, self.transport.close)

    def shutdown(self) -> None:
        """Close soon; at once, where there is nothing, or but a refused client."""
        is_idle = self._latest is None or self._latest.is_complete
        if is_idle or self._linger_timer is not None:
            self.transport.close()
        elif self._latest is not None:
            self._latest.keep_alive = False

    def _pause_reading(self) -> None:
        if self.reads:
            self.reads = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read what the client sends, in case that stopped; not while much is left to parse."""
        if not self.reads and len(self._later) <= _UNREAD_BYTES:
            self.reads = True
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        """Wait for the client to read, not for ever."""
        self._is_full = True
        if self._answered is not None:
            self._answered.is_full = True
        self._unread.begin()

    def resume_writing(self) -> None:
        """Go on: the client reads."""
        self._is_full = False
        self._unread.end()
        if self._answered is not None:
            self._answered.find_room()

    def _end_idling(self) -> None:
        """Close a connection that nothing has come by for long; look again at any other."""
        self._idle_timer = None
        if self._idle_since is None:
            return
        left = self._idle_since + self._idle_seconds - self.loop.time()
        if left > 0:
            self._idle_timer = self.loop.call_later(left, self._end_idling)
        else:
            self.transport.close()

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
            self._refuse(too_slow(self.limits))
        elif self._latest is None or self._latest.is_complete:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # why does not matter
        """Forget everything, and tell who answers that nobody listens."""
        self._server.connections.discard(self)
        for timer in (self._idle_timer, self._head_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        self._unread.end()
        self._is_deaf = True
        del self._parser  # each holds the other
        self._waiting.clear()
        latest, self._latest = self._latest, None
        answered, self._answered = self._answered, None
        for cycle in {latest, answered}:
            if cycle is not None:
                cycle.leave()


def _new_parser(protocol: BoundedProtocol) -> httptools.HttpRequestParser:
    """Return a parser that tells *protocol*."""
    parser = httptools.HttpRequestParser(protocol)
    # What comes behind a request that closes the connection must not spoil its answer.
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


@lru_cache(_URLS_KEPT)
def _read_url(url: bytes) -> tuple[str, bytes, bytes]:
    """Return the path of *url*, as text and as it came, and its query."""
    parsed = httptools.parse_url(url)
    raw_path = parsed.path or b"/"  # "http://host", which is asked of proxies, has none
    path = raw_path.decode("ascii")
    return unquote(path) if "%" in path else path, raw_path, parsed.query or b""
