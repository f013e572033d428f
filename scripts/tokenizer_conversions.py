"""Turns other vocabulary formats into tokenizer.json documents, for ``fetch_tokenizers``.

Each conversion was compared with the format's own library before its result was pinned.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
"""Kinds of pieces, numbered alike by SentencePiece and GGUF."""


@dataclass(frozen=True)
class Piece:
    """An entry of a SentencePiece vocabulary; its position is its id."""

    text: str
    score: float
    kind: int


def _byte_signs() -> list[str]:
    """Return GPT-2's printable character for each byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(0x100)]


_SIGNS = _byte_signs()


def spelled(token: bytes) -> str:
    """Return *token* as byte-level vocabularies spell it."""
    return "".join(_SIGNS[byte] for byte in token)


def added(token_id: int, content: str, *, special: bool = True, rstrip: bool = False) -> Json:
    """Return an entry of ``added_tokens``."""
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": rstrip,
        "normalized": False,
        "special": special,
    }


def _document(added_tokens: list[Json], **parts: Any) -> Json:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens,
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
    } | parts


def _with_bos(bos: str, bos_id: int) -> Json:
    """Return a post-processor that puts *bos* before a text."""
    mark = {"SpecialToken": {"id": bos, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [mark, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            mark,
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": bos, "type_id": 1}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}},
    }


def _bpe(vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], **settings: Any) -> Json:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": dict(vocab),
        "merges": [list(pair) for pair in merges],
    } | settings


def _ranked_merges(ranks: Mapping[bytes, int], *, below: bool) -> Iterator[tuple[str, str]]:
    """Yield every way to merge two tokens into a third, in the order of tiktoken's ranks.

    With *below* only parts of a lower rank than the whole count.
    """
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        cuts = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        pairs = [(ranks[a], ranks[b], a, b) for a, b in cuts if a in ranks and b in ranks]
        for left_rank, right_rank, left, right in sorted(pairs):
            if not below or max(left_rank, right_rank) < rank:
                yield spelled(left), spelled(right)


def byte_level(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    pattern: str,
    added_tokens: list[Json],
    bos: str | None = None,
) -> Json:
    """Return a byte-level BPE that splits text by *pattern* first, as tiktoken does."""
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    bytes_only = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    return _document(
        added_tokens,
        pre_tokenizer={"type": "Sequence", "pretokenizers": [split, bytes_only]},
        post_processor=None if bos is None else _with_bos(bos, vocab[bos]),
        decoder={**bytes_only, "use_regex": True},
        model=_bpe(vocab, merges, ignore_merges=True),
    )


def tekken(source: Json) -> Json:
    """Return the tokenizer.json of a Mistral tekken file: special tokens first, then the ranks."""
    settings = source["config"]
    specials: int = settings["default_num_special_tokens"]
    ordinary = source["vocab"][: settings["default_vocab_size"] - specials]
    ranks = {base64.b64decode(entry["token_bytes"]): i for i, entry in enumerate(ordinary)}
    named = {entry["rank"]: entry["token_str"] for entry in source.get("special_tokens") or ()}
    # Files from before the field "special_tokens" leave these names to mistral-common's code.
    names = named or dict(enumerate(TEKKEN_SPECIAL_TOKENS))
    texts = [names.get(i, f"<SPECIAL_{i}>") for i in range(specials)]
    vocab = {text: i for i, text in enumerate(texts)}
    vocab |= {spelled(token): rank + specials for token, rank in ranks.items()}
    return byte_level(
        vocab,
        list(_ranked_merges(ranks, below=False)),
        settings["pattern"],
        [added(i, text) for i, text in enumerate(texts)],
        bos="<s>",
    )


TEKKEN_SPECIAL_TOKENS = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "[TOOL_CONTENT]",
)


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
    pattern = module.KIMI_PATTERN if name == "kimi_k2" else module.LLAMA3_PATTERN
    return byte_level(
        {spelled(token): rank for token, rank in ranks.items()},
        list(_ranked_merges(ranks, below=True)),
        pattern,
        [added(token_id, text) for token_id, text in sorted(specials.items())],
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
        added(i, piece.text, rstrip=rstrip_from is not None and i >= rstrip_from)
        for i, piece in enumerate(pieces)
        if piece.kind in (UNKNOWN, CONTROL)
    ]
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    return _document(
        specials,
        normalizer={
            "type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": "▁"}, space],
        },
        post_processor=_with_bos("<s>", ids["<s>"]),
        decoder={
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        model=_bpe(
            ids,
            [(text[:cut], text[cut:]) for _, _, _, text, cut in sorted(merges)],
            unk_token="<unk>",  # noqa: S106  # a token of text
            fuse_unk=True,
            byte_fallback=True,
        ),
    )


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
