"""What the peer of an HTTP/2 connection does: bytes in, streams with news out; no I/O.

The half of :class:`~sglr_dataplane.engine.h2.machine.Machine` that listens. Section numbers are
RFC 9113's.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import ClassVar

from sglr_dataplane.engine.h2.codes import (
    DEFAULT_FRAME_SIZE,
    DEFAULT_TABLE_SIZE,
    FRAME_HEAD,
    MAX_STREAM_ID,
    PING_SIZE,
    PRIORITY_SIZE,
    ErrorCode,
    Flag,
    FrameType,
)
from sglr_dataplane.engine.h2.errors import (
    BrokenConnectionError,
    BrokenStreamError,
    H2Error,
    ResetStreamError,
    UnprocessedStreamError,
)
from sglr_dataplane.engine.h2.events import Event, GoingAway, PingAnswered, SettingsChanged
from sglr_dataplane.engine.h2.frames import (
    HEAD,
    SETTINGS_ACK,
    pack_ping,
    pack_window_update,
)
from sglr_dataplane.engine.h2.headers import (
    Fields,
    check_trailers,
    read_content_length,
    read_head,
)
from sglr_dataplane.engine.h2.settings import read_settings
from sglr_dataplane.engine.h2.state import State
from sglr_dataplane.engine.h2.stream import Stream
from sglr_dataplane.engine.h2.unpack import (
    PendingBlock,
    depends_on_itself,
    read_goaway,
    read_stream_id,
    read_word,
    strip_padding,
    strip_priority,
)

_HTTP1 = b"HTTP/"
_DATA = b"\0"
"""The type of a frame that carries a body."""
_TRIMMED = Flag.PADDED | Flag.PRIORITY
"""What makes a header block only a part of its frame's payload."""


class Inbound(State):
    """The receivers of all frames that change the state."""

    def receive(self, data: bytes) -> list[Event]:
        """Return what *data* brought: each stream with news once, and what befell all of them.

        After a broken rule :attr:`fault` is set, every open stream has failed, and the output ends
        with GOAWAY; what came before it in *data* is valid.
        """
        events = self._events = []
        self._reads += 1
        if self.fault is not None:
            return events
        if not self._sender.held:
            self._idle_frames = 0
        buffer = self._rest + data if self._rest else data
        position, size = 0, len(buffer)
        try:
            while position < size:
                if self._block is None and buffer[position + 3 : position + 4] == _DATA:
                    position = self._receive_data_run(buffer, position)
                    if position == size:
                        break
                start, position = position, self._receive_frame(buffer, position)
                if position == start:
                    break
        except BrokenConnectionError as error:
            self._break(error)
        self._rest = buffer[position:]
        used = self.limits.connection_window - self._room
        if used * 2 >= self.limits.connection_window:
            self.output.append(pack_window_update(0, used))
            self._room = self.limits.connection_window
        if self._sender.turns:
            self._sender.pump(self.output)
        return events

    def _receive_data_run(self, buffer: bytes, position: int) -> int:
        """Take the plain DATA frames from *position* on; the hot path of every token.

        Returns:
            Where the first frame starts that is anything else, breaks a rule, or is not whole.
        """
        unpack, live, events, read = HEAD.unpack_from, self._live, self._events, self._reads
        size, room = len(buffer), self._room
        while position + FRAME_HEAD <= size:
            word, flags, stream_id = unpack(buffer, position)
            if flags or word & 0xFF:
                break
            length = word >> 8
            stop = position + FRAME_HEAD + length
            stream = live.get(stream_id)
            if (
                stream is None
                or stop > size
                or not 0 < length <= DEFAULT_FRAME_SIZE
                or length > stream.room
                or length > room
            ):
                break
            room -= length
            stream.room -= length
            stream.payloads.append(buffer[position + FRAME_HEAD : stop])
            if stream.read != read:
                stream.read = read
                events.append(stream)
            position = stop
        self._room = room
        return position

    def _receive_frame(self, buffer: bytes, position: int) -> int:
        """Take one frame of any kind; return where the next starts, or *position* if not whole."""
        if len(buffer) - position < FRAME_HEAD:
            return position
        head: tuple[int, int, int] = HEAD.unpack_from(buffer, position)
        word, flags, stream_id = head
        kind, length, stream_id = word & 0xFF, word >> 8, stream_id & MAX_STREAM_ID
        if not self.is_settled:
            _check_greeting(buffer, kind, flags)
        if length > DEFAULT_FRAME_SIZE:
            raise _frame_size(f"A frame has {length} bytes, above 16384.")
        if self._block is not None and (
            kind != FrameType.CONTINUATION or stream_id != self._block.stream_id
        ):
            raise _protocol("A frame interrupts a header block.")
        stop = position + FRAME_HEAD + length
        if stop > len(buffer):
            return position
        receive = self._RECEIVERS.get(kind, Inbound._receive_unknown)
        try:
            receive(self, flags, stream_id, buffer[position + FRAME_HEAD : stop])
        except BrokenStreamError as error:
            self._break_stream(stream_id, error)
        return stop

    # --- one receiver per frame type (6) --------------------------------------------------------

    def _receive_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Take DATA that is padded, last, empty, unexpected or against a rule."""
        stream = self._find(stream_id, "DATA", ended=False)
        if len(payload) > self._room:
            raise BrokenConnectionError(
                ErrorCode.FLOW_CONTROL_ERROR, "DATA exceeds the connection's window."
            )
        self._room -= len(payload)  # also for streams reset here: 5.1, "closed"
        content = strip_padding(flags, payload)
        if stream is None:
            return
        if stream.head is None:
            raise BrokenStreamError(ErrorCode.PROTOCOL_ERROR, "DATA came before HEADERS.")
        if len(payload) > stream.room:
            raise BrokenStreamError(
                ErrorCode.FLOW_CONTROL_ERROR, "DATA exceeds the stream's window."
            )
        stream.room -= len(payload)
        stream.received += len(content)
        if content:
            stream.payloads.append(content)
            self._note(stream)
        if flags & Flag.END_STREAM:
            self._end(stream)
        elif not content:
            self._count_idle_frame()

    def _receive_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Take HEADERS."""
        depends_on = None
        if flags & _TRIMMED:
            payload, depends_on = strip_priority(flags, strip_padding(flags, payload))
        stream = self.streams.get(stream_id) or self._find(stream_id, "HEADERS", ended=False)
        is_last = bool(flags & Flag.END_STREAM)
        if flags & Flag.END_HEADERS:
            self._receive_block(stream, payload, is_last=is_last)
        else:
            self._block = PendingBlock(stream_id, payload, is_last=is_last)
        if depends_on == stream_id:
            raise depends_on_itself()

    def _receive_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Take CONTINUATION."""
        if self._block is None:
            raise _protocol(f"CONTINUATION on stream {stream_id} continues nothing.")
        self._block.add(payload, self.limits.header_list)
        if flags & Flag.END_HEADERS:
            block, self._block = self._block, None
            stream = self.streams.get(stream_id)
            self._receive_block(stream, block.join(), is_last=block.is_last)

    def _receive_block(self, stream: Stream | None, block: bytes, *, is_last: bool) -> None:
        """Take a whole header block; its fields are read even when nobody waits for them."""
        fields = self._reader.read(block)
        if stream is None:
            return
        if stream.head is None:
            self._receive_head(stream, fields, is_last=is_last)
        elif is_last:
            check_trailers(fields)
            stream.trailers = fields
            self._end(stream)
        else:
            raise BrokenStreamError(ErrorCode.PROTOCOL_ERROR, "Trailers do not end the stream.")

    def _receive_head(self, stream: Stream, fields: Fields, *, is_last: bool) -> None:
        """Take the first fields of an answer, or an interim one's (8.1)."""
        status = read_head(fields)
        if status // 100 == 1:
            if is_last or status == HTTPStatus.SWITCHING_PROTOCOLS:
                raise BrokenStreamError(
                    ErrorCode.PROTOCOL_ERROR, f"Interim status {status} ends or switches."
                )
            self._count_idle_frame()
            return
        stream.declared = read_content_length(fields)
        stream.head = fields
        self._note(stream)
        if is_last:
            stream.trailers = fields
            self._end(stream)
        elif stream.declared is None:
            self._live[stream.id] = stream

    def _receive_priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Check PRIORITY, which means nothing any more (5.3.2)."""
        if stream_id == 0:
            raise _protocol("PRIORITY on stream 0.")
        self._count_idle_frame()
        if len(payload) != PRIORITY_SIZE:
            raise BrokenStreamError(
                ErrorCode.FRAME_SIZE_ERROR, f"PRIORITY has {len(payload)} bytes, not 5."
            )
        if read_stream_id(payload) == stream_id:
            raise depends_on_itself()

    def _receive_reset(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Take RST_STREAM."""
        code = read_word(payload, "RST_STREAM")
        stream = self._find(stream_id, "RST_STREAM")
        if stream is None:
            self._count_idle_frame()
            return
        failure: H2Error = ResetStreamError(code, "The peer reset the stream.")
        if code == ErrorCode.REFUSED_STREAM and stream.head is None:
            failure = UnprocessedStreamError(code, "The peer refused the stream.")
        self._close(stream, failure)
        self._note(stream)

    def _receive_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Take SETTINGS, and acknowledge them."""
        if stream_id:
            raise _protocol(f"SETTINGS on stream {stream_id}.")
        if flags & Flag.ACK:
            if payload:
                raise _frame_size("The acknowledgement of SETTINGS is not empty.")
            return
        self._count_idle_frame()
        self.peer = read_settings(payload, self.peer)
        self.is_settled = True
        if self.peer.header_table_size < DEFAULT_TABLE_SIZE:
            self._must_shrink = True
        self._sender.frame_size = self.peer.max_frame_size
        self._sender.change_initial_window(self.peer.initial_window_size, self.streams.values())
        self.output.append(SETTINGS_ACK)
        self._events.append(SettingsChanged(self.peer))

    def _receive_push_promise(self, _flags: int, stream_id: int, _payload: bytes) -> None:
        """Refuse PUSH_PROMISE: push was switched off (6.6)."""
        raise _protocol(f"PUSH_PROMISE on stream {stream_id}, though push is off.")

    def _receive_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Answer PING, or take the answer."""
        if stream_id:
            raise _protocol(f"PING on stream {stream_id}.")
        if len(payload) != PING_SIZE:
            raise _frame_size(f"PING has {len(payload)} bytes, not 8.")
        self._count_idle_frame()
        if flags & Flag.ACK:
            self._events.append(PingAnswered(payload))
        else:
            self.output.append(pack_ping(payload, ack=True))

    def _receive_goaway(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Take GOAWAY: fail what the peer did not process, let the rest finish (6.8)."""
        if stream_id:
            raise _protocol(f"GOAWAY on stream {stream_id}.")
        last, code, reason = read_goaway(payload)
        if self.goaway is not None and last > self.goaway.last_stream_id:
            raise _protocol("A second GOAWAY names a higher stream than the first.")
        self.goaway = GoingAway(last, code, reason)
        self.takes_streams = False
        for stream in [stream for stream in self.streams.values() if stream.id > last]:
            self._close(stream, UnprocessedStreamError(code, f"The peer goes away. {reason}"))
            self._note(stream)
        self._events.append(self.goaway)

    def _receive_window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Take WINDOW_UPDATE."""
        increment = read_word(payload, "WINDOW_UPDATE") & MAX_STREAM_ID
        if stream_id == 0:
            self._sender.widen(increment)
            return
        stream = self._find(stream_id, "WINDOW_UPDATE")
        if stream is not None:
            self._sender.widen_stream(stream, increment)

    def _receive_unknown(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        """Skip a frame of a type that is not known here (4.1)."""
        self._count_idle_frame()

    _RECEIVERS: ClassVar[dict[int, Callable[[Inbound, int, int, bytes], None]]] = {
        FrameType.DATA: _receive_data,
        FrameType.HEADERS: _receive_headers,
        FrameType.PRIORITY: _receive_priority,
        FrameType.RST_STREAM: _receive_reset,
        FrameType.SETTINGS: _receive_settings,
        FrameType.PUSH_PROMISE: _receive_push_promise,
        FrameType.PING: _receive_ping,
        FrameType.GOAWAY: _receive_goaway,
        FrameType.WINDOW_UPDATE: _receive_window_update,
        FrameType.CONTINUATION: _receive_continuation,
    }


def _check_greeting(buffer: bytes, kind: int, flags: int) -> None:
    """Raise unless the peer's first frame is SETTINGS (3.4)."""
    if buffer.startswith(_HTTP1):
        raise BrokenConnectionError(ErrorCode.HTTP_1_1_REQUIRED, "The peer answers in HTTP/1.")
    if kind != FrameType.SETTINGS or flags & Flag.ACK:
        raise _protocol("The peer's first frame is not SETTINGS.")


def _protocol(reason: str) -> BrokenConnectionError:
    """Return the error of a connection whose peer broke the protocol."""
    return BrokenConnectionError(ErrorCode.PROTOCOL_ERROR, reason)


def _frame_size(reason: str) -> BrokenConnectionError:
    """Return the error of a connection whose peer sent a frame of a wrong size."""
    return BrokenConnectionError(ErrorCode.FRAME_SIZE_ERROR, reason)
