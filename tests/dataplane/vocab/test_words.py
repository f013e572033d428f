"""Vocabularies of words, and of signs for spaces: their decoders read a text's first token apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram, WordLevel, WordPiece

from sglr_dataplane.prompt.tokenizer import Tokenizer as OurTokenizer
from sglr_dataplane.vocab import Vocabulary
from support.tokenizers import a_directory, vocabulary_from

WORDS = (
    *(
        "[UNK]",
        "the",
        "##ing",
        "##",
        "play",
        "##n't",
        "n't",
        ".",
        "##.",
        "'",
        "s",
        "'s",
        "é",
        "##你",
    ),
    *("do not", "'ve", ",", "a ", " b", "##s##", "!", "'m"),
)
PIECES = ("<unk>", "▁", "▁the", "▁▁▁", "ing", "é", "▁你", "a▁b", "##", ".", "▁'s")


def a_word_tokenizer(*, cleanup: bool) -> Tokenizer:
    """Return a tokenizer of BERT's family."""
    tokenizer = Tokenizer(WordPiece({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece("##", cleanup)
    return with_added(tokenizer)


def a_sign_tokenizer(scheme: str) -> Tokenizer:
    """Return a tokenizer of T5's family."""
    tokenizer = Tokenizer(Unigram([(piece, -float(at)) for at, piece in enumerate(PIECES)], 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme)
    tokenizer.decoder = decoders.Metaspace("▁", scheme)
    return with_added(tokenizer)


def a_plain_tokenizer() -> Tokenizer:
    """Return a tokenizer without any decoder: its tokens are words with spaces between them."""
    return with_added(Tokenizer(WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]")))


def with_added(tokenizer: Tokenizer) -> Tokenizer:
    """Return *tokenizer* with a special and an ordinary added token."""
    tokenizer.add_special_tokens([AddedToken("[SEP]", special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("▁mark .", special=False, normalized=False)])
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "words": lambda: a_word_tokenizer(cleanup=False),
    "cleaned words": lambda: a_word_tokenizer(cleanup=True),
    "signs": lambda: a_sign_tokenizer("always"),
    "signs that are kept": lambda: a_sign_tokenizer("never"),
    "signs at the first": lambda: a_sign_tokenizer("first"),
    "no decoder": a_plain_tokenizer,
}


@pytest.mark.parametrize("kind", KINDS)
@given(
    portions=st.lists(st.lists(st.integers(0, len(WORDS) + 6), max_size=4), max_size=6),
    skip=st.booleans(),
)
def test_any_ids_decode_as_the_tokenizer_decodes_them(
    kind: str, portions: list[list[int]], *, skip: bool
) -> None:
    """Whatever comes first, in any portions, special tokens shown or hidden."""
    tokenizer, vocabulary = made(kind)
    decoder = vocabulary.decoder(vocabulary.special if skip else frozenset())
    pieces = [piece for portion in portions for piece in decoder.feed(portion)]
    text = "".join(piece.text for piece in (*pieces, *decoder.flush()))

    ids = [token_id for portion in portions for token_id in portion]
    assert text == tokenizer.decode(ids, skip_special_tokens=skip)


_MADE: dict[str, tuple[Tokenizer, Vocabulary]] = {}


def made(kind: str) -> tuple[Tokenizer, Vocabulary]:
    """Return the tokenizer of *kind* and our reading of it, made once."""
    if kind not in _MADE:
        tokenizer = KINDS[kind]()
        _MADE[kind] = tokenizer, vocabulary_from(tokenizer)
    return _MADE[kind]


def test_only_after_the_first_token_does_nothing_before_it_matter() -> None:
    """The prepared tokens are those of the middle of a text: until then the decoder is asked."""
    _, vocabulary = made("signs")
    decoder = vocabulary.decoder()
    before = decoder.is_clean
    unused = decoder.feed((99,)), decoder.is_clean
    first = [piece.text for piece in decoder.feed((PIECES.index("▁the"),))]

    assert (before, unused, first, decoder.is_clean) == (False, ([], False), ["the"], True)
    assert vocabulary.escaped[PIECES.index("▁the")] == b" the"


def test_an_embedding_models_prompt_has_the_tokens_around_it_that_it_wants(tmp_path: Path) -> None:
    """BERT's files load, and a text is encoded as its own library encodes it."""
    tokenizer = a_word_tokenizer(cleanup=True)
    tokenizer.normalizer = normalizers.BertNormalizer()
    end = len(WORDS)  # the first added token
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", end), ("[SEP]", end))
    ours = OurTokenizer.from_dir(a_directory(tmp_path / "bert", tokenizer))

    ids = ours.encode_completion("The playing.")
    assert list(ids) == [end, *map(WORDS.index, ("the", "play", "##ing", ".")), end]
    assert ours.vocabulary.decode(ids, ours.vocabulary.special) == "the playing."
