"""A tokenizer is found in whichever of the usual files a model's directory has."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, normalizers

from sglr_dataplane.vocab import TokenizerLoadError
from sglr_dataplane.vocab.ranks import spelled
from sglr_dataplane.vocab.sources import sources_digest, tokenizer_json
from support.tokenizers import (
    DEMO_MODEL,
    a_directory,
    a_fallback_tokenizer,
    real_tokenizer,
    reference,
    vocabulary_of,
)

TEXTS = (
    "Hello, world! It's 3.14159 o'clock; they'LL've   gone.\n\n\n",
    "def f(x):\n\treturn {**x, 'a': [1, 2, 3]}  # 100%",
    "你好,世界。今日はいい天気ですね。HTTPサーバー 안녕하세요 мир Ελλάδα e\u0301 👨‍👩‍👧",
    "ΩΨλЖжЯ漢字kanaかな1234567 <|im_end|>[EOS]<think>",
)


def loaded(directory: Path) -> Tokenizer:
    """Return the tokenizers library's reading of what was found in *directory*."""
    return Tokenizer.from_str(tokenizer_json(directory).decode())


def written(directory: Path, **files: Any) -> Path:
    """Return *directory* with *files*: text as it is, anything else as JSON; ``_`` for the dot."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (directory / name.replace("__", ".")).write_text(text, "utf-8")
    return directory


def a_tekken(*, names: list[str] | None = None) -> dict[str, Any]:
    """Return a file in Mistral's format, with three special tokens and some merges."""
    tokens = [bytes((byte,)) for byte in range(0x100)] + [b"he", b"ll", b"hell", b"o w"]
    return {
        "config": {
            "pattern": r"\w+|\s",
            "default_num_special_tokens": 3,
            "default_vocab_size": 3 + len(tokens),
        },
        "vocab": [{"token_bytes": base64.b64encode(token).decode()} for token in tokens]
        + [{"token_bytes": base64.b64encode(b"beyond").decode()}],
        "special_tokens": names and [{"rank": i, "token_str": n} for i, n in enumerate(names)],
    }


def test_bytes_are_spelled_as_gpt2_spells_them() -> None:
    """The published examples: a space, a line feed, and a letter of two bytes."""
    assert spelled(b" the\n") == "ĠtheĊ"
    assert spelled("é".encode()) == "Ã©"


def test_a_tokenizer_json_is_taken_as_it_is() -> None:
    """Byte for byte, whatever else is there."""
    assert tokenizer_json(DEMO_MODEL) == (DEMO_MODEL / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("settings", "pieces"),
    [
        ({"tokenizer_class": "LlamaTokenizer", "legacy": True}, ["<end>", "▁", "h", "▁", "i"]),
        ({"tokenizer_class": "LlamaTokenizerFast"}, ["<end>", "▁", "h", "i"]),
        (
            {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False},
            ["<end>", "▁", "h", "i"],
        ),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, ["<end>", "▁", "▁", "h", "▁", "i"]),
        ({}, ["<end>", "▁", "▁", "h", "▁", "i"]),
    ],
)
def test_llamas_class_puts_no_second_space_before_a_text(
    tmp_path: Path, settings: dict[str, object], pieces: list[str]
) -> None:
    """As transformers 5.19 does; worked out by hand from its pre-tokenizer."""
    tokenizer = a_fallback_tokenizer("▁", "h", "i")
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    a_directory(tmp_path, tokenizer, **settings)

    read = Tokenizer.from_str(tokenizer_json(tmp_path).decode())
    found = [
        *read.encode("<end> h", add_special_tokens=False).tokens,
        *read.encode("<end>i", add_special_tokens=False).tokens[1:],
    ]
    assert found == pieces


def test_a_vocabularys_digest_is_of_what_is_read(tmp_path: Path) -> None:
    """Another template is none of it; another class is; so are merges."""
    tokenizer = a_fallback_tokenizer("h", "i")
    digests = [
        sources_digest(a_directory(tmp_path / str(number), tokenizer, **settings))
        for number, settings in enumerate(
            ({"chat_template": "a"}, {"chat_template": "b"}, {"tokenizer_class": "LlamaTokenizer"})
        )
    ]
    merges: list[str] = []
    for text in ("#version: 0.2\n", "#version: 0.2\na b\n"):
        written(tmp_path, vocab__json={"a": 0}, merges__txt=text)
        merges.append(sources_digest(tmp_path))

    assert digests[0] == digests[1] != digests[2]
    assert merges[0] != merges[1]
    with pytest.raises(TokenizerLoadError, match=r"is not there"):
        sources_digest(tmp_path / "nothing")


def test_a_tekken_file_merges_by_rank(tmp_path: Path) -> None:
    """Special tokens come first, so ranks are shifted by their number."""
    tokenizer = loaded(written(tmp_path, tekken__json=a_tekken()))

    expected = [3 + 0x102, 3 + ord("o"), 3 + ord(" "), 3 + ord("w")]
    assert tokenizer.encode("hello w", add_special_tokens=False).ids == expected
    assert tokenizer.encode("h").ids == [1, 3 + ord("h")]
    assert tokenizer.decode([0, 1, 2], skip_special_tokens=False) == "<unk><s></s>"
    assert tokenizer.get_vocab_size() == 3 + 0x104


def test_a_tekken_file_may_name_its_special_tokens(tmp_path: Path) -> None:
    """Those it does not name are numbered."""
    tokenizer = loaded(written(tmp_path, tekken__json=a_tekken(names=["<pad>", "<s>"])))

    assert [tokenizer.id_to_token(i) for i in range(3)] == ["<pad>", "<s>", "<SPECIAL_2>"]


def test_qwens_two_files_are_its_tokenizer_json(tmp_path: Path) -> None:
    """vocab.json and merges.txt, taken apart from the real one, give the same ids again."""
    directory = real_tokenizer("qwen3")
    document = json.loads((directory / "tokenizer.json").read_bytes())
    added = {
        str(token["id"]): {"content": token["content"], "special": token["special"]}
        for token in document["added_tokens"]
    }
    merges = [
        pair if isinstance(pair, str) else " ".join(pair) for pair in document["model"]["merges"]
    ]
    written(
        tmp_path,
        vocab__json=document["model"]["vocab"],
        merges__txt="#version: 0.2\n" + "\n".join(merges) + "\n",
        tokenizer_config__json={"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added},
    )

    found, expected = loaded(tmp_path), reference(directory)
    for text in TEXTS:
        assert found.encode(text).ids == expected.encode(text).ids
    assert found.decode([151667, 151645]) == expected.decode([151667, 151645]) == "<think>"


def test_gpt2s_two_files_need_no_added_tokens(tmp_path: Path) -> None:
    """The demo's vocabulary is cut into words as GPT-2's."""
    document = json.loads((DEMO_MODEL / "tokenizer.json").read_bytes())
    written(
        tmp_path,
        vocab__json=document["model"]["vocab"],
        merges__txt="\n".join(" ".join(pair) for pair in document["model"]["merges"]),
        tokenizer_config__json={"tokenizer_class": "GPT2TokenizerFast"},
    )

    for text in TEXTS[:3]:
        assert loaded(tmp_path).encode(text).ids == reference(DEMO_MODEL).encode(text).ids


@pytest.mark.timeout(120)  # 164,000 tokens, merged by rank in Python
def test_kimis_file_is_its_tokenizer_json(tmp_path: Path) -> None:
    """tiktoken.model and the settings, made from the converted one, give the same ids again."""
    directory = real_tokenizer("kimi_k2")
    vocabulary = vocabulary_of(directory)
    ranks = [i for i in range(vocabulary.size) if i not in vocabulary.added]
    lines = [f"{base64.b64encode(vocabulary.bytes_of(i)).decode()} {i}" for i in ranks]
    named = {
        str(i): {"content": text, "special": True}
        for i, text in vocabulary.added.items()
        if "reserved" not in text
    }
    written(
        tmp_path,
        tiktoken__model="\n".join(lines),
        tokenizer_config__json={
            "tokenizer_class": "TikTokenTokenizer",
            "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
            "added_tokens_decoder": named,
        },
    )

    found, expected = loaded(tmp_path), reference(directory)
    for text in TEXTS:
        assert found.encode(text).ids == expected.encode(text).ids
    assert found.get_vocab(with_added_tokens=True) == expected.get_vocab(with_added_tokens=True)


VOCAB = {"a": 0, "b": 1, "ab": 2}
KIMI = {"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}}


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "has no tokenizer.json, and neither tekken.json, vocab.json nor tiktoken.model."),
        ({"tekken__json": "{"}, "tekken.json is not what it should be"),
        ({"tekken__json": {}}, "tekken.json is not what it should be"),
        ({"tekken__json": a_tekken(names=["<a>"])}, "tekken.json has no special token '<s>'."),
        ({"vocab__json": VOCAB}, "has no merges.txt."),
        ({"vocab__json": [], "merges__txt": ""}, "vocab.json is not what it should be"),
        ({"vocab__json": VOCAB, "merges__txt": "a b c"}, "merges.txt has a line that is not two"),
        ({"vocab__json": VOCAB, "merges__txt": "a b"}, "tokenizer_class '' in tokenizer_config"),
        ({"tiktoken__model": "YQ== 0"}, "expected Kimi's 'TikTokenTokenizer'."),
        (
            {"tiktoken__model": "YQ==", "tokenizer_config__json": KIMI},
            "tiktoken.model has a line without token and rank.",
        ),
        (
            {"tiktoken__model": "!Q== 0", "tokenizer_config__json": KIMI},
            "tiktoken.model has a line without token and rank.",
        ),
        (
            {"tiktoken__model": "YQ== 0", "tokenizer_config__json": "["},
            "tokenizer_config.json is not what it should be",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(
    tmp_path: Path, files: dict[str, Any], sentence: str
) -> None:
    """It names the file, and what was expected of it."""
    with pytest.raises(TokenizerLoadError) as caught:
        tokenizer_json(written(tmp_path, **files))

    assert sentence in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
