"""Ids become text as they arrive, and no character is lost or invented."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.vocab import IncrementalDecoder, Piece, Vocabulary
from support.tokenizers import (
    DEMO_MODEL,
    a_fallback_tokenizer,
    reference,
    vocabulary_from,
    vocabulary_of,
)

DEMO = vocabulary_of(DEMO_MODEL)
BYTE_IDS = {DEMO.bytes_of(i): i for i in range(DEMO.size) if len(DEMO.bytes_of(i)) == 1}
THINK, END = DEMO.ids_of(["<think>"]), DEMO.ids_of(["<|im_end|>"])

FALLBACK = a_fallback_tokenizer("▁", "a", "▁b", "é", "你")
FALLBACK_VOCABULARY = vocabulary_from(FALLBACK)
FIRST_TEXT = 0x101


def byte_ids(text: str | bytes) -> list[int]:
    """Return *text* in the demo vocabulary, one id per byte."""
    data = text.encode() if isinstance(text, str) else text
    return [BYTE_IDS[bytes((byte,))] for byte in data]


def fallback_ids(data: bytes) -> list[int]:
    """Return *data* in byte-fallback tokens."""
    return [1 + byte for byte in data]


def texts(decoder: IncrementalDecoder, ids: Iterable[int]) -> list[str]:
    """Return what each id adds, and what the flush adds."""
    steps = [decoder.feed((token_id,)) for token_id in ids]
    return ["".join(piece.text for piece in pieces) for pieces in (*steps, decoder.flush())]


def in_portions(vocabulary: Vocabulary, portions: Sequence[Sequence[int]], *, skip: bool) -> str:
    """Return the text of *portions*, fed one after the other."""
    decoder = vocabulary.decoder(vocabulary.special if skip else frozenset())
    pieces = [piece for portion in portions for piece in decoder.feed(portion)]
    return "".join(piece.text for piece in (*pieces, *decoder.flush()))


def portions_of(ids: st.SearchStrategy[int]) -> st.SearchStrategy[list[list[int]]]:
    """Return ids in portions of any size, empty ones too."""
    return st.lists(st.lists(ids, max_size=6), max_size=8)


ANY_DEMO_ID = (
    st.integers(0, DEMO.size + 20) | st.integers(0, 300) | st.sampled_from(sorted(DEMO.added))
)


@given(portions=portions_of(ANY_DEMO_ID), skip=st.booleans())
def test_byte_level_text_is_the_tokenizers_own(portions: list[list[int]], *, skip: bool) -> None:
    """For every sequence of ids, in any portions, special tokens shown or hidden."""
    ids = [token_id for portion in portions for token_id in portion]

    expected = reference(DEMO_MODEL).decode(ids, skip_special_tokens=skip)
    assert in_portions(DEMO, portions, skip=skip) == expected


# Runs of byte tokens that are whole characters, or of which no byte can be part of one.
A_RUN = st.text(max_size=4).map(lambda text: fallback_ids(text.encode())) | st.lists(
    st.sampled_from(fallback_ids(bytes([0x80, 0xBF, 0xE4, 0xF0, 0xFF]))), min_size=1, max_size=2
)
NO_BYTE = st.integers(FIRST_TEXT, FALLBACK_VOCABULARY.size - 1)


@given(
    parts=st.lists(st.tuples(A_RUN, NO_BYTE), max_size=6),
    last=A_RUN,
    cuts=st.lists(st.integers(0, 40), max_size=5),
)
def test_byte_fallback_text_is_the_tokenizers_own(
    parts: list[tuple[list[int], int]], last: list[int], cuts: list[int]
) -> None:
    """For text, whole characters in byte tokens and hopeless bytes, in any portions."""
    ids = [token_id for run, text in parts for token_id in (*run, text)] + last
    edges = sorted({0, len(ids), *(cut for cut in cuts if cut < len(ids))})
    portions = [ids[a:b] for a, b in pairwise(edges)]

    expected = FALLBACK.decode(ids, skip_special_tokens=False)
    assert in_portions(FALLBACK_VOCABULARY, portions, skip=False) == expected


@given(portions=portions_of(st.integers(0, FALLBACK_VOCABULARY.size + 5)))
def test_byte_fallback_text_does_not_depend_on_the_portions(portions: list[list[int]]) -> None:
    """Broken runs too: stream and non-stream show the same text."""
    ids = [token_id for portion in portions for token_id in portion]

    at_once = in_portions(FALLBACK_VOCABULARY, [ids], skip=True)
    assert in_portions(FALLBACK_VOCABULARY, portions, skip=True) == at_once


def test_a_broken_run_of_byte_tokens_keeps_its_complete_characters() -> None:
    """The one documented difference: ``decode`` takes back what was shown already."""
    ids = fallback_ids("你".encode() + b"\xff\xe4\xbd")

    assert FALLBACK.decode(ids) == "\ufffd" * 6
    assert texts(FALLBACK_VOCABULARY.decoder(), ids) == [
        "",
        "",
        "你",
        "\ufffd",
        "",
        "",
        "\ufffd" * 2,
    ]


def test_a25_a_sequence_that_breaks_other_decoders_is_decoded() -> None:
    """``<0x3B>``, ``<0xA3>``, ``a``: no error, and the stream shows what is shown at once."""
    ids = [*fallback_ids(b"\x3b\xa3"), FIRST_TEXT + 1]

    assert texts(FALLBACK_VOCABULARY.decoder(), ids) == [";", "\ufffd", "a", ""]
    assert FALLBACK_VOCABULARY.decode(ids) == ";\ufffda"


def test_a26_endless_broken_bytes_come_out_as_they_go() -> None:
    """8,000 lead bytes: each gives way to the next at once, and never more than one is kept."""
    decoder = DEMO.decoder()
    lead = byte_ids(b"\xe4")

    for count in range(8_000):
        pieces = decoder.feed(lead)
        assert pieces == ([Piece("\ufffd")] if count else [])
        assert "pending=b'\\xe4'" in repr(decoder)
    assert decoder.feed(byte_ids("ok")) == [Piece("\ufffdok")]


def test_a_character_in_three_tokens_comes_out_with_the_last() -> None:
    """Incomplete UTF-8 is held back."""
    assert texts(DEMO.decoder(), byte_ids("你")) == ["", "", "你", ""]


def test_a_cut_character_before_text_is_replaced_once() -> None:
    """Two of three bytes and then a letter: one U+FFFD, as ``decode`` gives."""
    assert texts(DEMO.decoder(), byte_ids(b"\xe4\xbda")) == ["", "", "\ufffda", ""]


def test_a_cut_character_at_the_end_is_flushed() -> None:
    """Nothing is lost when the answer ends within a character."""
    assert texts(DEMO.decoder(), byte_ids(b"\xf0\x9f\x98")) == ["", "", "", "\ufffd"]


def test_a_family_of_joined_people_survives_byte_by_byte() -> None:
    """25 bytes, 7 code points: each code point comes out whole, and all of them come out."""
    family = "👨‍👩‍👧‍👦"

    assert [text for text in texts(DEMO.decoder(), byte_ids(family)) if text] == list(family)


def test_an_added_token_is_a_piece_of_its_own() -> None:
    """Markup can be told from text that looks like it."""
    (think,) = THINK
    ids = [*byte_ids("a"), think, *byte_ids("<think>")]

    assert DEMO.decoder().feed(ids) == [Piece("a"), Piece("<think>", think), Piece("<think>")]


def test_a_shown_added_token_ends_an_incomplete_character() -> None:
    """The broken bytes are replaced before the token, not after it."""
    (think,) = THINK
    first, *rest = byte_ids("你")

    pieces = DEMO.decoder().feed([first, think, *rest])
    assert pieces == [Piece("\ufffd"), Piece("<think>", think), Piece("\ufffd" * 2)]


def test_bytes_join_across_a_hidden_token() -> None:
    """As ``decode(skip_special_tokens=True)`` has it."""
    (end,) = END
    first, *rest = byte_ids("你")

    assert texts(DEMO.decoder(END), [first, end, *rest]) == ["", "", "", "你", ""]


def test_ids_that_stand_for_nothing_are_passed_over() -> None:
    """Outside the vocabulary, negative, or unused: no text, no error, and no break of a character."""
    first, *rest = byte_ids("你")

    ids = [first, DEMO.size, -1, 2**32, *rest]
    assert texts(DEMO.decoder(), ids) == ["", "", "", "", "", "你", ""]


def test_a_leading_space_is_stripped_once() -> None:
    """SentencePiece models put a space before every text; ``decode`` takes one away."""
    tokenizer = a_fallback_tokenizer("▁", "▁▁", "▁b", strip=True)
    vocabulary = vocabulary_from(tokenizer)
    space, spaces, word = FIRST_TEXT, FIRST_TEXT + 1, FIRST_TEXT + 2

    for ids in ([word, word], [space, word], [spaces, word], [space, space], [space]):
        assert "".join(texts(vocabulary.decoder(), ids)) == tokenizer.decode(ids)


def test_a_decoder_can_go_on_after_a_flush() -> None:
    """Flushing leaves nothing behind: flushing again gives nothing."""
    decoder = DEMO.decoder()
    decoder.feed(byte_ids("你")[:2])

    assert decoder.flush() == [Piece("\ufffd")]
    assert decoder.flush() == []
    assert decoder.feed(byte_ids("你")) == [Piece("你")]


def test_only_a_clean_decoder_may_be_stood_in_for() -> None:
    """``is_clean`` is false within a character, and before a space may be stripped."""
    decoder = DEMO.decoder()
    states = [decoder.is_clean]
    for token_id in byte_ids("é"):
        decoder.feed((token_id,))
        states.append(decoder.is_clean)

    stripping = vocabulary_from(a_fallback_tokenizer("▁b", "b", strip=True)).decoder()
    states.append(stripping.is_clean)
    stripping.feed((FIRST_TEXT,))
    states.append(stripping.is_clean)

    assert states == [True, False, True, False, True]


def test_pieces_are_never_empty() -> None:
    """Tokens without text give no piece."""
    pattern = re.compile(r"^Piece\(text='.+', token_id=(None|\d+)\)$", re.DOTALL)
    pieces = DEMO.decoder().feed([*range(DEMO.size)])

    assert all(pattern.match(repr(piece)) for piece in pieces)
    assert {piece.token_id for piece in pieces if piece.token_id is not None} == set(DEMO.added)
