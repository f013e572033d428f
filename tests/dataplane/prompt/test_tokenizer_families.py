"""Real models' texts are encoded as their own tokenizers do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglr_dataplane.prompt.tokenizer import Tokenizer
from support.tokenizers import REAL, VERDICTS, real_tokenizer, reference

PARTS = (
    *(" ", "\n", "\n\n", "\t", "  ", "\r\n", "a", "Zé", "don't", "WE'LL", "0", "1234567", "3.14"),
    *("hello", " World", "_x", "()", "!!!", "...", "://", "</s>", "[INST]", "<|", "|>", "▁", "Ġ"),
    *(
        "你好",
        "。",
        "カタカナ",
        "한국어",
        "мир",
        "שלום",
        "مرحبا",
        "नमस्ते",
        "ไทย",
        "😀",
        "👨‍👩‍👧",
        "🏳️‍🌈",
    ),
    *("e\u0301", "\u00a0", "\u200b", "\ufeff", "\u2028", "\x00", "\x7f", "\U0010ffff", "\u3000"),
)


@pytest.fixture(scope="module", params=REAL)
def directory(request: pytest.FixtureRequest) -> Path:
    """Return a real model's tokenizer; all tests of one model run before those of the next."""
    return real_tokenizer(request.param)


@pytest.fixture(scope="module")
def chosen(directory: Path) -> Tokenizer:
    """Return it with the encoder that the comparison chose."""
    return Tokenizer.from_dir(directory, verdicts=VERDICTS)


def fuzzed_texts(seed: str, added: list[str], count: int) -> Iterator[str]:
    """Yield random mixtures of ordinary text and *added* tokens."""
    rng = random.Random(seed)
    for _ in range(count):
        parts = rng.choices(PARTS, k=rng.randrange(1, 40))
        parts += rng.choices(added, k=rng.randrange(3))
        parts += [chr(rng.choice((rng.randrange(0x20, 0x3000), rng.randrange(0xE000, 0x20000))))]
        rng.shuffle(parts)
        yield "".join(parts)


@pytest.mark.timeout(120)  # the largest vocabularies take seconds to load, three times over
def test_any_text_is_encoded_as_the_tokenizer_encodes_it(
    directory: Path, chosen: Tokenizer
) -> None:
    """2,000 fuzzed texts, by the encoder that the comparison chose and by the reference."""
    tokenizer = reference(directory)
    added = sorted(chosen.vocabulary.added.values())

    for text in fuzzed_texts(directory.name, added, 2_000):
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        assert list(chosen.encode(text)) == expected, text
    assert chosen.encoder_name == "fastokens", chosen.encoder_reason


@pytest.mark.timeout(120)
def test_control_tokens_typed_by_users_never_become_control_ids(chosen: Tokenizer) -> None:
    """For every family: only the template's own count, and the text is kept."""
    vocabulary = chosen.vocabulary
    controls = [vocabulary.added[i] for i in sorted(vocabulary.control)]
    rng = random.Random(vocabulary.digest)

    for typed in rng.choices(controls, k=50):
        ids = chosen.encode_segments(
            [(controls[-1], True), (f"a{typed} b", False), (controls[-1], True)]
        )
        own = vocabulary.id_of(controls[-1])
        assert [i for i in ids if i in vocabulary.control] == [own, own]
        # SentencePiece vocabularies put a space before each stretch of text.
        assert f"a{typed} b" in vocabulary.decode(ids)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["llama3.1", "phi3", "qwen2.5"])
def test_llama_cpps_test_vectors_hold(name: str) -> None:
    """47 hard texts a family, with ids that neither this project nor its libraries made."""
    directory = real_tokenizer(name)
    tokenizer = Tokenizer.from_dir(directory, verdicts=VERDICTS)
    texts = (directory / "vectors.inp").read_text("utf-8").split("\n__ggml_vocab_test__\n")
    lines = (directory / "vectors.out").read_text("utf-8").split("\n")
    expected = [tuple(map(int, line.split())) for line in lines]

    assert len(texts) == len(expected) == 47
    for text, ids in zip(texts, expected, strict=True):
        assert list(tokenizer.encode(text)) == list(ids), text


@pytest.mark.timeout(120)
def test_qwen3_ids_are_the_published_ones() -> None:
    """Worked out by hand from the vocabulary file: one id a word, 151644 and on for ChatML."""
    tokenizer = Tokenizer.from_dir(real_tokenizer("qwen3"))

    assert tuple(tokenizer.encode("<|im_start|>user\nHello world<|im_end|>")) == (
        *(151644, 872, 198, 9707, 1879, 151645),
    )


@pytest.mark.timeout(120)
def test_a_directory_given_as_text_is_as_good_as_a_path() -> None:
    """Configuration files hold text."""
    directory = real_tokenizer("qwen3")

    assert repr(Tokenizer.from_dir(str(directory))) == repr(Tokenizer.from_dir(Path(directory)))
