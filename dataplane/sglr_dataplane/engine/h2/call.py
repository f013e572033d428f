"""One RPC with one request message, on whatever connection serves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from sglr_dataplane.engine.h2.errors import UnprocessedStreamError
from sglr_dataplane.engine.h2.link import Link
from sglr_dataplane.engine.h2.splitter import Splitter, frame_message
from sglr_dataplane.engine.h2.status import (
    CANCELLED,
    INTERNAL,
    CallError,
    read_end,
    refusal_of,
    speaks_grpc,
)
from sglr_dataplane.engine.h2.stream import Lane, Stream

_FREE_RETRIES: Final = 3
"""How often a call that the peer promises not to have processed is sent again: a restarting worker
refuses once; one that always refuses must not be asked for ever."""


class Dialer(Protocol):
    """What finds a connection for a call."""

    def dial(self, call: Call) -> None:
        """Begin *call* now or as soon as a connection can take it, or fail it."""
        ...

    def forget(self, call: Call) -> None:
        """Let *call* wait no longer."""
        ...


class Call:
    """An RPC that runs, waits for a connection, or is over.

    Its owner hears of news by the listener, takes the messages when it wants them, and cancels.
    """

    __slots__ = (
        "_body",
        "_dialer",
        "_error",
        "_head_seen",
        "_link",
        "_listener",
        "_retries",
        "_splitter",
        "_stream",
        "block",
        "is_over",
        "size",
    )

    def __init__(
        self,
        dialer: Dialer,
        block: bytes,
        message: bytes,
        *,
        limit: int,
        listener: Callable[[], None],
    ) -> None:
        """Prepare the call; :meth:`Dialer.dial` starts it.

        Args:
            dialer: What finds a connection, again when the first refuses.
            block: The request's header block.
            message: The request message.
            limit: Bytes of the largest message that is read.
            listener: Called after each read that brought bytes of the answer's body, and at the
                call's end.
        """
        self._dialer = dialer
        self.block = block
        self.size = len(message)
        """The request message's bytes."""
        self._body = frame_message(message)
        self._listener: Callable[[], None] | None = listener
        self._splitter = Splitter(limit)
        self._link: Link | None = None
        self._stream: Stream | None = None
        self._head_seen = False
        self._retries = _FREE_RETRIES
        self._error: CallError | None = None
        self.is_over = False
        """Whether nothing more will arrive; messages may still wait to be taken."""

    def __repr__(self) -> str:
        """Show the state."""
        return f"<Call {self._error or self._stream or 'waits for a connection'}>"

    @property
    def has_waiting(self) -> bool:
        """Whether bytes have arrived that nobody took."""
        return self._stream is not None and bool(self._stream.payloads)

    @property
    def error(self) -> CallError | None:
        """Why the call failed; None for status OK. Only of a call that is over and taken empty."""
        if self._error is not None or self._stream is None:
            return self._error
        error = read_end(self._stream)
        if error is None and self._splitter.rest:
            return CallError(INTERNAL, "The answer ended within a message.")
        return error

    def begin(self, link: Link) -> bool:
        """Send the request on *link*; return whether it could be."""
        self._link = link
        self._stream = link.open(self.block, self._body, self._hear)
        return self._stream is not None

    def take(self, before: bytes = b"") -> list[bytes]:
        """Return the messages that have arrived, and let the worker send as much again.

        After a failure at this end, such as an answer that is none of gRPC's, there are none.

        Args:
            before: The end of what :meth:`take_bytes` returned last, which nobody read.
        """
        stream, link = self._stream, self._link
        payloads = [before] if before else []
        if stream is not None and link is not None and stream.payloads and self._error is None:
            payloads += stream.payloads
            stream.payloads.clear()
            if stream.room <= link.low:
                link.refill(stream)
        if not payloads:
            return payloads
        messages = self._splitter.split(payloads)
        if self._splitter.error is not None:
            self.fail(self._splitter.error)
        return messages

    def take_bytes(self) -> bytes:
        """Return what :meth:`take` would, uncut; empty when it begins within a message.

        Whatever of it the caller does not read goes to :meth:`take`.
        """
        stream, link = self._stream, self._link
        if stream is None or link is None or self._error is not None:
            return b""
        if not stream.payloads or self._splitter.rest:
            return b""
        data = b"".join(stream.payloads)
        stream.payloads.clear()
        if stream.room <= link.low:
            link.refill(stream)
        return data

    def lay(self, lane: Lane | None) -> None:
        """Ask *lane* before the listener; None: no more. While bytes wait to be read none is laid."""
        stream = self._stream
        if stream is None:
            return
        is_clean = not (stream.payloads or self._splitter.rest or self.is_over)
        stream.lane = lane if is_clean else None

    def fail(self, error: CallError) -> None:
        """End the call with *error*, at the worker too; nothing if it is over."""
        if self._error is None:
            self._error = error
            self.is_over = True
            self._hang_up()

    def cancel(self) -> None:
        """End the call for nobody's ears: the worker hears of it before this returns."""
        self._listener = None
        if not self.is_over:
            self._error = CallError(CANCELLED, "The call was cancelled here.")
            self.is_over = True
        self._hang_up()

    def notify(self) -> None:
        """Call the listener, for the last time if the call is over."""
        listener = self._listener
        if self.is_over:
            # Lets go of the owner, which holds this call: no cycle is left to the collector.
            self._listener = None
            if self._stream is not None:
                self._stream.listener = None
        if listener is not None:
            listener()

    def _hang_up(self) -> None:
        """Reset the stream if it is open; leave the queue if not even that."""
        if self._stream is not None and self._link is not None:
            self._link.cancel(self._stream)
        else:
            self._dialer.forget(self)

    def _hear(self) -> None:
        """Look at the stream after a read that brought something."""
        stream = self._stream
        if stream is None:
            return
        if not self._head_seen:
            if isinstance(stream.failure, UnprocessedStreamError) and self._retries:
                self._retries -= 1
                self._link = self._stream = None
                self._dialer.dial(self)
                return
            head = stream.head
            self._head_seen = head is not None
            # An answer that is trailers only says its own status, whatever HTTP's is.
            if head is not None and stream.trailers is not head and not speaks_grpc(head):
                self.fail(refusal_of(head))
        if stream.ended or stream.failure is not None:
            self.is_over = True
        if self.is_over:
            self.notify()
        elif stream.payloads and self._listener is not None:
            self._listener()
