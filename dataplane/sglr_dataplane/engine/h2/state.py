"""The state of one HTTP/2 connection, and how streams enter news, end and fail; no I/O.

Section numbers are RFC 9113's.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from sglr_dataplane.engine.h2.codes import ErrorCode
from sglr_dataplane.engine.h2.errors import BrokenConnectionError, BrokenStreamError, H2Error
from sglr_dataplane.engine.h2.events import Event, GoingAway
from sglr_dataplane.engine.h2.frames import pack_goaway, pack_reset
from sglr_dataplane.engine.h2.headers import HeaderReader
from sglr_dataplane.engine.h2.sending import Sender
from sglr_dataplane.engine.h2.settings import PeerSettings
from sglr_dataplane.engine.h2.stream import Stream
from sglr_dataplane.engine.h2.unpack import PendingBlock

_FINISHED_KEPT = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """What the peer may do; in bytes where nothing else is said."""

    stream_window: int = 32 * 1024
    """What a stream may hold that nobody took: about 650 messages of one token. What a client that
    never reads costs in memory is about twice this."""
    connection_window: int = 16 * 1024 * 1024
    """Never the limit in practice: it is given back at once, whoever reads or not."""
    header_list: int = 64 * 1024
    """Largest header list, counted as SETTINGS_MAX_HEADER_LIST_SIZE is (6.5.2)."""
    idle_frames: int = 1_000
    """Frames that carry nothing: in one read, or while the socket takes no replies to them."""


class State:
    """What is known of one connection; the base of what changes it."""

    def __init__(self, limits: Limits) -> None:
        """Start before the first byte."""
        self.limits = limits
        self.peer = PeerSettings()
        self.is_settled = False
        """Whether the peer's first SETTINGS arrived."""
        self.goaway: GoingAway | None = None
        self.fault: H2Error | None = None
        """Why the connection is of no use any more; None while it is."""
        self.takes_streams = True
        """Whether a stream may ever be opened again."""
        self.streams: dict[int, Stream] = {}
        """The open streams."""
        self._live: dict[int, Stream] = {}
        """The open streams that may receive DATA without further ado."""
        self._finished: OrderedDict[int, None] = OrderedDict()
        """The last ids that the peer ended: any further frame there breaks a rule (5.1)."""
        self._next_id: int = 1
        self._room = limits.connection_window
        self._reader = HeaderReader(limits.header_list)
        self._sender = Sender()
        self._block: PendingBlock | None = None
        self._must_shrink = False
        """Whether the next header block must open with a table size of 0."""
        self._rest = b""
        self._events: list[Event] = []
        self._reads: int = 0
        """How many there were."""
        self._idle_frames = 0
        self.output: list[bytes] = []
        """What is to be sent."""

    def _find(self, stream_id: int, frame: str, *, ended: bool = True) -> Stream | None:
        """Return the open stream of a frame; None when it was closed and the frame means nothing.

        Args:
            stream_id: As in the frame.
            frame: The frame's name, for the error.
            ended: Whether the frame may still come after the peer ended the stream (5.1).

        Raises:
            BrokenConnectionError: There is or was no such stream, or it was ended.
        """
        stream = self.streams.get(stream_id)
        if stream is not None:
            return stream
        if stream_id == 0:
            raise BrokenConnectionError(ErrorCode.PROTOCOL_ERROR, f"{frame} on stream 0.")
        if stream_id % 2 == 0 or stream_id >= self._next_id:
            raise BrokenConnectionError(
                ErrorCode.PROTOCOL_ERROR, f"{frame} on idle stream {stream_id}."
            )
        if not ended and stream_id in self._finished:
            raise BrokenConnectionError(
                ErrorCode.STREAM_CLOSED, f"{frame} on stream {stream_id} after its end."
            )
        return None

    def _note(self, stream: Stream) -> None:
        """Report *stream* once for this read."""
        if stream.read != self._reads:
            stream.read = self._reads
            self._events.append(stream)

    def _end(self, stream: Stream) -> None:
        """Close *stream* after its whole answer arrived."""
        if stream.declared not in {None, stream.received}:
            raise BrokenStreamError(
                ErrorCode.PROTOCOL_ERROR,
                f"The body has {stream.received} bytes, not {stream.declared} as declared.",
            )
        stream.ended = True
        self._note(stream)
        if stream.body is not None:
            # 8.1: the answer came before the request was sent; nobody wants its rest.
            self.output.append(pack_reset(stream.id, ErrorCode.NO_ERROR))
        self._close(stream, None)
        self._finished[stream.id] = None
        if len(self._finished) > _FINISHED_KEPT:
            self._finished.popitem(last=False)

    def _close(self, stream: Stream, failure: H2Error | None) -> None:
        """Forget *stream*; *failure* says why, None after a whole answer."""
        stream.failure = failure
        self.streams.pop(stream.id, None)
        self._live.pop(stream.id, None)
        if stream.body is not None:
            self._sender.drop(stream)

    def _fail_all(self, failure: H2Error) -> list[Stream]:
        """Close every open stream with *failure*, and return them."""
        self.takes_streams = False
        failed = list(self.streams.values())
        for stream in failed:
            self._close(stream, failure)
        return failed

    def _break(self, error: BrokenConnectionError) -> None:
        """End the connection, on which the peer broke a rule that concerns all streams (5.4.1)."""
        self.output.append(pack_goaway(0, error.code, error.reason))
        self.fault = error
        for stream in self._fail_all(error):
            self._note(stream)

    def _break_stream(self, stream_id: int, error: BrokenStreamError) -> None:
        """Reset a stream on which the peer broke a rule; the others go on (5.4.2)."""
        stream = self.streams.get(stream_id)
        if stream is not None:
            self.output.append(pack_reset(stream_id, error.code))
            self._close(stream, error)
            self._note(stream)

    def _count_idle_frame(self) -> None:
        """Raise when the peer sends nothing but noise."""
        self._idle_frames += 1
        if self._idle_frames > self.limits.idle_frames:
            raise BrokenConnectionError(
                ErrorCode.ENHANCE_YOUR_CALM,
                f"More than {self.limits.idle_frames} frames in a row carry nothing.",
            )
