"""The tokens of one model, by id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import orjson

from sglr_dataplane.vocab.decoder import DecodingTable, IncrementalDecoder
from sglr_dataplane.vocab.document import TokenizerDocument
from sglr_dataplane.vocab.sources import tokenizer_json
from sglr_dataplane.vocab.spelling import table_of


@dataclass(frozen=True, eq=False, repr=False)
class Vocabulary:
    """The tokens of one model, by id; immutable and shared by all requests."""

    digest: str
    """SHA-256 of the tokenizer.json: equal digests mean equal vocabularies."""
    added: Mapping[int, str]
    """Added tokens by id, special or not: ``{151644: "<|im_start|>", 151667: "<think>", …}``."""
    special: frozenset[int]
    """Ids that ``decode(skip_special_tokens=True)`` leaves out; a subset of *added*."""
    control: frozenset[int]
    """Added ids that mean more than their text: the special ones, and those that are not also
    ordinary vocabulary. (DeepSeek's sign for the user's turn is not marked special, and Gemma adds
    ``<table>``, which is no sign.)"""
    table: DecodingTable

    @classmethod
    def from_dir(cls, path: Path | str) -> Vocabulary:
        """Return the vocabulary of the tokenizer in the directory *path*; see ``sources``.

        Raises:
            TokenizerLoadError: A file is missing, damaged, or decodes in a way not supported here.
        """
        return cls.from_document(TokenizerDocument.parse(tokenizer_json(Path(path))))

    @classmethod
    def from_document(cls, document: TokenizerDocument) -> Vocabulary:
        """Return the vocabulary of *document*.

        Raises:
            TokenizerLoadError: It decodes in a way that is not supported here.
        """
        added = document.added
        special_texts = {token.content for token in added.values() if token.special}
        special = frozenset(i for i, token in added.items() if token.content in special_texts)
        control = special | {i for i, token in added.items() if token.content not in document.vocab}
        return cls(
            digest=document.digest,
            added=MappingProxyType({i: token.content for i, token in added.items()}),
            special=special,
            control=control,
            table=table_of(document),
        )

    def __repr__(self) -> str:
        """Name the vocabulary by size and digest."""
        return f"Vocabulary(size={self.size}, digest={self.digest[:12]!r})"

    @cached_property
    def size(self) -> int:
        """One more than the highest id; ids below it may be unused."""
        return len(self.table.tokens)

    def bytes_of(self, token_id: int) -> bytes:
        """Return what *token_id* adds to a text; ``b""`` for ids that stand for nothing."""
        return self.table.tokens[token_id] if 0 <= token_id < self.size else b""

    def id_of(self, text: str) -> int | None:
        """Return the id of the added token *text*; None when there is no such added token."""
        return self._added_ids.get(text)

    def ids_of(self, texts: Iterable[str]) -> frozenset[int]:
        """Return the ids of those of *texts* that are added tokens here."""
        return frozenset(i for text in texts if (i := self.id_of(text)) is not None)

    def decoder(self, hide: frozenset[int] = frozenset()) -> IncrementalDecoder:
        """Return a fresh decoder for one choice, which gives no text for the ids in *hide*."""
        return IncrementalDecoder(self.table, hide)

    def decode(self, ids: Iterable[int], hide: frozenset[int] = frozenset()) -> str:
        """Return the text of *ids*, as a decoder gives it piece by piece."""
        decoder = self.decoder(hide)
        return "".join(piece.text for piece in (*decoder.feed(tuple(ids)), *decoder.flush()))

    @cached_property
    def escaped(self) -> EscapedTokens:
        """Each ordinary token as it stands inside a JSON string, without the quotes.

        Empty for added tokens, unused ids and pieces of characters: those need the decoder; see
        :attr:`IncrementalDecoder.is_clean`.
        """
        return EscapedTokens(self.table)

    @cached_property
    def _added_ids(self) -> dict[str, int]:
        return {text: token_id for token_id, text in self.added.items()}


class EscapedTokens(dict[int, bytes]):
    """Tokens as JSON writes them, each made when it is first asked for.

    Answers use a tenth of a vocabulary, so that this takes megabytes less than a whole table and no
    time at the start; it never holds more than the vocabulary does.
    """

    def __init__(self, table: DecodingTable) -> None:
        """Begin empty."""
        super().__init__()
        self._table = table

    def __missing__(self, token_id: int) -> bytes:
        """Return what *token_id* is written as; empty when that takes the decoder."""
        tokens = self._table.tokens
        if not 0 <= token_id < len(tokens):
            return b""
        token = tokens[token_id]
        written = b"" if token_id in self._table.atomic else _escaped(token)
        self[token_id] = written
        return written


def _escaped(token: bytes) -> bytes:
    try:
        return orjson.dumps(token.decode())[1:-1]
    except UnicodeDecodeError:
        return b""
