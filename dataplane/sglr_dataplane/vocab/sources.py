"""Finds the tokenizer in a model's directory, whichever of the usual files it is written in."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from sglr_dataplane.vocab.document import FILE, TokenizerLoadError
from sglr_dataplane.vocab.ranks import added_token, bpe, byte_level, merges_of, spelled

_T = TypeVar("_T")

TEKKEN, VOCAB, MERGES, TIKTOKEN = "tekken.json", "vocab.json", "merges.txt", "tiktoken.model"
SETTINGS = "tokenizer_config.json"

QWEN_2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = (
    r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]",
    r"\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]",
)
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI_PATTERN = (
    rf"[\p{{Han}}]+"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_ENDINGS}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_ENDINGS}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KIMI_RESERVED = 256
"""Ids that Kimi's own code gives to control tokens, above the ranked ones."""

_LLAMA_CLASSES = frozenset({"LlamaTokenizer", "LlamaTokenizerFast"})
_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
# transformers says Metaspace with prepend_scheme "always", which fastokens does not know; these
# steps do the same.
_SPACED_ALWAYS = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        _SPACES,
        {"type": "Replace", "pattern": {"Regex": r"\A▁▁"}, "content": "▁"},
    ],
}
_SPACED_FIRST = {
    "type": "Metaspace",
    "replacement": "▁",
    "prepend_scheme": "first",
    "split": False,
}

# mistral-common names these where a file has no list of its own (before version 11).
TEKKEN_NAMES = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "[TOOL_CONTENT]",
)


class _Named(msgspec.Struct):
    content: str
    special: bool = False


class _Settings(msgspec.Struct):
    tokenizer_class: str | None = None
    auto_map: dict[str, Any] = {}
    added_tokens_decoder: dict[int, _Named] = {}


class _LlamaSettings(msgspec.Struct):
    tokenizer_class: Any = None
    legacy: Any = None
    add_prefix_space: Any = None


class _TekkenSettings(msgspec.Struct):
    pattern: str
    default_vocab_size: int
    default_num_special_tokens: int


class _TekkenToken(msgspec.Struct):
    token_bytes: bytes


class _TekkenName(msgspec.Struct):
    rank: int
    token_str: str


class _Tekken(msgspec.Struct):
    config: _TekkenSettings
    vocab: list[_TekkenToken]
    special_tokens: list[_TekkenName] | None = None


def tokenizer_json(directory: Path) -> bytes:
    """Return the directory's tokenizer.json, or what it would be.

    Looked for, in this order: tokenizer.json; tekken.json (Mistral); vocab.json with merges.txt
    (GPT-2, Qwen2); tiktoken.model (Kimi). Converting takes seconds for large vocabularies. Where
    the model's tokenizer class replaces parts of its tokenizer.json, so does this.

    Raises:
        TokenizerLoadError: None of them is there, or the one that is cannot be read.
    """
    if (directory / FILE).exists():
        return _as_its_class_has_it(_read(directory, FILE), directory / SETTINGS)
    if (directory / TEKKEN).exists():
        return _encoded(tekken(_decoded(directory, TEKKEN, _Tekken)))
    if (directory / VOCAB).exists():
        return _encoded(_from_merges(directory))
    if (directory / TIKTOKEN).exists():
        return _encoded(_from_tiktoken(directory))
    raise _nothing_there(directory)


def _as_its_class_has_it(source: bytes, place: Path) -> bytes:
    """Return the tokenizer.json *source* as the engine's library uses it.

    transformers 5.19 (sglang 0.5.23): LlamaTokenizer, which Mistral's and Mixtral's first models
    name, makes its own pre-tokenizer. It puts no second space before a text that begins with one.
    sglang undoes that where the file has a pre-tokenizer of another kind.

    Args:
        source: The file's content.
        place: The settings; whoever reads all of them tells what is wrong with them.
    """
    try:
        settings = msgspec.json.decode(place.read_bytes(), type=_LlamaSettings)
        if settings.tokenizer_class not in _LLAMA_CLASSES:
            return source
        document = msgspec.json.decode(source, type=dict[str, Any])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return source
    own: Any = document.get("pre_tokenizer")
    if own is not None and own.get("type") != "Metaspace":
        return source
    document["normalizer"] = _SPACED_ALWAYS if settings.legacy else None
    document["pre_tokenizer"] = None if settings.legacy else _SPACED_FIRST
    if settings.add_prefix_space is False:
        document["normalizer"], document["pre_tokenizer"] = _SPACES, None
    return _encoded(document)


def sources_digest(directory: Path) -> str:
    """Return a SHA-256 of what ``tokenizer_json`` reads, in hexadecimal, without converting it.

    Directories with equal digests have equal vocabularies, whatever else they hold.

    Raises:
        TokenizerLoadError: None of the files is there, or one cannot be read.
    """
    if (directory / FILE).exists():
        return hashlib.sha256(tokenizer_json(directory)).hexdigest()
    digest = hashlib.sha256()
    for first, *others in ((TEKKEN,), (VOCAB, MERGES, SETTINGS), (TIKTOKEN, SETTINGS)):
        if (directory / first).exists():
            for name in (first, *(name for name in others if (directory / name).exists())):
                content = _read(directory, name)
                digest.update(f"{name} {len(content)}\0".encode() + content)
            return digest.hexdigest()
    raise _nothing_there(directory)


def tekken(source: _Tekken) -> dict[str, Any]:
    """Return the tokenizer.json of Mistral's format: special tokens first, then the ranks."""
    specials = source.config.default_num_special_tokens
    ordinary = source.vocab[: source.config.default_vocab_size - specials]
    ranks = {token.token_bytes: rank for rank, token in enumerate(ordinary)}
    named = {name.rank: name.token_str for name in source.special_tokens or ()}
    names = named or dict(enumerate(TEKKEN_NAMES))
    texts = [names.get(i, f"<SPECIAL_{i}>") for i in range(specials)]
    vocab = {text: i for i, text in enumerate(texts)}
    vocab |= {spelled(token): rank + specials for token, rank in ranks.items()}
    if "<s>" not in vocab:
        raise TokenizerLoadError(f"{TEKKEN} has no special token '<s>'.")
    return byte_level(
        bpe(vocab, merges_of(ranks), ignore_merges=True),
        [added_token(i, text) for i, text in enumerate(texts)],
        pattern=source.config.pattern,
        bos="<s>",
    )


def _from_merges(directory: Path) -> dict[str, Any]:
    """Return the tokenizer.json of GPT-2's two files; who uses them says how text is cut first."""
    settings = _settings(directory)
    vocab = _decoded(directory, VOCAB, dict[str, int])
    lines = _read(directory, MERGES).decode(errors="replace").splitlines()
    merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    if any(len(pair) != 2 for pair in merges):  # noqa: PLR2004  # a pair
        raise TokenizerLoadError(f"{MERGES} has a line that is not two tokens.")
    name = (settings.tokenizer_class or "").removesuffix("Fast")
    added = [
        added_token(i, token.content, special=token.special)
        for i, token in sorted(settings.added_tokens_decoder.items())
    ]
    if name == "Qwen2Tokenizer":
        nfc = {"type": "NFC"}
        return byte_level(bpe(vocab, merges), added, pattern=QWEN_2_PATTERN, normalizer=nfc)
    if name == "GPT2Tokenizer":
        return byte_level(bpe(vocab, merges), added, pattern=None)
    raise _unknown_class(VOCAB, name, "'Qwen2Tokenizer' or 'GPT2Tokenizer'")


def _from_tiktoken(directory: Path) -> dict[str, Any]:
    """Return the tokenizer.json of Kimi's file, whose control tokens are named in the settings."""
    settings = _settings(directory)
    code = json.dumps(settings.auto_map)
    if "tokenization_kimi" not in code and "tokenization_moonshot" not in code:
        raise _unknown_class(TIKTOKEN, settings.tokenizer_class or "", "Kimi's 'TikTokenTokenizer'")
    ranks = dict(_ranked(_read(directory, TIKTOKEN)))
    named = {i: token.content for i, token in settings.added_tokens_decoder.items()}
    reserved = range(len(ranks), len(ranks) + KIMI_RESERVED)
    return byte_level(
        bpe({spelled(t): rank for t, rank in ranks.items()}, merges_of(ranks), ignore_merges=True),
        [added_token(i, named.get(i, f"<|reserved_token_{i}|>")) for i in reserved],
        pattern=KIMI_PATTERN,
    )


def _ranked(source: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the tokens of a tiktoken file: a line each, in base 64, with its rank."""
    try:
        for line in source.splitlines():
            token, rank = line.split()
            yield base64.b64decode(token, validate=True), int(rank)
    except (ValueError, binascii.Error) as error:
        raise TokenizerLoadError(f"{TIKTOKEN} has a line without token and rank.") from error


def _settings(directory: Path) -> _Settings:
    if not (directory / SETTINGS).exists():
        return _Settings()
    return _decoded(directory, SETTINGS, _Settings)


def _decoded(directory: Path, name: str, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(_read(directory, name), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TokenizerLoadError(f"{name} is not what it should be: {error}.") from error


def _read(directory: Path, name: str) -> bytes:
    try:
        return (directory / name).read_bytes()
    except FileNotFoundError as error:
        raise TokenizerLoadError(f"The tokenizer's directory has no {name}.") from error
    except OSError as error:
        raise TokenizerLoadError(f"{name} cannot be read: {error.strerror}.") from error


def _encoded(document: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(document)


def _unknown_class(file: str, name: str, expected: str) -> TokenizerLoadError:
    return TokenizerLoadError(
        f"{file} alone does not say how text is cut into words, and the tokenizer_class {name!r} "
        f"in {SETTINGS} is not one that is known: expected {expected}."
    )


def _nothing_there(directory: Path) -> TokenizerLoadError:
    if not directory.is_dir():
        return TokenizerLoadError("The tokenizer's directory is not there.")
    return TokenizerLoadError(
        f"The tokenizer's directory has no {FILE}, and neither {TEKKEN}, {VOCAB} nor {TIKTOKEN}."
    )
