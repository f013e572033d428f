"""Many fixed texts are found in one pass, as the tokenizers library finds its added tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.prompt.literals import LiteralSearch

FEW_LETTERS = st.text("ab<|", max_size=6)


def longest_at(text: str, at: int, texts: list[str]) -> int:
    """Return the length of the longest of *texts* that stands in *text* at *at*; 0 for none."""
    return max((len(t) for t in texts if text.startswith(t, at)), default=0)


@given(texts=st.lists(FEW_LETTERS, max_size=6), text=st.text("ab<|", max_size=30))
def test_the_leftmost_and_there_the_longest_is_found(texts: list[str], text: str) -> None:
    """Compared with trying every text at every place."""
    expected = []
    at = 0
    while at < len(text):
        length = longest_at(text, at, texts)
        if length:
            expected.append((at, at + length))
        at += length or 1

    assert [*LiteralSearch(texts).spans(text)] == expected


@given(texts=st.lists(FEW_LETTERS, max_size=6), text=st.text("ab<|", max_size=30))
def test_where_a_long_text_is_cut_for_the_search_does_not_matter(
    texts: list[str], text: str
) -> None:
    """Pieces of three letters find what one piece finds, across every border."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sglr_dataplane.prompt.literals._PIECE", 3)
        cut = [*LiteralSearch(texts).spans(text)]

    assert cut == [*LiteralSearch(texts).spans(text)]


def test_signs_of_regular_expressions_are_only_signs() -> None:
    """Token texts are full of them."""
    assert [*LiteralSearch(["[INST]", "a.c", "(?:"]).spans("abc I [INST](?:")] == [
        (6, 12),
        (12, 15),
    ]


def test_very_long_texts_are_no_trouble() -> None:
    """A common start costs no depth."""
    texts = ["x" * 50_000 + letter for letter in "abc"]

    assert [*LiteralSearch(texts).spans("x" * 50_000 + "b")] == [(0, 50_001)]


def test_a_stranger_is_a_letter_of_none_of_the_texts() -> None:
    """Put in the place of a letter it leaves nothing to be found across."""
    search = LiteralSearch(["<a>", "\0\2"])

    assert search.stranger == "\1"
    assert [*search.spans("<a><\1><a\1><a>")] == [(0, 3), (10, 13)]
    assert LiteralSearch([]).stranger == "\0"
