"""A worker's stream of events on its way to the client: bytes in, frames out; pure.

The rules are WHATWG's: only LF, CR and CRLF end a line. What clients choke on is left out: ids,
``retry:``, comments and events without data (openai-python 3.57 dies of the last three). Events
that consist of one ``data:`` line, which all of a chat's do, pass as they are, many at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from sglr_dataplane.engine.events_usage import Counted, counted_in
from sglr_dataplane.engine.http_statuses import error_of_event
from sglr_dataplane.engine.json_values import is_array, is_object, object_in
from sglr_dataplane.errors import RouterError, TruncatedStreamError, WorkerError
from sglr_dataplane.job import Usage

LONGEST_LINE: Final = 16 * 2**20
"""Bytes of a line, and of an event's data: log probabilities and images pass 1 MiB, a runaway does
not get far."""
_LONGEST_HOLD: Final = 2**20
"""Bytes that wait for the first content."""

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_LF: Final = 0x0A
_BOM: Final = b"\xef\xbb\xbf"
_BEGIN: Final = b"data: {"
_NEXT: Final = b"\n\ndata: {"
_DONE: Final = b"[DONE]"
_LAST: Final = b"\n\ndata: [DONE]\n\n"
_ERROR: Final = b'"error"'
# Inside a string the quotes would have backslashes.
_USAGE: Final = b'"usage":'
_ENDS: Final = 2
"""Line ends of an event with one line."""
_UNFINISHED: Final = b'"finish_reason":null'
_FINISH: Final = re.compile(rb'"finish_reason": ?["{]')

# Events of Messages and Responses that come before any content does.
_OPENINGS: Final = frozenset(
    {
        "message_start",
        "content_block_start",
        "ping",
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    }
)
_ENDINGS: Final = frozenset(
    {"message_stop", "response.completed", "response.incomplete", "response.failed"}
)


@dataclass(frozen=True, slots=True)
class Expected:
    """What a stream's end is known by."""

    finishes: int = 1
    """Choices that are asked for: a stream that ended without ``[DONE]`` is whole with as many."""
    named: bool = False
    """Whether events have names that clients go by, and one of them is the last (Messages,
    Responses); else they have none, and ``[DONE]`` is the last."""


class EventRelay:
    """One stream's events.

    Nothing is returned before the first event with content: until then another worker may be tried.
    """

    def __init__(self, expected: Expected, longest_line: int = LONGEST_LINE) -> None:
        """Relay what ends as *expected*; refuse lines, and events' data, above *longest_line*."""
        self._expected = expected
        self._longest = longest_line
        self._pending = bytearray()
        self._after_cr = False
        self._is_first = True
        self._is_within = True
        """Whether a part must be read line by line: within a line or an event, before the first
        content, and after the end."""
        self._data: list[bytes] = []
        self._length = 0
        self._name = b""
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._finishes = 0
        self.has_content = False
        """Whether an event had content."""
        self.is_done = False
        """Whether the stream said that it is complete; what follows is not read."""
        self.failure: RouterError | None = None
        """The error that the worker ended the stream with, after frames that were returned."""
        self._counted = Counted()
        self._events = 0

    def __repr__(self) -> str:
        state = "done" if self.is_done else "open"
        return f"<EventRelay {state} events={self._events} pending={len(self._pending)}>"

    @property
    def usage(self) -> Usage:
        """What the worker says the answer has cost; each event a token while it says nothing."""
        return self._counted.usage(self._events)

    def feed(self, part: bytes) -> bytes:
        """Return the frames for the client that *part* completes; ``b""`` when there are none.

        Raises:
            RouterError: The worker ended the stream with an error, or a line is too long, and no
                content was returned yet. Later it becomes :attr:`failure`.
        """
        if self.passes(part):
            return part
        frames: list[bytes] = []
        was_begun = self.has_content
        try:
            self._slowly(part, frames)
        except RouterError as failure:
            if not was_begun:
                raise
            self.failure = failure
        self._is_within = bool(
            not self.has_content
            or self.is_done
            or self._pending
            or self._after_cr
            or self._data
            or self._name
        )
        return b"".join(frames)

    def end(self) -> bytes:
        """Return what is still to be sent of a stream whose bytes have ended.

        Raises:
            TruncatedStreamError: It was not complete.
        """
        if not self.is_done and (self._expected.named or self._finishes < self._expected.finishes):
            raise TruncatedStreamError(
                "The worker ended the stream without saying how the generation finished."
            )
        self.is_done = True
        return self._release()

    # --- the fast way ---------------------------------------------------------------------------

    def passes(self, part: bytes) -> bool:
        """Return whether *part* is nothing but whole events that pass as they are; count them.

        If it is, it is what :meth:`feed` would return; if not, it has to be fed.
        """
        if self._is_within or not part.startswith(_BEGIN) or not part.endswith(b"\n\n"):
            return False
        ends = part.count(b"\n")
        more = part.count(_NEXT) if ends > _ENDS else 0
        # Each event has two line ends, of which the last event's two begin no other: if that is all
        # there are, no event has a second line.
        if ends != _ENDS * more + _ENDS or b"\r" in part or _ERROR in part:
            return False
        if len(part) > self._longest:
            return False
        self._events += more + 1
        if part.count(_UNFINISHED) <= more:
            self._finishes += len(_FINISH.findall(part))
        told = part.rfind(_USAGE)
        if told >= 0 and not part.startswith(b"null", told + len(_USAGE)):
            begin = part.rfind(b"\n", 0, told) + 1
            data = part[begin + len(b"data: ") : part.index(b"\n", told)]
            self._counted = counted_in(data, self._counted)
        return True

    # --- line by line ---------------------------------------------------------------------------

    def _slowly(self, part: bytes, frames: list[bytes]) -> None:
        begin = 0
        if self._after_cr and part and part[0] == _LF:
            begin = 1  # the CR of this CRLF came with the part before and ended the line already
        for end in _LINE_END.finditer(part, begin):
            piece = part[begin : end.start()]
            begin = end.end()
            if self.is_done:
                break
            self._line(self._whole(piece), frames)
        if part:
            self._after_cr = part.endswith(b"\r")
        if not self.is_done:
            self._pending += part[begin:]
            self._check(len(self._pending))

    def _whole(self, piece: bytes) -> bytes:
        line = bytes(self._pending) + piece if self._pending else piece
        self._pending.clear()
        self._check(len(line))
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        return line

    def _check(self, length: int) -> None:
        if length > self._longest:
            raise WorkerError(
                f"A line of the worker's stream is longer than the {self._longest} bytes that are "
                "relayed."
            )

    def _line(self, line: bytes, frames: list[bytes]) -> None:
        if not line:
            self._dispatch(frames)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._length += len(value) + 1
            self._check(self._length - 1)
            self._data.append(value)
        elif name == b"event":
            self._name = value

    def _dispatch(self, frames: list[bytes]) -> None:
        data, name = b"\n".join(self._data), self._name
        self._data.clear()
        self._length, self._name = 0, b""
        if data == _DONE:
            self.is_done = True
            frames.append(self._release())
        elif data:  # without data there is no event, and its name is forgotten
            self._event(data, name, frames)

    def _event(self, data: bytes, name: bytes, frames: list[bytes]) -> None:
        document = object_in(data) if _must_be_read(data, name, self.has_content) else None
        if name == b"error" or (document is not None and document.get("error")):
            raise error_of_event(document, data)
        if _USAGE in data:
            self._counted = counted_in(data, self._counted)
        self._finishes += len(_FINISH.findall(data))
        frame = b"".join(b"data: " + line + b"\n" for line in data.split(b"\n")) + b"\n"
        if self._expected.named and name:
            frame = b"event: " + name + b"\n" + frame
            self.is_done = name.decode("utf-8", "replace") in _ENDINGS
        self._events += self.has_content
        if not self.has_content and not self.is_done and not _has_content(document):
            self._held.append(frame)
            self._held_bytes += len(frame)
            if self._held_bytes <= _LONGEST_HOLD:
                return
            frame = b""
        if not self.has_content:
            self.has_content = True
            self._events += 1
            frames.append(self._release())
        frames.append(frame)

    def _release(self) -> bytes:
        """Return the frames that waited for content."""
        held = b"".join(self._held)
        self._held.clear()
        return held


def _must_be_read(data: bytes, name: bytes, has_content: bool) -> bool:  # noqa: FBT001  # three facts
    return not has_content or _ERROR in data or name == b"error"


def _has_content(document: dict[str, Any] | None) -> bool:
    """Return whether an event tells anything of the answer: a role alone, or an opening, does not."""
    if document is None:
        return True
    if document.get("type") in _OPENINGS:
        return False
    choices = document.get("choices")
    if not is_array(choices):
        return True
    return any(map(_says_something, choices))


def _says_something(choice: object) -> bool:
    if not is_object(choice):
        return True
    if choice.get("finish_reason") or choice.get("text") or choice.get("logprobs"):
        return True
    delta = choice.get("delta")
    if not is_object(delta):
        return "delta" not in choice and "text" not in choice
    return any(value for name, value in delta.items() if name != "role")
