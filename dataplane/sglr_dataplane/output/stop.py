"""Stop strings: where the text ends, found across pieces, with as little held back as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sglr_dataplane.output.source import TextPiece


@dataclass(frozen=True, slots=True)
class Cut:
    """Text cut out of a decoded piece."""

    text: str
    token_id: int | None = None


class StopMatcher:
    """Passes pieces on until a stop string is complete.

    Only the longest end of the text that is the beginning of a stop string is held back. When
    several stop strings occur, the one that is complete first counts; of two that end together,
    the longer one. The cost is linear: each string is followed by its own failure table.
    """

    __slots__ = ("_held", "_length", "_tables", "_trim", "matched")

    def __init__(self, stops: Sequence[str], *, trim: bool) -> None:
        """Look for *stops*; *trim* drops the one that matched from the text."""
        longest_first = sorted(stops, key=len, reverse=True)
        self._tables = [_Table(stop) for stop in longest_first]
        self._trim = trim
        self._held: list[TextPiece] = []
        self._length = 0
        self.matched: str | None = None
        """The stop string that ended the text."""

    @property
    def firsts(self) -> str | None:
        """The characters that stop strings begin with; None while one may have begun."""
        if self._held or self.matched is not None or any(table.state for table in self._tables):
            return None
        return "".join(table.stop[0] for table in self._tables)

    def feed(self, pieces: Sequence[TextPiece]) -> Sequence[TextPiece]:
        """Return the pieces that are surely before any stop string; nothing after a match."""
        if not self._tables:
            return pieces
        if self.matched is not None:
            return ()
        for piece in pieces:
            end = self._first_end(piece.text)
            if end is not None:
                return self._cut(piece, end)
            self._held.append(piece)
            self._length += len(piece.text)
        return self._release(max(table.state for table in self._tables))

    def pass_over(self, pieces: Sequence[TextPiece]) -> Sequence[TextPiece]:
        """Return what ``feed`` would, but stop strings that are complete within *pieces* go on.

        One that only begins there counts, if the pieces that are fed later complete it.
        """
        if not self._tables:
            return pieces
        for piece in pieces:
            for table in self._tables:
                table.pass_over(piece.text)
            self._held.append(piece)
            self._length += len(piece.text)
        return self._release(max(table.state for table in self._tables))

    def last(self, pieces: Sequence[TextPiece]) -> Sequence[TextPiece]:
        """Return what ``feed`` would, and what is held: nothing follows that completes a string."""
        ready = self.feed(pieces)
        if self.matched is not None:
            return ready
        held, self._held = self._held, []
        self._length = 0
        return [*ready, *held]

    def _first_end(self, text: str) -> int | None:
        """Return where in *text* the first stop string is complete."""
        first: int | None = None
        for table in self._tables:
            end = table.advance(text, len(text) if first is None else first)
            if end is not None and (first is None or end < first):
                first, self.matched = end, table.stop
        return first

    def _cut(self, piece: TextPiece, end: int) -> Sequence[TextPiece]:
        self._held.append(piece)
        self._length += end
        dropped = len(self.matched or "") if self._trim else 0
        return self._release(dropped)

    def _release(self, keep: int) -> Sequence[TextPiece]:
        """Return all but the last *keep* characters of what is held."""
        ready = self._length - keep
        released: list[TextPiece] = []
        for position, piece in enumerate(self._held):
            size = len(piece.text)
            if ready < size:
                if ready > 0:
                    released.append(Cut(piece.text[:ready]))
                rest = Cut(piece.text[ready:]) if ready > 0 else piece
                self._held[: position + 1] = [rest]
                self._length = keep
                return released
            released.append(piece)
            ready -= size
        self._held.clear()
        self._length = 0
        return released


class _Table:
    """How much of one stop string the text so far ends with (Knuth, Morris and Pratt)."""

    __slots__ = ("_fallback", "state", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.state = 0
        self._fallback = [0] * len(stop)
        length = 0
        for position in range(1, len(stop)):
            while length and stop[position] != stop[length]:
                length = self._fallback[length - 1]
            length += stop[position] == stop[length]
            self._fallback[position] = length

    def pass_over(self, text: str) -> None:
        """Follow *text* beyond every occurrence."""
        at: int | None = 0
        while at is not None:
            at = self.advance(text, len(text), at)
            if self.state == len(self.stop):
                # What has just ended may overlap with another that begins within it.
                self.state = self._fallback[-1]

    def advance(self, text: str, limit: int, at: int = 0) -> int | None:
        """Follow *text* from *at* up to *limit*; return the end of the first occurrence."""
        stop = self.stop
        while at < limit:
            if self.state == 0:
                at = text.find(stop[0], at, limit)
                if at < 0:
                    return None
            while self.state and text[at] != stop[self.state]:
                self.state = self._fallback[self.state - 1]
            self.state += text[at] == stop[self.state]
            at += 1
            if self.state == len(stop):
                return at
        return None
