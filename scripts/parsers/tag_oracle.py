"""Answers that xgrammar's own compiler lets a model write under a structural tag.

Runs in an environment that has xgrammar (0.2.7 or newer), not in the project's. Reads a JSON line
``{"tag": ..., "ends": [...], "seeds": N}`` from standard input for each tag, and answers each with a line
``{"texts": [...]}``, or ``{"error": ...}`` when the tag does not compile.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
from typing import Any

xgrammar: Any = importlib.import_module("xgrammar")  # there only in the oracle's own environment

_BYTES = [bytes([value]) for value in range(256)]
_END = 256
_WORDS = 32
_LONGEST = 3000
_TRIES = 8
"""After so many bytes an end is tried."""
_ENDS = 0.5
"""How probable it is that an answer that may end does."""
_CLOSES, _DRAWN = 0.3, 0.5
"""Up to which a random number means a closing character, and any character."""
_CLOSING = frozenset(b'"}]</s')
_PLAIN = frozenset(b"abcxyz019 .,-_")


def _compiler() -> Any:
    vocabulary = xgrammar.TokenizerInfo(
        [*_BYTES, b"</s>"], vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[_END]
    )
    return xgrammar.GrammarCompiler(vocabulary, cache_enabled=False)


def _allowed(matcher: Any) -> list[int]:
    mask = xgrammar.allocate_token_bitmask(1, _END + 1)
    matcher.fill_next_token_bitmask(mask)
    words = [int(word) for word in mask[0]]
    return [at for at in range(_END + 1) if words[at // _WORDS] >> (at % _WORDS) & 1]


def _chosen(allowed: list[int], generator: random.Random) -> int:
    """Return one of *allowed*, with a liking for ends and for what can be read."""
    if _END in allowed and generator.random() < _ENDS:
        return _END
    going_on = [at for at in allowed if at != _END] or [_END]
    drawn = generator.random()
    if drawn < _CLOSES:
        return generator.choice([at for at in going_on if at in _CLOSING] or going_on)
    if drawn < _DRAWN:
        return generator.choice(going_on)
    return generator.choice([at for at in going_on if at in _PLAIN] or going_on)


def _written(compiled: Any, seed: int, ends: list[str]) -> str:
    """Return one answer that the grammar allows, chosen byte by byte.

    Chance alone would hardly ever write one of *ends*, which are what ends a free text.
    """
    generator = random.Random(seed)  # noqa: S311  # reproducible
    matcher = xgrammar.GrammarMatcher(compiled)
    written = bytearray()
    while len(written) < _LONGEST:
        if len(written) % _TRIES == 0:
            end = generator.choice(ends)
            if matcher.accept_string(end):
                written += end.encode()
        token = _chosen(_allowed(matcher), generator)
        if not matcher.accept_token(token):
            raise RuntimeError(f"the matcher refused {token} after {bytes(written)!r}")
        if token == _END:
            return written.decode("utf-8", "replace")
        written.append(token)
    return ""


def main() -> None:
    """Answer each line of the input."""
    compiler = _compiler()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            compiled = compiler.compile_structural_tag(json.dumps(asked["tag"]))
        except Exception as error:  # noqa: BLE001  # whatever the compiler finds wrong is the answer
            print(json.dumps({"error": str(error)[:500]}), flush=True)
            continue
        texts = [_written(compiled, seed, asked["ends"]) for seed in range(asked["seeds"])]
        print(json.dumps({"texts": [text for text in texts if text]}), flush=True)


if __name__ == "__main__":
    main()
