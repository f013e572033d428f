"""Server-sent events from raw bytes, by the WHATWG rules: bytes in, events out.

Usable by itself: ``for event in EventParser().feed(part)``. Only LF, CR and CRLF end a line;
Python's and httpx's own line iteration also split at U+2028 and others, which JSON may contain.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from sglr_client.errors import LineTooLongError

DEFAULT_CAP: Final = 16 * 1024 * 1024
"""Bytes of a line, and of an event's data: log-probabilities and images pass 1 MiB, a runaway
does not get far."""

_LF: Final = 0x0A
_BOM: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class Event(msgspec.Struct, frozen=True):
    """One event that has data.

    Attributes:
        data: Its data lines, joined with LF.
        event: Its type; ``message`` when the stream names none.
        id: The last event id the stream gave; ``""`` before the first.
        offset: The byte of the stream at which the event's first line begins.
    """

    data: bytes
    event: str = "message"
    id: str = ""
    offset: int = 0


class LineSplitter:
    """Cuts bytes into lines, whatever the borders of the parts."""

    def __init__(self, cap: int = DEFAULT_CAP) -> None:
        """Refuse lines of more than *cap* bytes."""
        self._cap = cap
        self._pending = bytearray()
        self._after_cr = False
        self._offset = 0
        self._broken: LineTooLongError | None = None

    def __repr__(self) -> str:
        return f"<LineSplitter at {self._offset}, {len(self._pending)} bytes pending>"

    def feed(self, part: bytes) -> list[tuple[int, bytes]]:
        """Return the lines that *part* ends: where each begins, and its bytes without the end.

        Raises:
            LineTooLongError: A line is longer than the cap; the lines before it were returned.
        """
        if self._broken is not None:
            raise self._broken
        lines: list[tuple[int, bytes]] = []
        try:
            self._cut(part, lines)
        except LineTooLongError as error:
            self._broken = error
            if not lines:
                raise
        return lines

    def _cut(self, part: bytes, lines: list[tuple[int, bytes]]) -> None:
        begin = 0
        if self._after_cr and part and part[0] == _LF:
            # The CR of this CRLF came with the part before and ended the line already.
            begin = 1
            self._offset += 1
        for end in _LINE_END.finditer(part, begin):
            lines.append(self._end(part[begin : end.start()], end.end() - end.start()))
            begin = end.end()
        if part:
            self._after_cr = part.endswith(b"\r")
        self._pending += part[begin:]
        self._check(len(self._pending))

    def _end(self, piece: bytes, width: int) -> tuple[int, bytes]:
        line = bytes(self._pending) + piece if self._pending else piece
        self._pending.clear()
        self._check(len(line))
        offset = self._offset
        self._offset += len(line) + width
        return offset, line

    def _check(self, length: int) -> None:
        if length > self._cap:
            raise LineTooLongError(
                f"A line of the stream is longer than the cap of {self._cap} bytes."
            )


class EventParser:
    """Turns the bytes of a stream into its events.

    Comments, fields without meaning here and events without data give nothing. What the stream
    leaves unfinished at its end is not an event.
    """

    def __init__(self, cap: int = DEFAULT_CAP) -> None:
        """Refuse lines, and events' data, of more than *cap* bytes."""
        self._lines = LineSplitter(cap)
        self._cap = cap
        self._data: list[bytes] = []
        self._length = 0
        self._type = ""
        self._begin: int | None = None
        self._broken: LineTooLongError | None = None
        self.last_id = ""
        """The last event id the stream gave, to reconnect with."""
        self.retry: int | None = None
        """Milliseconds the stream asks to wait before reconnecting; None: it did not."""

    def __repr__(self) -> str:
        return f"<EventParser {self._lines!r}, {len(self._data)} data lines>"

    def feed(self, part: bytes) -> list[Event]:
        """Return the events that *part* completes.

        Raises:
            LineTooLongError: A line, or an event's data, is longer than the cap; the events before
                it were returned.
        """
        if self._broken is not None:
            raise self._broken
        events: list[Event] = []
        try:
            for offset, line in self._lines.feed(part):
                self._line(offset, line, events)
        except LineTooLongError as error:
            self._broken = error
            if not events:
                raise
        return events

    def _line(self, offset: int, line: bytes, events: list[Event]) -> None:
        if offset == 0:
            line = line.removeprefix(_BOM)  # a stream may begin with one
        if line:
            self._take(offset, line)
        else:
            self._dispatch(events)

    def _take(self, offset: int, line: bytes) -> None:
        if self._begin is None:
            self._begin = offset
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add(value)
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry = int(value[:18])  # WHATWG: digits only, of any length

    def _add(self, value: bytes) -> None:
        self._length += len(value) + 1
        if self._length - 1 > self._cap:
            raise LineTooLongError(f"An event's data is longer than the cap of {self._cap} bytes.")
        self._data.append(value)

    def _dispatch(self, events: list[Event]) -> None:
        data = b"\n".join(self._data)
        # WHATWG: without data there is no event, and its type is forgotten.
        if data:
            begin = self._begin or 0
            events.append(Event(data, self._type or "message", self.last_id, begin))
        self._data.clear()
        self._length = 0
        self._type = ""
        self._begin = None
