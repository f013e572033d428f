"""Turns other vocabulary formats into tokenizer.json documents, for ``fetch_tokenizers``.

Each conversion was compared with the format's own library before its result was pinned.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sglr_dataplane.vocab.ranks import added_token, begin_with, bpe, byte_level, merges_of, spelled

Json = dict[str, Any]

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
"""Kinds of pieces, numbered alike by SentencePiece and GGUF."""


@dataclass(frozen=True)
class Piece:
    """An entry of a SentencePiece vocabulary; its position is its id."""

    text: str
    score: float
    kind: int


def splintr(module: Any, name: str) -> Json:
    """Return the tokenizer.json of a vocabulary inside the splintr package.

    Args:
        module: The imported package.
        name: The vocabulary's name there: ``glm4``, ``kimi_k2`` or ``phi4``.
    """
    tokenizer, size = module.Tokenizer.from_pretrained(name), module.base_vocab_size(name)
    named = tokenizer.special_tokens
    named = dict(named() if callable(named) else named)
    # Ids from the base size on are tokens that splintr itself invents.
    specials = {token_id: text for text, token_id in named.items() if token_id < size}
    ranks: dict[bytes, int] = {}
    for token_id in range(size):
        if token_id in specials:
            continue
        try:
            token = bytes(tokenizer.decode_token_bytes(token_id))
        except ValueError:
            continue  # an unused id
        if token in ranks:
            specials[token_id] = token.decode(errors="replace")
        elif token:
            ranks[token] = token_id
    vocab = {spelled(token): rank for token, rank in ranks.items()}
    return byte_level(
        bpe(vocab, merges_of(ranks), ignore_merges=True),
        [added_token(token_id, text) for token_id, text in sorted(specials.items())],
        pattern=module.KIMI_PATTERN if name == "kimi_k2" else module.LLAMA3_PATTERN,
    )


def sentencepiece(pieces: Sequence[Piece], *, rstrip_from: int | None = None) -> Json:
    """Return the tokenizer.json of a SentencePiece BPE vocabulary with byte fallback.

    Args:
        pieces: The vocabulary by id.
        rstrip_from: Added tokens from this id on swallow the white space after them (Phi-3).
    """
    ids = {piece.text: i for i, piece in enumerate(pieces)}
    merges = [
        (-piece.score, ids[piece.text[:cut]], ids[piece.text[cut:]], piece.text, cut)
        for piece in pieces
        for cut in range(1, len(piece.text))
        if piece.text[:cut] in ids and piece.text[cut:] in ids
    ]
    specials = [
        added_token(i, piece.text) | {"rstrip": rstrip_from is not None and i >= rstrip_from}
        for i, piece in enumerate(pieces)
        if piece.kind in (UNKNOWN, CONTROL)
    ]
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": specials,
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": "▁"}, space],
        },
        "pre_tokenizer": None,
        "post_processor": begin_with("<s>", ids["<s>"]),
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": bpe(
            ids,
            [(text[:cut], text[cut:]) for _, _, _, text, cut in sorted(merges)],
            unk_token="<unk>",  # noqa: S106  # a token of text
            fuse_unk=True,
            byte_fallback=True,
        ),
    }


def sentencepiece_pieces(model: bytes) -> list[Piece]:
    """Return the vocabulary of a SentencePiece model file: field 1 of its protobuf, repeated."""
    pieces: list[Piece] = []
    for field, value in _fields(model):
        if field == 1 and isinstance(value, bytes):
            parts = dict(_fields(value))
            text, score = bytes(parts[1]), struct.unpack("<f", parts.get(2, bytes(4)))[0]
            pieces.append(Piece(text.decode(), score, parts.get(3, NORMAL)))
    return pieces


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a protobuf message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield field, value
            continue
        if wire == 2:  # noqa: PLR2004  # protobuf: length-delimited
            size, at = _varint(message, at)
        else:
            size = {1: 8, 5: 4}[wire]
        yield field, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number at *at* and where it ends."""
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004  # protobuf: the highest bit says that more follows
            return number, at


class _Gguf:
    """Reads the metadata of a GGUF file, value by value."""

    _NUMBERS = "BbHhIifB"  # by value type, 0 to 7
    _LONG_NUMBERS = "Qqd"  # from 10
    _STRING, _ARRAY = 8, 9

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._at = 0

    def metadata(self) -> dict[str, Any]:
        """Return all key-value pairs."""
        if self._source[:4] != b"GGUF":
            raise ValueError("The file does not begin with 'GGUF'.")
        self._at = 16  # after magic, version and the number of tensors
        count = self._number("Q")
        return {self._string(): self._value(self._number("I")) for _ in range(count)}

    def _number(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._source, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def _string(self) -> str:
        size = self._number("Q")
        self._at += size
        return self._source[self._at - size : self._at].decode()

    def _value(self, kind: int) -> Any:
        if kind == self._STRING:
            return self._string()
        if kind == self._ARRAY:
            element, count = self._number("I"), self._number("Q")
            return [self._value(element) for _ in range(count)]
        codes = self._NUMBERS if kind < self._STRING else " " * 10 + self._LONG_NUMBERS
        return self._number(codes[kind])


def gguf_pieces(source: bytes) -> list[Piece]:
    """Return the vocabulary in a GGUF file."""
    metadata = _Gguf(source).metadata()
    columns = ("tokens", "scores", "token_type")
    table = (metadata[f"tokenizer.ggml.{column}"] for column in columns)
    return [Piece(text, score, kind) for text, score, kind in zip(*table, strict=True)]
