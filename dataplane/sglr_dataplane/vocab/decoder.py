"""Turns token ids into text as they arrive, without losing or inventing a character."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

REPLACEMENT = "\ufffd"
EACH_BYTE = "sglr.replace_each_byte"
"""Name of the codec error handler that gives one U+FFFD per broken byte."""


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return REPLACEMENT * (error.end - error.start), error.end


codecs.register_error(EACH_BYTE, _replace_each_byte)


# A Struct, because one is made per token: 0.05 µs, where a frozen dataclass takes 0.3.
class Piece(msgspec.Struct, frozen=True, gc=False):
    """The next text of one choice; never empty."""

    text: str
    token_id: int | None = None
    """Set when the piece is exactly one added token, as markup is; None for ordinary text."""


@dataclass(frozen=True, slots=True)
class DecodingTable:
    """How a vocabulary's ids become text; shared by all its decoders."""

    tokens: tuple[bytes, ...]
    """The bytes of each id; empty for ids that stand for nothing."""
    atomic: Mapping[int, str]
    """Text of the added tokens, which are never part of a longer piece."""
    errors: str
    """The codec error handler that replaces broken bytes as the model's own decoder does."""
    strip: int
    """How many spaces the model's own decoder takes from the very start of a text."""
    first: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    """What ids are that stand for something else at the very start of a text."""


class IncrementalDecoder:
    """The decoding state of one choice: a few bytes of an unfinished character.

    All pieces of a choice, joined, are what the tokenizer's own ``decode`` makes of all its ids
    (with ``skip_special_tokens`` when the special ids are hidden), with one exception: in a broken
    run of byte-fallback tokens the complete characters are kept, where ``decode`` replaces the
    whole run, because they have been shown by the time the run breaks.

    A character is held back until its last byte has arrived; bytes that cannot become one are
    replaced by U+FFFD at once, so the work per token and the memory are constant. Ids outside the
    vocabulary, and its unused ids, stand for no text, as in ``decode``; nothing is raised for them.
    """

    __slots__ = ("_first", "_hide", "_pending", "_strip", "_table")

    def __init__(self, table: DecodingTable, hide: frozenset[int]) -> None:
        """Start at the beginning of a text.

        Args:
            table: The vocabulary's.
            hide: Ids that give no text. Bytes before and after a hidden token join.
        """
        self._table = table
        self._hide = hide
        self._strip = table.strip
        self._first = table.first or None  # None once it makes no difference
        self._pending = b""  # the first one to three bytes of a character

    def __repr__(self) -> str:
        """Show what is held back and how much is still to be stripped."""
        begins = ", at the start" if self._first else ""
        return f"IncrementalDecoder(pending={self._pending!r}, strip={self._strip}{begins})"

    @property
    def is_clean(self) -> bool:
        """Whether the next token's text depends on nothing before it.

        Then, and only then, ``Vocabulary.escaped`` may stand in for this decoder.
        """
        return not self._strip and not self._pending and self._first is None

    def feed(self, ids: Sequence[int]) -> list[Piece]:
        """Return what *ids* add to the text; ordinary text between two added tokens is one piece."""
        if not ids:
            return []
        tokens, atomic, hide = self._table.tokens, self._table.atomic, self._hide
        size = len(tokens)
        pieces: list[Piece] = []
        ordinary: list[bytes] = []
        if self._first is not None:
            ids = self._begun(pieces, ids, self._first)
        for token_id in ids:
            if token_id in hide:
                continue
            if token_id in atomic:
                self._add(pieces, b"".join(ordinary), final=True)
                ordinary.clear()
                self._add_atomic(pieces, token_id)
            elif 0 <= token_id < size:
                ordinary.append(tokens[token_id])
        self._add(pieces, b"".join(ordinary), final=False)
        return pieces

    def _begun(
        self, pieces: list[Piece], ids: Sequence[int], first: Mapping[int, bytes]
    ) -> Sequence[int]:
        """Read the first of *ids* that stands for something; return those behind it."""
        tokens = self._table.tokens
        for at, token_id in enumerate(ids):
            if token_id in self._hide or not 0 <= token_id < len(tokens):
                continue
            if token_id in first or tokens[token_id]:
                text = first.get(token_id, tokens[token_id]).decode()
                if text:
                    added = token_id if token_id in self._table.atomic else None
                    pieces.append(Piece(text, added))
                self._first = None
                return ids[at + 1 :]
        return ()

    def flush(self) -> list[Piece]:
        """Return what was held back: U+FFFD for a character that never became complete."""
        if not self._pending:
            return []
        pieces: list[Piece] = []
        self._add(pieces, b"", final=True)
        return pieces

    def _add(self, pieces: list[Piece], data: bytes, *, final: bool) -> None:
        if self._pending:
            data = self._pending + data
        text, used = codecs.utf_8_decode(data, self._table.errors, final)
        self._pending = data[used:]
        if self._strip and text:
            text = self._stripped(text)
        if text:
            pieces.append(Piece(text))

    def _add_atomic(self, pieces: list[Piece], token_id: int) -> None:
        text = self._table.atomic[token_id]
        if self._strip:
            text = self._stripped(text)
        if text:
            pieces.append(Piece(text, token_id))

    def _stripped(self, text: str) -> str:
        """Return *text* without the spaces that are still to be stripped."""
        spaces = min(self._strip, len(text) - len(text.lstrip(" ")))
        kept = text[spaces:]
        # The first other character ends the stripping.
        self._strip = 0 if kept else self._strip - spaces
        return kept
