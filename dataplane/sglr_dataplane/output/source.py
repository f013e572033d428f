"""What the parsers read from: text that arrives in pieces, read once, forwards.

Parsers are generators that ``yield`` when the text at hand does not decide the next step; the
machine resumes them with more. Whatever they take is recorded until :meth:`Source.forget` says it
found its place, so that text that turns out to be no markup can be given back whole (R2). Nothing
is read twice, and what stays unread between two pieces is shorter than the longest marker: the
cost is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import Protocol, TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]
"""A parser at work: yields when it needs more text, returns what it read."""

WHITESPACE = " \t\r\n"
_SPACE = re.compile(r"[ \t\r\n]*")


class MismatchError(Exception):
    """The text does not have the form that was expected; never leaves the machine."""


class TextPiece(Protocol):
    """Decoded text, and the id of the token when it is a whole special or added token."""

    @property
    def text(self) -> str:
        """The text; whole code points."""
        ...

    @property
    def token_id(self) -> int | None:
        """The added token this text is; None for ordinary text."""
        ...


class Markers:
    """Strings to look for.

    Those that are one token of the tokenizer match only as that token (R4), so that prose that
    spells them with ordinary tokens stays prose; the others match as text.
    """

    __slots__ = ("_atomic", "_firsts", "_longest", "_pattern", "_plain", "firsts", "may_begin_in")

    def __init__(self, texts: tuple[str, ...], tokens: frozenset[str]) -> None:
        self._atomic = frozenset(texts) & tokens
        self._plain = tuple(text for text in texts if text not in tokens)
        longest_first = sorted(texts, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) if texts else r"(?!)")
        self.firsts = "".join(sorted({text[0] for text in self._plain}))
        """The characters that markers begin with, other than those that are tokens."""
        self._firsts = re.compile(f"[{re.escape(self.firsts)}]" if self.firsts else r"(?!)")
        self.may_begin_in = self._firsts.search
        """Finds where a marker may begin in a text that is no token by itself; None: nowhere."""
        self._longest = max(map(len, self._plain), default=0)

    def search(self, text: str, at: int, atoms: dict[int, str]) -> tuple[int, str] | None:
        """Return where the first marker at or after *at* starts, and which it is.

        Args:
            text: The unread text.
            at: Where to start.
            atoms: Start → text of the pieces of *text* that are whole tokens.
        """
        for hit in self._pattern.finditer(text, at):
            marker = hit.group()
            if marker not in self._atomic or atoms.get(hit.start()) == marker:
                return hit.start(), marker
        return None

    def match(self, text: str, at: int, atoms: dict[int, str]) -> str | None:
        """Return the marker that stands at *at*, or None."""
        hit = self._pattern.match(text, at)
        if hit is None:
            return None
        marker = hit.group()
        return marker if marker not in self._atomic or atoms.get(at) == marker else None

    def begins(self, text: str, at: int) -> bool:
        """Return whether all that stands from *at* on is the beginning of a longer marker."""
        if len(text) - at >= self._longest:
            return False
        rest = text[at:]
        return any(len(rest) < len(m) and m.startswith(rest) for m in self._plain)

    def tail(self, text: str, at: int) -> int:
        """Return where the text ends that can be part of no marker still to come."""
        start = max(at, len(text) - self._longest + 1)
        while (hit := self._firsts.search(text, start)) is not None:
            if self.begins(text, hit.start()):
                return hit.start()
            start = hit.start() + 1
        return len(text)


@lru_cache(maxsize=2048)
def markers(texts: tuple[str, ...], tokens: frozenset[str]) -> Markers:
    """Return the compiled set of *texts* for a tokenizer whose added tokens are *tokens*."""
    return Markers(texts, tokens)


class Source:
    """The text of one choice, as far as it has come, and how far it was read."""

    __slots__ = ("_at", "_atoms", "_record", "_text", "ended", "tokens", "work")

    def __init__(self, tokens: frozenset[str] = frozenset()) -> None:
        self.tokens = tokens
        """The texts of the tokenizer's added tokens."""
        self.ended = False
        """True once nothing more will come."""
        self.work = 0
        """Characters looked at, for the proof that the cost is linear."""
        self._text = ""
        self._at = 0
        self._atoms: dict[int, str] = {}
        self._record: list[str] = []

    def __repr__(self) -> str:
        return f"Source(unread={self._text[self._at :]!r}, ended={self.ended})"

    def push(self, pieces: Sequence[TextPiece]) -> None:
        """Append *pieces* to the unread text."""
        shift = self._at
        parts = [self._text[shift:]]
        self._atoms = {at - shift: text for at, text in self._atoms.items() if at >= shift}
        length = len(parts[0])
        for piece in pieces:
            if piece.token_id is not None:
                self._atoms[length] = piece.text
            parts.append(piece.text)
            length += len(piece.text)
        self._text = "".join(parts)
        self._at = 0
        self.work += length

    @property
    def has_unread(self) -> bool:
        """Whether text is at hand that was not read yet."""
        return self._at < len(self._text)

    def unread(self) -> tuple[str, int]:
        """Return the text at hand and the offset from which it is unread."""
        return self._text, self._at

    def take(self, end: int) -> str:
        """Read up to offset *end*; record and return what was read."""
        taken = self._text[self._at : end]
        self._at = end
        self._record.append(taken)
        return taken

    def forget(self) -> None:
        """Everything read so far has found its place."""
        self._record.clear()

    def recorded(self) -> str:
        """Return, and forget, what was read since the last ``forget``."""
        text = "".join(self._record)
        self._record.clear()
        return text

    def markers(self, *texts: str) -> Markers:
        """Return *texts* as markers of this choice's tokenizer."""
        return markers(texts, self.tokens)

    def recorded_parts(self) -> int:
        """Return in how many parts what was read since the last ``forget`` is recorded."""
        return len(self._record)

    def recorded_from(self, part: int) -> str:
        """Return what was recorded from the *part*-th part on."""
        return "".join(self._record[part:])

    # The steps parsers are made of.

    def more(self) -> Reading[bool]:
        """Wait until there is something unread; return False when the text has ended."""
        while self._at >= len(self._text):
            if self.ended:
                return False
            yield
        return True

    def peek(self) -> Reading[str]:
        """Return the next character without reading it; ``""`` at the end."""
        if self._at >= len(self._text) and not (yield from self.more()):
            return ""
        return self._text[self._at]

    def space(self) -> Reading[None]:
        """Read whitespace, if there is any."""
        while True:
            found = _SPACE.match(self._text, self._at)
            if found is not None and found.end() > self._at:
                self.take(found.end())
            if self._at < len(self._text) or not (yield from self.more()):
                return

    def ahead(self, *texts: str) -> Reading[str | None]:
        """Return whichever of *texts* comes next, without reading it; None when none does."""
        wanted = self.markers(*texts)
        while True:
            if self._at >= len(self._text) and not (yield from self.more()):
                return None
            if self.ended or not wanted.begins(self._text, self._at):
                return wanted.match(self._text, self._at, self._atoms)
            yield

    def literal(self, *texts: str) -> Reading[str | None]:
        """Read and return whichever of *texts* comes next; None when none of them does."""
        found = yield from self.ahead(*texts)
        if found is not None:
            self.take(self._at + len(found))
        return found

    def expect(self, *texts: str) -> Reading[str]:
        """Read and return whichever of *texts* comes next.

        Raises:
            MismatchError: None of them does.
        """
        found = yield from self.literal(*texts)
        if found is None:
            raise MismatchError
        return found

    def known(self, wanted: Markers, aside: Callable[[str], object]) -> Reading[str | None]:
        """Return the next of *wanted*, unread; whatever stands before it goes *aside*.

        Returns:
            The marker; None when the text ended, be it in the beginning of a marker, which is
            then read: it was markup.
        """
        yield from self.space()
        while self._at >= len(self._text) or wanted.begins(self._text, self._at):
            if self.ended:
                self.take(len(self._text))
                return None
            yield
        return (yield from self.until(wanted, aside))

    def until(self, wanted: Markers, emit: Callable[[str], object]) -> Reading[str | None]:
        """Give the text before the next marker to *emit*; return the marker, still unread.

        Returns:
            The marker, or None when the text ended first.
        """
        while True:
            found = wanted.search(self._text, self._at, self._atoms)
            end = found[0] if found else len(self._text)
            if not self.ended:
                if found is None:
                    end = wanted.tail(self._text, self._at)
                elif wanted.begins(self._text, end):
                    found = None
            if end > self._at:
                emit(self.take(end))
            if found is not None:
                return found[1]
            if self.ended:
                return None
            yield

    def text_until(self, *texts: str) -> Reading[tuple[str, str | None]]:
        """Return the text before the first of *texts* and which it was, still unread."""
        parts: list[str] = []
        found = yield from self.until(self.markers(*texts), parts.append)
        return "".join(parts), found

    def run(self, pattern: re.Pattern[str]) -> Reading[str]:
        """Read and return the longest run of characters that *pattern*, one character, matches."""
        parts: list[str] = []
        while True:
            end = self._at
            while end < len(self._text) and pattern.match(self._text, end):
                end += 1
            if end > self._at:
                parts.append(self.take(end))
            if self._at < len(self._text) or not (yield from self.more()):
                return "".join(parts)
