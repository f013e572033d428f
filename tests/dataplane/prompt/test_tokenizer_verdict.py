"""The fast encoder serves a tokenizer only after it was seen to be equal."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest

from sglr_dataplane.prompt.encoder import ReferenceEncoder
from sglr_dataplane.prompt.probe import compare, first_difference, probe_texts
from sglr_dataplane.prompt.tokenizer import Tokenizer
from sglr_dataplane.prompt.verdict import Verdict, verdict_on
from support.tokenizers import DEMO_MODEL

SOURCE = (DEMO_MODEL / "tokenizer.json").read_bytes()
REFERENCE = ReferenceEncoder(SOURCE)


class WrongEncoder:
    """Equal to the reference, but for one thing."""

    name = "wrong"
    thread_above = 0

    def __init__(self, *, wrong_in: str) -> None:
        """Be wrong in ``encode``, ``encode_plain`` or ``post_processor``."""
        self._wrong_in = wrong_in

    def encode(self, text: str, *, add_special_tokens: bool = False) -> array[int]:
        """Return the reference's ids, or others for texts with a cat."""
        ids = REFERENCE.encode(text, add_special_tokens=add_special_tokens)
        wrong = "post_processor" if add_special_tokens else "encode"
        return ids + array("I", (1,)) if self._wrong_in == wrong and "cat" in text else ids

    def encode_plain(self, text: str, *, at_start: bool = True) -> array[int]:
        """Return the reference's ids, or others for texts with a cat."""
        ids = REFERENCE.encode_plain(text, at_start=at_start)
        return ids + array("I", (1,)) if self._wrong_in == "encode_plain" and "cat" in text else ids


@pytest.mark.parametrize("wrong_in", ["encode", "encode_plain", "post_processor"])
def test_one_different_text_is_found(wrong_in: str) -> None:
    """In any of the ways to encode."""
    texts = ["a dog", "", "a cat", "a bird"]

    found = first_difference(WrongEncoder(wrong_in=wrong_in), REFERENCE, iter(texts))
    assert found == (3, "a cat")


def test_equal_encoders_show_no_difference() -> None:
    """All texts are compared."""
    found = first_difference(WrongEncoder(wrong_in=""), REFERENCE, iter(["a cat"] * 7))
    assert found == (7, None)


def test_probe_texts_are_many_and_the_same_each_time() -> None:
    """They hold every added token, text of many scripts, and run-on words."""
    texts = [*probe_texts(["<|im_end|>", "<think>"])]

    assert texts == [*probe_texts(["<|im_end|>", "<think>"])]
    assert len(set(texts)) > 400
    assert any("<think>" in text for text in texts)
    assert max(map(len, texts)) >= 2_000


def test_the_demo_tokenizer_is_served_fast_after_the_comparison(tmp_path: Path) -> None:
    """Compared once in another process; the second start reads the verdict."""
    first = Tokenizer.from_dir(DEMO_MODEL, verdicts=tmp_path)
    (kept,) = tmp_path.glob("*.json")  # tables of the vocabulary are kept beside it
    kept.write_bytes(json.dumps({"admitted": False, "reason": "as written"}).encode())
    second = Tokenizer.from_dir(DEMO_MODEL, verdicts=tmp_path)

    assert (first.encoder_name, second.encoder_name) == ("fastokens", "tokenizers")
    assert first.encoder_reason.startswith("equal to tokenizers on 4")
    assert second.encoder_reason == "as written"
    assert first.encode("Hello 你好<think>") == second.encode("Hello 你好<think>")
    assert first.encode_completion("Hello") == second.encode_completion("Hello")


def test_a_damaged_verdict_is_made_again(tmp_path: Path) -> None:
    """Half a file from a full disk is no verdict."""
    expected = verdict_on(SOURCE, "d" * 64, tmp_path)
    (kept,) = tmp_path.glob("*.json")  # tables of the vocabulary are kept beside it
    kept.write_bytes(b'{"admit')

    assert verdict_on(SOURCE, "d" * 64, tmp_path) == expected
    assert json.loads(kept.read_bytes())["admitted"] is True


def test_a_verdict_belongs_to_tokenizer_and_library_versions(tmp_path: Path) -> None:
    """The file's name says both, so a new version is compared anew."""
    verdict_on(SOURCE, "d" * 64, tmp_path)

    (kept,) = tmp_path.glob("*.json")  # tables of the vocabulary are kept beside it
    for part in ("d" * 32, "fastokens-", "tokenizers-"):
        assert part in kept.name


def test_a_place_that_cannot_be_written_costs_only_the_next_comparison(tmp_path: Path) -> None:
    """A read-only disk is no reason to encode slowly."""
    (tmp_path / "file").write_bytes(b"")

    verdict = verdict_on(SOURCE, "d" * 64, tmp_path / "file" / "cache")
    assert verdict.admitted


def test_a_comparison_that_fails_admits_nothing_and_is_not_remembered(tmp_path: Path) -> None:
    """A crash may be the machine's fault: the next start tries again."""
    verdict = verdict_on(b"no tokenizer", "d" * 64, tmp_path / "cache")

    expected = Verdict(admitted=False, reason="the comparison with tokenizers did not finish")
    assert verdict == expected
    assert not (tmp_path / "cache").exists()


def test_a_tokenizer_that_only_the_reference_reads_is_not_admitted() -> None:
    """Here a step that fastokens does not know."""
    document = json.loads(SOURCE)
    document["normalizer"] = {"type": "BertNormalizer", "clean_text": True, "lowercase": True}
    document["normalizer"] |= {"handle_chinese_chars": True, "strip_accents": None}

    verdict = compare(json.dumps(document).encode())
    assert not verdict.admitted
    assert verdict.reason.startswith("fastokens ")
