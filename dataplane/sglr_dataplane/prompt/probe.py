"""Compares the two encoders on one tokenizer; run as a process of its own by ``verdict``.

Usage: ``python -m sglr_dataplane.prompt.probe < tokenizer.json``; prints the verdict as JSON.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence

import msgspec

from sglr_dataplane.prompt.encoder import Encoder, FastEncoder, ReferenceEncoder
from sglr_dataplane.prompt.verdict import Verdict
from sglr_dataplane.vocab import TokenizerDocument

ROUNDS = 400
"""Random texts; with the fixed ones enough to show every difference known of any library."""

FIXED = (
    "",
    " ",
    "\n",
    "\t \n\r\n  x",
    "Hello, world! It's 3.14159 o'clock; they'LL've   gone.",
    "def f(x):\n\treturn {**x, 'a': [1, 2, 3]}  # 100%\n\n\n\nclass A: ...\n",
    '{"name": "get_weather", "arguments": {"city": "Zürich", "n": -1.5e-7}}',
    "你好,世界。今日はいい天気ですね。 안녕하세요 мир Ελλάδα שלום مرحبا नमस्ते ไทย",
    "👨‍👩‍👧‍👦🏳️‍🌈🇫🇷❤️ e\u0301 é \u00a0\u2003\u200b\ufeff\u2028",
    "\x00\x01\x7f\u0080\ufffd\U0010ffff",
    "a" * 2_000,
    " " * 2_000,
    "\n" * 500,
    "1" * 1_000,
    "!" * 1_000,
    "<|" * 300,
    "<s> [INST] hi [/INST] </s><0x0A>▁▁",
)
PARTS = (
    *"aeiouXYZ019 \n\t.,;:'\"<>|/\\_-{}[]()#@%&*+=~`^$",
    *"éßøñçаяжשم你好世界かカ한글กข😀👍🏽\u200d\ufe0f\u0301\u00a0\u3000▁Ġ",
    *("the", " quick", "ING", "'s", "n't", "  ", "\r\n", "123", "://", "```", "</", "<|", "|>"),
)


def probe_texts(added: Sequence[str]) -> Iterator[str]:
    """Yield the texts to compare on: fixed ones, and random mixtures with the *added* tokens."""
    yield from FIXED
    yield from (f"a {token} b{token}\n" for token in added[:64])
    # The same texts for the same tokenizer, so that a verdict can be repeated.
    rng = random.Random(0)  # noqa: S311  # test data, no secret
    for _ in range(ROUNDS):
        words = rng.choices(PARTS, k=rng.randrange(1, 120))
        for token in rng.choices(added, k=rng.randrange(3)) if added else ():
            words.insert(rng.randrange(len(words)), token)
        yield "".join(words)


def first_difference(
    candidate: Encoder, reference: Encoder, texts: Iterator[str]
) -> tuple[int, str | None]:
    """Return how many texts were compared, and the first one encoded differently, if any."""
    count = 0
    for count, text in enumerate(texts, start=1):  # the last count is the answer
        if (
            candidate.encode(text) != reference.encode(text)
            or candidate.encode_plain(text) != reference.encode_plain(text)
            or candidate.encode(text, add_special_tokens=True)
            != reference.encode(text, add_special_tokens=True)
        ):
            return count, text
    return count, None


def compare(source: bytes) -> Verdict:
    """Return whether fastokens equals tokenizers on *source*, a tokenizer.json."""
    added = [token.content for token in TokenizerDocument.parse(source).added.values()]
    reference = ReferenceEncoder(source)
    try:
        candidate = FastEncoder(source)
        count, text = first_difference(candidate, reference, probe_texts(added))
    except Exception as error:  # noqa: BLE001  # whatever it raises, it is not admitted
        return Verdict(admitted=False, reason=f"fastokens raised {type(error).__name__}")
    if text is not None:
        return Verdict(admitted=False, reason=f"fastokens encodes {text[:40]!r} differently")
    return Verdict(admitted=True, reason=f"equal to tokenizers on {count} probe texts")


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(compare(sys.stdin.buffer.read())))
