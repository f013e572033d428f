"""Tokenizers for tests: the demo's, small ones made to measure, and real models'."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, normalizers
from tokenizers.models import BPE

import sglr_dataplane
from sglr_dataplane.vocab import TokenizerDocument, Vocabulary
from sglr_dataplane.vocab.sources import tokenizer_json

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO_MODEL = Path(sglr_dataplane.__file__).parent / "demo_model"
REAL = (
    *("qwen3", "qwen2.5", "deepseek_v3", "deepseek_r1", "deepseek_v4", "llama3.1", "gemma3"),
    *("gptoss", "mixtral", "mistral_v3", "mistral_tekken", "phi3", "phi4", "glm4", "kimi_k2"),
)
"""Names of all real tokenizers, see ``scripts/fetch_tokenizers.py``."""


VERDICTS = ROOT / ".cache" / "verdicts"
"""Comparisons of encoders kept between runs; their names say which versions they hold for."""


def real_tokenizer(name: str) -> Path:
    """Return the directory of a real model's tokenizer; skips the test when it was not fetched.

    With the name in ``SGLR_REQUIRE_TOKENIZERS`` (separated by commas) the test fails instead.
    """
    directory = ROOT / ".cache" / "tokenizers" / name
    if (directory / "tokenizer.json").exists():
        return directory
    reason = (
        f"The tokenizer {name!r} is not here; get it with "
        f"`python scripts/fetch_tokenizers.py --only {name}`."
    )
    if name in os.environ.get("SGLR_REQUIRE_TOKENIZERS", "").split(","):
        pytest.fail(reason)
    pytest.skip(reason)


@lru_cache(maxsize=2)  # the demo's and one real model's: each takes up to 400 MB
def reference(directory: Path) -> Tokenizer:
    """Return the tokenizers library's reading of *directory*: what the engines use."""
    return Tokenizer.from_str(tokenizer_json(directory).decode())


@lru_cache(maxsize=2)
def vocabulary_of(directory: Path) -> Vocabulary:
    """Return our reading of *directory*."""
    return Vocabulary.from_dir(directory)


def a_fallback_tokenizer(*texts: str, strip: bool = False) -> Tokenizer:
    """Return a byte-fallback tokenizer: ``<unk>``, the bytes from id 1, then *texts*.

    Its special token ``<end>`` and its added token ``<mark>`` come last.
    """
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(0x100)), *texts]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if strip:
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens([AddedToken("<end>", special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<mark>", special=False, normalized=False)])
    return tokenizer


def vocabulary_from(tokenizer: Tokenizer) -> Vocabulary:
    """Return our reading of what *tokenizer* would save."""
    return Vocabulary.from_document(TokenizerDocument.parse(tokenizer.to_str().encode()))


def a_directory(path: Path, tokenizer: Tokenizer, **settings: object) -> Path:
    """Return *path* with the files of *tokenizer* and *settings* as its tokenizer_config.json."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "tokenizer.json").write_text(tokenizer.to_str(), "utf-8")
    (path / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return path
