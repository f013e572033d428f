"""Other vocabulary formats become tokenizer.json documents that the library reads."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from tokenizers import Tokenizer

from support.scripts import script

conversions = script("tokenizer_conversions")


def loaded(document: dict[str, Any]) -> Tokenizer:
    """Return the tokenizer that *document* describes."""
    return Tokenizer.from_str(json.dumps(document))


def field(number: int, value: bytes | float) -> bytes:
    """Return a protobuf field of a SentencePiece model."""
    if isinstance(value, bytes):
        return bytes((number << 3 | 2, len(value))) + value
    if isinstance(value, float):
        return bytes((number << 3 | 5,)) + struct.pack("<f", value)
    return bytes((number << 3, value))


def test_a_sentencepiece_model_is_read() -> None:
    """Text, score and kind of each piece; other fields are passed over."""
    model = (
        field(1, field(1, b"<unk>") + field(2, 0.0) + field(3, 2))
        + field(2, b"trainer")
        + field(1, field(1, "▁é".encode()) + field(2, -1.5))
        + bytes((3 << 3, 0xAC, 0x02))
    )

    assert conversions.sentencepiece_pieces(model) == [
        conversions.Piece("<unk>", 0.0, 2),
        conversions.Piece("▁é", -1.5, 1),
    ]


def a_sentencepiece_vocabulary() -> list[Any]:
    """Return pieces in which two merges compete, the better score being the second's."""
    texts = {"<unk>": 2, "<s>": 3, "</s>": 3} | {f"<0x{b:02X}>": 6 for b in range(0x100)}
    pieces = [conversions.Piece(text, 0.0, kind) for text, kind in texts.items()]
    scores = {"ab": -2.0, "bc": -1.0, "▁": -9.0, "a": -9.0, "b": -9.0, "c": -9.0}
    return pieces + [conversions.Piece(text, score, 1) for text, score in scores.items()]


def test_a_sentencepiece_vocabulary_merges_by_score() -> None:
    """And falls back to bytes for what it lacks."""
    pieces = a_sentencepiece_vocabulary()
    tokenizer = loaded(conversions.sentencepiece(pieces))

    ids = tokenizer.encode("abcé", add_special_tokens=False).ids
    expected = ["▁", "a", "bc", "<0xC3>", "<0xA9>"]
    assert [pieces[token_id].text for token_id in ids] == expected
    assert tokenizer.encode("a").ids[0] == 1
    assert tokenizer.decode(ids) == "abcé"


def test_signs_that_swallow_white_space_do() -> None:
    """Phi-3's chat markup."""
    pieces = [*a_sentencepiece_vocabulary(), conversions.Piece("<|user|>", 0.0, 3)]
    tokenizer = loaded(conversions.sentencepiece(pieces, rstrip_from=len(pieces) - 1))

    ids = tokenizer.encode("<|user|> \n a", add_special_tokens=False).ids
    assert [pieces[token_id].text for token_id in ids] == ["<|user|>", "▁", "a"]


def test_a_gguf_vocabulary_is_read() -> None:
    """Three columns among other metadata of every kind."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def column(name: str, kind: int, values: list[bytes]) -> bytes:
        start = text(f"tokenizer.ggml.{name}") + struct.pack("<IIQ", 9, kind, len(values))
        return start + b"".join(values)

    pairs = [
        text("a.number") + struct.pack("<IQ", 10, 2**40),
        text("a.flag") + struct.pack("<I?", 7, True),
        column("tokens", 8, [text("<s>"), text("▁é")]),
        column("scores", 6, [struct.pack("<f", 0.0), struct.pack("<f", -1.5)]),
        column("token_type", 5, [struct.pack("<i", 3), struct.pack("<i", 1)]),
    ]
    source = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs)

    assert conversions.gguf_pieces(source) == [
        conversions.Piece("<s>", 0.0, 3),
        conversions.Piece("▁é", -1.5, 1),
    ]


def test_another_file_is_no_gguf() -> None:
    """The first four bytes say so."""
    with pytest.raises(ValueError, match="does not begin with 'GGUF'"):
        conversions.gguf_pieces(b"PK\x03\x04")
