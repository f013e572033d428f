"""THE STATE OF ONE CONNECTION: what its user does; what the peer does is in ``inbound``."""

from __future__ import annotations

from sglr_dataplane.engine.h2.codes import (
    DEFAULT_WINDOW,
    MAX_STREAM_ID,
    PREFACE,
    ErrorCode,
    Flag,
    FrameType,
    SettingId,
)
from sglr_dataplane.engine.h2.errors import CancelledStreamError, LostConnectionError
from sglr_dataplane.engine.h2.frames import (
    HEAD,
    pack_goaway,
    pack_ping,
    pack_reset,
    pack_settings,
    pack_window_update,
    split_header_block,
)
from sglr_dataplane.engine.h2.headers import SHRINK_TABLE
from sglr_dataplane.engine.h2.inbound import Inbound
from sglr_dataplane.engine.h2.state import Limits
from sglr_dataplane.engine.h2.stream import Stream


class Machine(Inbound):
    """Client side of one HTTP/2 connection; no I/O.

    Feed it with :meth:`receive`, then send what :meth:`take_output` returns; every other method
    may leave output, too. After :attr:`fault` is set nothing but the output matters.
    """

    def __init__(self, limits: Limits) -> None:
        """Prepare the client's preface, which :meth:`take_output` returns first (3.4)."""
        super().__init__(limits)
        self.output += [
            PREFACE,
            pack_settings(
                (
                    (SettingId.ENABLE_PUSH, 0),
                    (SettingId.INITIAL_WINDOW_SIZE, limits.stream_window),
                    (SettingId.MAX_HEADER_LIST_SIZE, limits.header_list),
                )
            ),
            pack_window_update(0, limits.connection_window - DEFAULT_WINDOW),
        ]

    def __repr__(self) -> str:
        """Show the state."""
        state = self.fault or self.goaway or ("settled" if self.is_settled else "new")
        return f"<Machine {state}, {len(self.streams)} streams, room {self._room}>"

    @property
    def can_open(self) -> bool:
        """Whether a stream may be opened now."""
        limit = self.peer.max_concurrent_streams
        return (
            self.is_settled and self.takes_streams and (limit is None or len(self.streams) < limit)
        )

    def open(self, block: bytes, body: bytes) -> Stream:
        """Send a request with the header *block* and the whole *body*, not empty; needs can_open.

        Returns:
            The stream that its answer comes on.
        """
        stream = Stream(
            self._next_id, room=self.limits.stream_window, send_window=self._sender.initial_window
        )
        self._next_id += 2
        if self._next_id > MAX_STREAM_ID:
            self.takes_streams = False
        self.streams[stream.id] = stream
        if self._must_shrink:
            # Once is enough: a table of size 0 fits whatever the peer allows later.
            block = SHRINK_TABLE + block
            self._must_shrink = False
        sender = self._sender
        if len(block) <= sender.frame_size:
            head = HEAD.pack(len(block) << 8 | FrameType.HEADERS, Flag.END_HEADERS, stream.id)
            self.output += (head, block)
        else:
            self.output.extend(split_header_block(stream.id, block, sender.frame_size))
        sender.send(stream, body, self.output)
        return stream

    def take_payloads(self, stream: Stream) -> list[bytes]:
        """Return what arrived on *stream*, and let the peer send as much again."""
        payloads, stream.payloads = stream.payloads, []
        if stream.room * 2 <= self.limits.stream_window:
            self.refill(stream)
        return payloads

    def refill(self, stream: Stream) -> None:
        """Let the peer fill the window of *stream* again, all of which was taken."""
        window = self.limits.stream_window
        if stream.id in self.streams:
            self.output.append(pack_window_update(stream.id, window - stream.room))
            stream.room = window

    def cancel(self, stream: Stream) -> None:
        """End *stream* from this side; the peer learns it from the next output."""
        if stream.id in self.streams:
            self.output.append(pack_reset(stream.id, ErrorCode.CANCEL))
            self._close(stream, CancelledStreamError())

    def ping(self, opaque: bytes) -> None:
        """Ask the peer to answer; *opaque* is 8 bytes."""
        self.output.append(pack_ping(opaque))

    def hold(self, *, held: bool) -> None:
        """Stop or resume sending bodies, as the socket can take them."""
        self._sender.held = held
        self._idle_frames = 0
        self._sender.pump(self.output)

    def close(self) -> list[Stream]:
        """Say goodbye; return the open streams, which have failed."""
        if self.fault is None:
            self.output.append(pack_goaway(0, ErrorCode.NO_ERROR))
        return self.lose("The connection was closed here.")

    def lose(self, reason: str) -> list[Stream]:
        """Fail all open streams because the connection is gone, and return them."""
        if self.fault is None:
            self.fault = LostConnectionError(reason)
        return self._fail_all(self.fault)

    def take_output(self) -> bytes:
        """Return the bytes to send now."""
        if not self.output:
            return b""
        output = b"".join(self.output)
        self.output.clear()
        return output
