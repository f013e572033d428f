"""Real models' vocabularies decode as their own tokenizers do."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sglr_dataplane.vocab import Vocabulary
from support.tokenizers import REAL, real_tokenizer, reference, vocabulary_of

pytestmark = pytest.mark.timeout(120)  # the largest vocabularies take seconds to load, twice


@pytest.fixture(scope="module", params=REAL)
def directory(request: pytest.FixtureRequest) -> Path:
    """Return a real model's tokenizer; all tests of one model run before those of the next."""
    return real_tokenizer(request.param)


def random_ids(rng: random.Random, vocabulary: Vocabulary) -> list[int]:
    """Return some ids: any, pieces of characters, added tokens, and some outside the vocabulary."""
    ids = [rng.randrange(vocabulary.size + 50) for _ in range(rng.randrange(1, 30))]
    pieces = vocabulary.table.errors == "replace"
    for _ in range(rng.randrange(6)):
        ids.insert(rng.randrange(len(ids)), rng.randrange(300) if pieces else ids[0])
    ids += rng.choices(sorted(vocabulary.added), k=rng.randrange(3))
    rng.shuffle(ids)
    return ids


def test_any_ids_decode_as_the_tokenizer_decodes_them(directory: Path) -> None:
    """1,000 random sequences, fed in random portions, special tokens shown and hidden."""
    vocabulary, tokenizer = vocabulary_of(directory), reference(directory)
    rng = random.Random(directory.name)

    for _ in range(1_000):
        ids = random_ids(rng, vocabulary)
        for skip in (False, True):
            decoder = vocabulary.decoder(vocabulary.special if skip else frozenset())
            cut = rng.randrange(len(ids) + 1)
            pieces = [*decoder.feed(ids[:cut]), *decoder.feed(ids[cut:]), *decoder.flush()]
            expected = tokenizer.decode(ids, skip_special_tokens=skip)
            assert "".join(piece.text for piece in pieces) == expected, ids


def test_ids_and_texts_of_tokens_are_the_tokenizers(directory: Path) -> None:
    """Size, every added token, and that nothing lies beyond the size."""
    vocabulary, tokenizer = vocabulary_of(directory), reference(directory)

    added = {i: str(token.content) for i, token in tokenizer.get_added_tokens_decoder().items()}
    assert dict(vocabulary.added) == added
    assert tokenizer.id_to_token(vocabulary.size - 1) is not None
    assert vocabulary.size == 1 + max(tokenizer.get_vocab(with_added_tokens=True).values())


def test_prepared_tokens_say_what_the_tokenizer_says(directory: Path) -> None:
    """Each token that has JSON bytes decodes, alone, to what those bytes stand for."""
    vocabulary, tokenizer = vocabulary_of(directory), reference(directory)
    ids = [i for i in range(vocabulary.size) if vocabulary.escaped[i]]
    rng = random.Random(directory.name)
    start = ids[-1]  # so that no leading space is stripped
    ahead = tokenizer.decode([start])

    for token_id in rng.sample(ids, 3_000):
        escaped = vocabulary.escaped[token_id]
        text = tokenizer.decode([start, token_id])[len(ahead) :]
        assert escaped.decode() == text.translate(ESCAPES)
    assert len(ids) > 0.9 * vocabulary.size


ESCAPES = str.maketrans(
    {chr(i): f"\\u{i:04x}" for i in range(0x20)}
    | {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
)
"""RFC 8259, section 7."""
