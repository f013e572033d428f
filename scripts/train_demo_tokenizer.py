"""Trains the demo model's tokenizer, or checks that the committed one is what training gives.

The corpus is ``demo_corpus.txt`` beside this file, sentences composed of its words, and the LICENSE
file: nothing else goes in, so that the same versions give the same bytes anywhere.

Usage: ``python scripts/train_demo_tokenizer.py [--check]``
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "scripts" / "demo_corpus.txt"
TARGET = ROOT / "dataplane" / "sglr_dataplane" / "demo_model"

ORDINARY_TOKENS = 4096
"""Enough for whole common words, small enough that each vocabulary table is built in a blink."""

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# As in Qwen3: one token each, yet part of the answer's text (``special`` false).
MARKUP = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
# Real models round their embedding up, so that a worker's vocabulary is larger than the tokenizer's.
EMBEDDING_MULTIPLE = 64

SENTENCES = (
    "The {adjectives} {nouns} can {verbs} the {nouns} {adverbs}.",
    "Why does {names} {verbs} a {adjectives} {nouns} in {names}?",
    "I {verbs} my {nouns} and {small} {nouns} {adverbs}, {small} you {verbs} it.",
    "{Nouns} and {nouns}: {adjectives}, {adjectives} {nouns} of the {nouns}",
    "{Verbs} the {nouns} {small} the {nouns}; {adverbs} {verbs} {small} {adjectives} {nouns}!",
    "{Small} {nouns} {verbs}s {small} {nouns}s, {Adverbs} {verbs}ing or {verbs}ed.",
    "{Adjectives} {nouns} {verbs} {names}'s {nouns} {small} {small} {nouns}.",
)
ROUNDS = 1600
"""Sentences composed; each word of the longest list comes up often enough to become a token."""


def sections(corpus: str) -> tuple[dict[str, list[str]], list[str]]:
    """Return the corpus's word lists by name, and its passages."""
    words: dict[str, list[str]] = {}
    passages: list[str] = []
    pieces = re.split(r"^\[(\w+)\]\n", corpus, flags=re.MULTILINE)
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        if name == "text":
            passages.append(body)
        else:
            words[name] = body.split()
    return words, passages


def composed(words: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield sentences that go through every word list in turn, in lower case and capitalised."""
    supplies = {name: cycle(list_) for name, list_ in words.items()}
    for pattern in islice(cycle(SENTENCES), ROUNDS):
        sentence = pattern
        for name, supply in supplies.items():
            for placeholder in ("{" + name + "}", "{" + name.capitalize() + "}"):
                while placeholder in sentence:
                    word = next(supply)
                    if placeholder[1].isupper():
                        word = word.capitalize()
                    sentence = sentence.replace(placeholder, word, 1)
        yield sentence


def training_text() -> Iterator[str]:
    """Yield everything the tokenizer is trained on, always in the same order."""
    words, passages = sections(CORPUS.read_text("utf-8"))
    yield from composed(words)
    # Passages count more than composed sentences: they are what the demo says.
    for _ in range(3):
        yield from passages
    yield (ROOT / "LICENSE").read_text("utf-8")


def trained() -> dict[str, Any]:
    """Return the tokenizer.json of a byte-level BPE trained on the corpus."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=ORDINARY_TOKENS,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_text(), trainer)
    if tokenizer.get_vocab_size() != ORDINARY_TOKENS:
        message = f"The corpus gives {tokenizer.get_vocab_size()} tokens, not {ORDINARY_TOKENS}."
        raise SystemExit(message)
    document: dict[str, Any] = json.loads(tokenizer.to_str())
    document["added_tokens"] = [
        {
            "id": token_id,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": content in SPECIAL,
        }
        for token_id, content in enumerate((*SPECIAL, *MARKUP), start=ORDINARY_TOKENS)
    ]
    return document


def settings(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the JSON files beside tokenizer.json, which repeat its ids."""
    ids = {token["content"]: token["id"] for token in document["added_tokens"]}
    size = max(ids.values()) + 1
    end_ids = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    return {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 32768,
        },
        "generation_config.json": {
            "eos_token_id": end_ids,
            "pad_token_id": ids["<|endoftext|>"],
            "do_sample": True,
            "temperature": 0.6,
            "top_p": 0.95,
            "top_k": 20,
        },
        "config.json": {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "eos_token_id": end_ids[0],
            "max_position_embeddings": 32768,
            "vocab_size": -(-size // EMBEDDING_MULTIPLE) * EMBEDDING_MULTIPLE,
        },
    }


def files() -> dict[str, bytes]:
    """Return every file this script writes, by name."""
    document = trained()
    compact = json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"
    return {"tokenizer.json": compact.encode()} | {
        name: (json.dumps(content, indent=2) + "\n").encode()
        for name, content in settings(document).items()
    }


def main() -> int:
    """Write the files, or with ``--check`` return 1 when a committed one differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    stale = []
    for name, content in files().items():
        path = TARGET / name
        if check and (not path.exists() or path.read_bytes() != content):
            stale.append(name)
        elif not check:
            path.write_bytes(content)
            print(f"wrote {path.relative_to(ROOT)} ({len(content)} bytes)")
    if stale:
        print(f"Stale in {TARGET.relative_to(ROOT)}: {', '.join(stale)}; run without --check.")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
