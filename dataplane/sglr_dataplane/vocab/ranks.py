"""Turns ranked byte sequences, as tiktoken keeps vocabularies, into tokenizer.json documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any


def _byte_signs() -> tuple[str, ...]:
    """Return GPT-2's printable character for each byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(0x100))


_SIGNS = _byte_signs()


def spelled(token: bytes) -> str:
    """Return *token* as byte-level vocabularies spell it."""
    return "".join(_SIGNS[byte] for byte in token)


def merges_of(ranks: Mapping[bytes, int]) -> Iterator[tuple[str, str]]:
    """Yield every way to merge two tokens into a third, in the order of the third's rank.

    tiktoken merges whatever gives the lowest rank; with all ways listed, a BPE that goes by the
    position in the list does the same.
    """
    for token, _ in sorted(ranks.items(), key=lambda item: item[1]):
        cuts = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        pairs = [(ranks[a], ranks[b], a, b) for a, b in cuts if a in ranks and b in ranks]
        for _, _, left, right in sorted(pairs):
            yield spelled(left), spelled(right)


def added_token(token_id: int, content: str, *, special: bool = True) -> dict[str, Any]:
    """Return an entry of ``added_tokens``."""
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def bpe(
    vocab: Mapping[str, int], merges: Iterable[Sequence[str]], **settings: object
) -> dict[str, Any]:
    """Return a ``model`` of type BPE; *settings* replace its defaults."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": dict(vocab),
        "merges": [list(pair) for pair in merges],
    } | settings


def byte_level(
    model: Mapping[str, Any],
    added_tokens: Sequence[Mapping[str, Any]],
    *,
    pattern: str | None,
    normalizer: Mapping[str, Any] | None = None,
    bos: str | None = None,
) -> dict[str, Any]:
    """Return the tokenizer.json of a byte-level *model*.

    Args:
        model: As ``bpe`` makes it.
        added_tokens: Entries as ``added_token`` makes them.
        pattern: What a word is, as a regular expression; None for GPT-2's.
        normalizer: What happens to a text first.
        bos: A token of *model*'s vocabulary that the encoding of a whole prompt begins with.
    """
    spell = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": pattern is None,
    }
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(added_tokens),
        "normalizer": normalizer,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [spell] if pattern is None else [split, spell],
        },
        "post_processor": None if bos is None else begin_with(bos, model["vocab"][bos]),
        "decoder": {**spell, "use_regex": True},
        "model": model,
    }


def begin_with(bos: str, bos_id: int) -> dict[str, Any]:
    """Return a post-processor that puts *bos* before each text."""
    first, second = ({"SpecialToken": {"id": bos, "type_id": part}} for part in (0, 1))
    text, pair = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    return {
        "type": "TemplateProcessing",
        "single": [first, text],
        "pair": [first, text, second, pair],
        "special_tokens": {bos: {"id": bos, "ids": [bos_id], "tokens": [bos]}},
    }
