"""What may be sent now: windows, frame sizes and turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from sglr_dataplane.engine.h2.codes import (
    DEFAULT_FRAME_SIZE,
    DEFAULT_WINDOW,
    MAX_WINDOW,
    ErrorCode,
    Flag,
    FrameType,
)
from sglr_dataplane.engine.h2.errors import BrokenConnectionError, BrokenStreamError
from sglr_dataplane.engine.h2.frames import HEAD
from sglr_dataplane.engine.h2.stream import Stream


class Sender:
    """Cuts request bodies into DATA frames; streams take turns, a frame each."""

    def __init__(self) -> None:
        """Start with the windows every connection starts with."""
        self.window = DEFAULT_WINDOW
        """Bytes the peer still takes on the connection."""
        self.initial_window = DEFAULT_WINDOW
        """Bytes the peer takes on a new stream."""
        self.frame_size = DEFAULT_FRAME_SIZE
        self.held = False
        """True while the socket takes nothing: bodies wait, control frames do not."""
        self.turns: deque[Stream] = deque()
        """The streams that wait to send, the next one first."""

    def send(self, stream: Stream, body: bytes, out: list[bytes]) -> None:
        """Append to *out* what may be sent of *body*, which is not empty and all of *stream*'s."""
        size = len(body)
        if self.held or self.turns or size > min(self.frame_size, self.window, stream.send_window):
            stream.body = memoryview(body)
            self.turns.append(stream)
            self.pump(out)
            return
        self.window -= size
        stream.send_window -= size
        out += (HEAD.pack(size << 8 | FrameType.DATA, Flag.END_STREAM, stream.id), body)

    def drop(self, stream: Stream) -> None:
        """Forget what *stream* has left to send."""
        stream.body = None
        if stream in self.turns:
            self.turns.remove(stream)

    def pump(self, out: list[bytes]) -> None:
        """Append to *out* every DATA frame that the windows allow."""
        turns = self.turns
        while turns and self.window > 0 and not self.held:
            stream = turns.popleft()
            body = stream.body
            if body is None or stream.send_window <= 0:
                continue  # waits outside the turns for its own WINDOW_UPDATE
            size = min(len(body), self.frame_size, self.window, stream.send_window)
            last = size == len(body)
            flags = Flag.END_STREAM if last else 0
            out.append(HEAD.pack(size << 8 | FrameType.DATA, flags, stream.id) + body[:size])
            self.window -= size
            stream.send_window -= size
            stream.body = None if last else body[size:]
            if not last:
                turns.append(stream)

    def widen(self, increment: int) -> None:
        """Add *increment* to the connection's window.

        Raises:
            BrokenConnectionError: The increment is 0, or the window passes 2^31-1 (6.9).
        """
        if increment == 0:
            raise BrokenConnectionError(
                ErrorCode.PROTOCOL_ERROR, "The connection's window was widened by 0."
            )
        if self.window + increment > MAX_WINDOW:
            raise BrokenConnectionError(
                ErrorCode.FLOW_CONTROL_ERROR, "The connection's window passes 2^31-1."
            )
        self.window += increment

    def widen_stream(self, stream: Stream, increment: int) -> None:
        """Add *increment* to the window of *stream*.

        Raises:
            BrokenStreamError: The increment is 0, or the window passes 2^31-1 (6.9).
        """
        if increment == 0:
            raise BrokenStreamError(
                ErrorCode.PROTOCOL_ERROR, "The stream's window was widened by 0."
            )
        if stream.send_window + increment > MAX_WINDOW:
            raise BrokenStreamError(
                ErrorCode.FLOW_CONTROL_ERROR, "The stream's window passes 2^31-1."
            )
        self._shift(stream, increment)

    def change_initial_window(self, size: int, streams: Iterable[Stream]) -> None:
        """Apply a new SETTINGS_INITIAL_WINDOW_SIZE to new and to open *streams* (6.9.2).

        Raises:
            BrokenConnectionError: The window of an open stream passes 2^31-1.
        """
        difference = size - self.initial_window
        self.initial_window = size
        for stream in streams:
            if stream.send_window + difference > MAX_WINDOW:
                raise BrokenConnectionError(
                    ErrorCode.FLOW_CONTROL_ERROR,
                    "SETTINGS_INITIAL_WINDOW_SIZE makes a stream's window pass 2^31-1.",
                )
            self._shift(stream, difference)

    def _shift(self, stream: Stream, difference: int) -> None:
        """Change the window of *stream*; give it turns again when it can send."""
        stream.send_window += difference
        if stream.body is not None and stream.send_window > 0 and stream not in self.turns:
            self.turns.append(stream)
