"""The answer of an HTTP worker to one job, relayed: one by one, or all that a read brought at once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.events import EventRelay, Expected
from sglr_dataplane.engine.events_usage import Counted, counted_in
from sglr_dataplane.engine.h1.call import Call, CallError
from sglr_dataplane.engine.h1.pool import Pool
from sglr_dataplane.engine.http_statuses import error_of_status
from sglr_dataplane.engine.outlets import Outlet, RelayLimits, Spoken
from sglr_dataplane.engine.waiting import WaitingStream
from sglr_dataplane.errors import (
    DeadlineExceededError,
    RouterError,
    WorkerError,
    WorkerLostError,
    WorkerUnavailableError,
)
from sglr_dataplane.job import Chunk, Finish, Piece

logger = logging.getLogger(__name__)

_OK: Final = range(200, 300)
_EVENTS: Final = b"text/event-stream"
_FINISH: Final = Finish("stop")
_LONGEST_ERROR: Final = 65_536
"""Bytes of an error's body that are read: its sentence is at the beginning."""


class RelayStream(WaitingStream):
    """The pieces of one answer.

    Use it one way or the other. *One by one*: ``async for`` under ``aclosing``. *By batches*:
    :meth:`start` with a callback, which calls :meth:`drain` and looks at :attr:`is_over` and
    :attr:`failure`; a callback that does not drain holds the worker back.

    A stream's first piece is its first content, and all other pieces are as they come. An answer
    that is no stream is one piece: a worker that dies within it has said nothing yet.
    """

    def __init__(
        self,
        pool: Pool,
        request: bytes,
        expected: Expected,
        deadlines: Deadlines,
        *,
        streams: bool,
        limits: RelayLimits | None = None,
    ) -> None:
        """Prepare *request*, head and body; nothing is sent yet.

        Args:
            pool: The worker's connections.
            request: What is sent.
            expected: What a stream's end is known by.
            deadlines: The time limits.
            streams: Whether the answer is asked for as a stream: then its first event and each
                pause have limits.
            limits: See there.
        """
        super().__init__()
        self._pool = pool
        self._request = request
        self._deadlines = deadlines
        self._streams = streams
        self._limits = limits or RelayLimits()
        self._relay = EventRelay(expected, self._limits.line)
        self._call: Call | None = None
        self._on_news: Callable[[], None] | None = None
        self._outlet: Outlet | None = None
        self._spoken: Spoken | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = self._waits_since = 0.0
        self._status = 0
        self._headers: Mapping[bytes, bytes] = {}
        self._are_events = False
        self._unread: list[bytes] = []
        """Of a stream, what came and was not drained; else the body so far."""
        self._size = 0
        self._ended = False
        """Whether the body is complete."""
        self._lost: CallError | None = None
        self._pieces: deque[Chunk] = deque()
        self.is_over = False
        """Whether :meth:`drain` has nothing more to return, now or ever."""

    def __repr__(self) -> str:
        return f"<RelayStream {self._status or 'unanswered'}{' over' if self.is_over else ''}>"

    # --- by batches -----------------------------------------------------------------------------

    def start(self, on_news: Callable[[], None]) -> None:
        """Send the request.

        Args:
            on_news: Called after each socket read that brought something, and when the stream is
                over, at least once and possibly before this returns. It must not raise.
        """
        self._on_news = on_news
        self._waits_since = self._loop.time()
        self._ends_at = self._waits_since + self._deadlines.total
        self._arm(self._waits_since)
        self._call = self._pool.call(self._request, self)

    def follow(self, on_news: Callable[[], None]) -> None:
        """Go on by batches: *on_news* is called as :meth:`start` says, after the next read.

        What is there already is not told of: drain once.
        """
        self._on_news = on_news

    def pipe(self, outlet: Outlet, spoken: Spoken, seconds: float) -> None:
        """Write what passes as it came to *outlet*, and tell nobody; all else is to be drained.

        Args:
            outlet: Takes frames, unless it is full.
            spoken: Is told when.
            seconds: How long the job may still take.
        """
        self._outlet = outlet
        self._spoken = spoken
        self._ends_at = min(self._ends_at, self._loop.time() + seconds)
        if self._timer is not None:
            self._timer.cancel()
            self._arm(self._loop.time())

    def put_back(self, piece: Chunk) -> None:
        """Have *piece*, the last that was handed over, come next again."""
        self._pieces.appendleft(piece)

    def pull(self) -> tuple[None, list[Chunk]]:
        """Return no run, and what :meth:`drain` returns."""
        return None, self.drain()

    def drain(self) -> list[Chunk]:
        """Return the pieces that have arrived, in order, and let the worker send as much again.

        Pieces that came before a failure are returned by the call that notices the failure.
        """
        pieces = list(self._pieces)
        self._pieces.clear()
        if self.is_over:
            return pieces
        try:
            if self._are_events:
                self._relay_events(pieces)
            elif self._ended:
                pieces.append(self._whole())
                self._end(None)
            self._look_for_loss()
        except RouterError as failure:
            self._end(failure)
        return pieces

    def close(self) -> None:
        """End the worker's call if it still runs: its connection is closed before this returns."""
        self._on_news = None
        call, self._call = self._call, None
        if not self.is_over:
            self._end(None)
            if call is not None:
                call.cancel()
        self._wake()

    # --- one by one -----------------------------------------------------------------------------

    def __aiter__(self) -> RelayStream:
        return self

    async def __anext__(self) -> Chunk:
        """Return the next piece; whatever ends the stream ends the worker's call at once."""
        if self._on_news is None and not self.is_over:
            self.start(self._wake)
        while not self._pieces:
            self._pieces.extend(self.drain())
            if self._pieces:
                break
            if self.is_over:
                raise self._last_word()
            await self._wait()
        return self._pieces.popleft()

    async def aclose(self) -> None:
        """End the worker's call if it still runs, without awaiting it."""
        self._pieces.clear()
        self.failure = None
        self.close()

    # --- what the connection tells --------------------------------------------------------------

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Take the answer's head."""
        self._status = status
        self._headers = headers
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        self._are_events = status in _OK and kind == _EVENTS

    def on_body(self, data: bytes) -> None:
        """Keep *data*, and hold the worker back while too much of it is unread."""
        if self.is_over:
            return  # what a worker says after its last word
        self._unread.append(data)
        self._size += len(data)
        if self._are_events:
            if self._size > self._limits.unread and self._call is not None:
                link = self._call.link
                if link is not None:
                    link.pause()
        elif self._size > self._limits.whole or (
            self._status not in _OK and self._size > _LONGEST_ERROR
        ):
            self._cut()

    def on_part(self, data: bytes) -> None:
        """Take *data* and tell of it, unless it goes straight on."""
        outlet, spoken = self._outlet, self._spoken
        if (
            outlet is not None
            and spoken is not None
            and not self._unread
            and not outlet.is_full
            and self._relay.passes(data)
        ):
            self._waits_since = spoken.spoke_at = self._loop.time()
            outlet.write(data)
        else:
            self.on_body(data)
            self.on_read()

    def on_end(self) -> None:
        """Know that the body is complete."""
        self._ended = True

    def on_failure(self, error: CallError) -> None:
        """Know that nothing more comes."""
        self._lost = error
        self._tell()

    def on_read(self) -> None:
        """Tell the news of one read."""
        if self._are_events or self._ended:
            self._tell()

    def _tell(self) -> None:
        if self._on_news is not None and not self.is_over:
            self._on_news()

    def _cut(self) -> None:
        """Read no more of a body that is too long."""
        call, self._call = self._call, None
        self._ended = True
        if call is not None:
            call.cancel()
        self._loop.call_soon(self._tell)

    # --- the answer -----------------------------------------------------------------------------

    def _relay_events(self, pieces: list[Chunk]) -> None:
        """Append what came of a stream to *pieces*, and its finish if it is complete."""
        relay = self._relay
        part = self._unread[0] if len(self._unread) == 1 else b"".join(self._unread)
        self._unread.clear()
        self._size = 0
        if part:
            self._waits_since = self._loop.time()
            frames = relay.feed(part)
            if frames:
                pieces.append(Piece((), relay.usage, data=frames))
            if relay.failure is not None:
                raise relay.failure
            if self._call is not None and self._call.link is not None:
                self._call.link.resume()
        if relay.is_done or self._ended:
            rest = relay.end()
            pieces.append(Piece((), relay.usage, 0, _FINISH, data=rest))
            self._end(None)

    def _whole(self) -> Piece:
        """Return the answer that came in one piece.

        Raises:
            RouterError: It is an error, or no JSON.
        """
        body = b"".join(self._unread)
        self._unread.clear()
        if self._status not in _OK:
            raise error_of_status(self._status, self._headers.items(), body)
        if len(body) > self._limits.whole:
            raise WorkerError("The worker's answer is larger than the router reads.")
        kind = self._headers.get(b"content-type", b"")
        if b"json" not in kind.lower():
            raise WorkerError("The worker answered with something that is not JSON.")
        if self._headers.get(b"content-encoding", b"identity") != b"identity":
            raise WorkerError("The worker answered with a compressed body.")
        usage = counted_in(body, Counted()).usage(0)
        return Piece((), usage, 0, _FINISH, data=body, media_type=kind.decode("latin-1"))

    def _look_for_loss(self) -> None:
        """Raise what an answer that will not become complete has failed with."""
        lost = self._lost
        if self.is_over or lost is None:
            return
        logger.debug("call failed", extra={"reason": str(lost)})
        if self._pool.is_closed:
            raise WorkerUnavailableError("The worker left before its answer was complete.")
        if not lost.sent:
            raise WorkerUnavailableError("The worker cannot be reached.")
        raise WorkerLostError("The worker went away before its answer was complete.")

    def _end(self, failure: RouterError | None) -> None:
        """Be over; after a failure the worker's call is, too."""
        self.is_over = True
        self.failure = failure
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        call = self._call
        if call is None or call.is_over:
            return
        if failure is not None:
            call.cancel()
        else:
            # The body's end is on its way: then the connection can carry the next call.
            if call.link is not None:
                call.link.resume()
            self._loop.call_later(self._deadlines.linger, call.cancel)

    # --- deadlines ------------------------------------------------------------------------------

    def _arm(self, now: float) -> None:
        """Look at the deadlines when the next one may have passed; not at every token."""
        delay = min(self._limit()[0] - now, self._deadlines.idle)
        self._timer = self._loop.call_later(max(delay, 0.001), self._check)

    def _limit(self) -> tuple[float, float]:
        """Return when the stream is given up, and after how long a wait that is."""
        total = self._ends_at, self._deadlines.total
        if not self._streams or (self._are_events and self._unread):
            # All comes in one piece; or it is we who keep the worker waiting.
            return total
        wait = self._deadlines.idle if self._relay.has_content else self._deadlines.first_token
        return min(total, (self._waits_since + wait, wait))

    def _check(self) -> None:
        """Give the stream up if a deadline has passed."""
        now = self._loop.time()
        at, wait = self._limit()
        if now < at:
            self._arm(now)
            return
        what = "another token" if self._relay.has_content else "a first token"
        if not self._streams:
            what = "its answer"
        self._end(DeadlineExceededError(f"The worker did not send {what} within {wait:g} s."))
        if self._on_news is not None:
            self._on_news()
