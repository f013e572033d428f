"""What reading answers costs: long arguments by length, and plain text with tools offered.

``python bench/parsers.py [--rounds 5]`` reads a call whose argument is 2 MB and one of 4 MB, in pieces
of 40 characters, for each body lexer, and prints the seconds of each and their quotient: 2.3 is
allowed. Then it reads plain answers of 20 000 tokens with the demo's vocabulary, alone and with a
tool and a reasoning format, and prints microseconds a token: 1.3 times is allowed. It ends with 1
when one of them is more. The quickest of all rounds counts; nothing else should run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import sglr_dataplane
from sglr_dataplane.job import Chunk, Usage
from sglr_dataplane.output.calls import ToolSignature
from sglr_dataplane.output.formats import answer_formats, reasoning_format
from sglr_dataplane.output.pipeline import Pipeline
from sglr_dataplane.output.replay import Reader
from sglr_dataplane.output.stop import Cut
from sglr_dataplane.vocab import Vocabulary

DEMO_MODEL = Path(sglr_dataplane.__file__).parent / "demo_model"
PIECE, MEGABYTES = 40, 2
MOST_GROWTH, MOST_COST = 2.3, 1.3
TOKENS = 20_000
TOOL = ToolSignature("f", {"properties": {"a": {"type": "string"}, "n": {"type": "array"}}})
# Format → what stands before a long string argument.
LONG = {
    "qwen": '<tool_call>\n{"name": "f", "arguments": {"a": "',
    "mistral": '[TOOL_CALLS]f[ARGS]{"a": "',
    "qwen3_coder": "<tool_call>\n<function=f>\n<parameter=a>\n",
    "glm47": "<tool_call>f<arg_key>a</arg_key><arg_value>",
    "pythonic": '[f(a="',
    "gemma4": '<|tool_call>call:f{a:<|"|>',
    "minimax-m3": ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="f">]<]minimax[>[<a>',
    "cohere_command4": (
        '<cofl:tool_calls><cofl:tool_call id="0" name="f"><cofl:value name="a" type="raw">'
    ),
    "gpt-oss": '<|channel|>commentary to=functions.f<|message|>{"a": "',
    "beam": ' to=f<|channel|>analysis <|constrain|>xml<|message|><rfl:parameter name="a">',
}


def main() -> int:
    """Measure, print, and say whether it is within bounds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    grown = [_grows(name, rounds) <= MOST_GROWTH for name in LONG]
    return 0 if all(grown) and _cost(rounds) <= MOST_COST else 1


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _quickest(work: Callable[[], object], rounds: int) -> float:
    """Return the seconds of CPU that the quickest of *rounds* takes."""
    times: list[float] = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def _grows(name: str, rounds: int) -> float:
    """Return how many times as long twice the argument takes."""
    reader = Reader(*answer_formats(name), signatures=(TOOL,))

    def read(megabytes: int) -> Callable[[], object]:
        text = LONG[name] + "word " * (megabytes * 200_000)
        chunks = [[Cut(text[at : at + PIECE])] for at in range(0, len(text), PIECE)]
        return lambda: reader.read(chunks)

    short, long = (_quickest(read(size), rounds) for size in (MEGABYTES, 2 * MEGABYTES))
    _tell(f"{name:16} {short:6.2f} s {long:6.2f} s {long / short:5.2f} times")
    return long / short


def _cost(rounds: int) -> float:
    """Return how many times as much a token costs with tools offered and a parser active."""
    vocabulary = Vocabulary.from_dir(DEMO_MODEL)
    plain = [
        token_id
        for token_id in range(vocabulary.size)
        if vocabulary.decode((token_id,)).strip(" ").isalpha() and token_id not in vocabulary.added
    ]
    usage = Usage()
    chunks = [Chunk((plain[at % len(plain)],), usage) for at in range(TOKENS)]
    tools, _ = answer_formats("qwen")
    tokens = frozenset(vocabulary.added.values())

    def read(*, parsed: bool) -> None:
        pipeline = Pipeline(
            vocabulary.decoder(),
            tool_format=tools if parsed else None,
            reasoning_format=reasoning_format("qwen3") if parsed else None,
            tools=(TOOL,) if parsed else (),
            tokens=tokens,
            new_call_id=lambda: "call_0",
        )
        for chunk in chunks:
            pipeline.feed(chunk)

    alone = _quickest(lambda: read(parsed=False), rounds) / TOKENS * 1e6
    parsed = _quickest(lambda: read(parsed=True), rounds) / TOKENS * 1e6
    _tell(f"plain text       {alone:6.2f} µs {parsed:6.2f} µs {parsed / alone:5.2f} times a token")
    return parsed / alone


if __name__ == "__main__":
    sys.exit(main())
