"""A vocabulary knows its tokens by id, and refuses what it cannot decode."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from tokenizers import Tokenizer

from sglr_dataplane.vocab import TokenizerDocument, TokenizerLoadError, Vocabulary
from support.tokenizers import DEMO_MODEL, a_fallback_tokenizer, vocabulary_from, vocabulary_of

DEMO = vocabulary_of(DEMO_MODEL)
SOURCE = (DEMO_MODEL / "tokenizer.json").read_bytes()


def changed(**changes: Any) -> bytes:
    """Return the demo's tokenizer.json with top-level keys replaced."""
    return json.dumps(json.loads(SOURCE) | changes).encode()


def parsed(source: bytes) -> Vocabulary:
    """Return the vocabulary in *source*."""
    return Vocabulary.from_document(TokenizerDocument.parse(source))


def test_the_demo_vocabulary_knows_its_added_tokens() -> None:
    """Ids, texts, and which of them the model's own decoder hides."""
    names = {text: DEMO.id_of(text) for text in ("<|im_start|>", "<think>", "the", "")}

    assert names == {"<|im_start|>": 4097, "<think>": 4099, "the": None, "": None}
    assert DEMO.added[4098] == "<|im_end|>"
    assert DEMO.special == DEMO.ids_of(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    assert DEMO.size == 4105
    assert DEMO.digest == hashlib.sha256(SOURCE).hexdigest()


def test_bytes_of_an_id_are_what_it_adds_to_a_text() -> None:
    """Ordinary, added and unknown ids."""
    (the,) = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json")).encode(" the").ids

    found = [DEMO.bytes_of(token_id) for token_id in (the, 4099, DEMO.size, -1)]
    assert found == [b" the", b"<think>", b"", b""]


def test_escaped_tokens_are_what_json_would_write() -> None:
    """For every token: the bytes inside the quotes, or nothing when the decoder is needed."""
    written_by_id = {token_id: DEMO.escaped[token_id] for token_id in range(-1, DEMO.size + 1)}
    for token_id, escaped in written_by_id.items():
        pieces = DEMO.decoder().feed((token_id,))
        whole = len(pieces) == 1 and pieces[0].token_id is None and "\ufffd" not in pieces[0].text
        if not whole or DEMO.decode((token_id,)) != pieces[0].text:
            assert escaped == b""
            continue
        written = json.dumps(pieces[0].text, ensure_ascii=False).encode()
        assert b'"' + escaped + b'"' == written == orjson.dumps(pieces[0].text)
    assert sum(escaped != b"" for escaped in written_by_id.values()) > 3_600


def test_escaped_tokens_never_outgrow_the_vocabulary() -> None:
    """Ids that are no tokens are not remembered, whoever sends them."""
    for token_id in range(-5, DEMO.size + 5):
        assert DEMO.escaped[token_id] == DEMO.escaped[token_id]

    assert len(DEMO.escaped) == DEMO.size


def test_added_tokens_have_the_ids_that_loading_gives_them() -> None:
    """The tokenizers library closes gaps in a file's ids, and so does the engine."""
    added = json.loads(SOURCE)["added_tokens"]
    added[3]["id"], added[5]["id"] = 5_000, 4_300
    source = changed(added_tokens=added)

    loaded = Tokenizer.from_str(source.decode())
    expected = {loaded.token_to_id(token["content"]): token["content"] for token in added}
    assert dict(parsed(source).added) == expected


def test_control_tokens_are_those_that_are_not_ordinary_text() -> None:
    """Special ones, and added ones that the model's own vocabulary lacks."""
    tokenizer = a_fallback_tokenizer("<table>", "x")
    tokenizer.add_tokens(["<table>"])
    vocabulary = vocabulary_from(tokenizer)

    assert {vocabulary.added[i] for i in vocabulary.added} == {"<end>", "<mark>", "<table>"}
    assert {vocabulary.added[i] for i in vocabulary.control} == {"<end>", "<mark>"}


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (b"{", "tokenizer.json is not JSON"),
        (b"\xff", "tokenizer.json is not JSON"),
        (b"[]", "tokenizer.json is no tokenizer that can be read"),
        (b"{}", "tokenizer.json is no tokenizer that can be read"),
        (b'{"model": {"type": "BPE", "vocab": {}}}', "has no vocabulary"),
        (b'{"model": {"type": "BPE", "vocab": {"a": -1}}}', "has no vocabulary"),
        (b'{"model": {"type": "BPE", "vocab": {"a": 9999999999}}}', "to below 4000000"),
        (b'{"decoder":' * 9_000, "tokenizer.json is not JSON"),
        (b'{"model": {"type": "Other", "vocab": {"a": 0}}}', "'Other' is not supported"),
        (changed(decoder={"type": "CTC"}), "decoder ['CTC'] is not supported"),
        (changed(decoder={"type": "Sequence", "decoders": "ByteLevel"}), "no tokenizer"),
        (
            changed(
                decoder={
                    "type": "Sequence",
                    "decoders": [
                        {"type": "Replace", "pattern": {"Regex": "a"}, "content": ""},
                        {"type": "Fuse"},
                    ],
                }
            ),
            "'Replace by a regular expression'",
        ),
    ],
)
def test_what_cannot_be_decoded_is_refused_in_a_sentence(source: bytes, sentence: str) -> None:
    """The error says what was expected, and is always of one class."""
    with pytest.raises(TokenizerLoadError) as caught:
        parsed(source)

    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_missing_file_is_named_without_its_path(tmp_path: Path) -> None:
    """The sentence may be shown to people who must not learn the router's directories."""
    with pytest.raises(TokenizerLoadError) as caught:
        Vocabulary.from_dir(tmp_path)

    assert str(caught.value) == (
        "The tokenizer's directory has no tokenizer.json, and neither tekken.json, vocab.json nor "
        "tiktoken.model."
    )


def test_a_file_that_cannot_be_read_is_the_same_error(tmp_path: Path) -> None:
    """Here a directory in the file's place."""
    (tmp_path / "tokenizer.json").mkdir()

    with pytest.raises(TokenizerLoadError, match=r"^tokenizer.json cannot be read: "):
        Vocabulary.from_dir(tmp_path)


def test_a_unigram_vocabulary_counts_its_tokens() -> None:
    """There the ids are positions in a list, and the scores do not matter for decoding."""
    replace = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    document = {
        "model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["a", -1.0], ["▁b", -2.5]]},
        "decoder": {"type": "Sequence", "decoders": [replace, {"type": "Fuse"}]},
    }

    assert parsed(json.dumps(document).encode()).decode([1, 2, 1]) == "a ba"


def test_an_added_token_that_spells_a_byte_is_no_piece_of_its_own() -> None:
    """In byte-level spelling ``¡`` is the byte 0xA1; the tokenizers library joins it to others."""
    added = json.loads(SOURCE)["added_tokens"]
    added += [added[0] | {"id": 4105, "content": "¡Â"}, added[0] | {"id": 4106, "content": ""}]
    source = changed(added_tokens=added)
    vocabulary = parsed(source)
    last = next(i for i in range(256) if vocabulary.bytes_of(i) == b"\xa2")

    pieces = vocabulary.decoder().feed((4105, last))
    assert [(piece.text, piece.token_id) for piece in pieces] == [("\ufffd¢", None)]
    assert Tokenizer.from_str(source.decode()).decode([4105, last], skip_special_tokens=False) == (
        "\ufffd¢"
    )
    assert 4106 not in vocabulary.added


def test_a_vocabulary_shows_its_size_and_digest() -> None:
    """For logs and debuggers; never its tokens."""
    assert repr(DEMO) == f"Vocabulary(size=4105, digest={DEMO.digest[:12]!r})"
