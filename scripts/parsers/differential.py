"""Our reading of every tool vector, and of mutations of them, beside SGLang's.

``python -m parsers.differential --oracle PYTHON``, with ``PYTHONPATH=scripts`` and an interpreter
that has SGLang's parsers. Prints the vectors that are read differently, then the counts; ends with 1
when a vector is not read as it expects by us.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from sglr_dataplane.cli.vectors import Vector, canonical, differences, load, read
from sglr_dataplane.output.replay import one

_TESTS = Path(__file__).parents[2] / "tests" / "dataplane" / "output" / "vectors"
_SHORTEST = 10
_SCRAPS = ("<", ">", "{", "}", '"', "\\", "\n", ",", "]", "x", "é")


@dataclass(frozen=True)
class Text:
    """A vector, or a mutation of one."""

    vector: Vector
    mutated: bool

    def asked(self) -> str:
        """Return the line for the oracle."""
        vector = self.vector
        fields = {"parser": vector.parser, "text": vector.text, "tools": list(vector.tools or ())}
        return json.dumps(fields)


def texts(mutations: int) -> Iterator[Text]:
    """Yield the tool vectors without a forced choice, and *mutations* of each."""
    default = tuple(json.loads((_TESTS / "tools.json").read_bytes()))
    for path in sorted(_TESTS.rglob("*.jsonl")):
        for vector in load(path, default):
            if vector.kind != "tool" or vector.tool_choice is not None:
                continue
            yield Text(vector, mutated=False)
            for seed in range(mutations):
                text = _mutated(vector.text, f"{vector.id}/{seed}")
                yield Text(msgspec.structs.replace(vector, text=text), mutated=True)


def _mutated(text: str, seed: str) -> str:
    """Return *text* with a few characters deleted or inserted, chosen by *seed*."""
    generator = random.Random(seed)  # noqa: S311  # reproducible
    for _ in range(generator.randint(1, 3)):
        at = generator.randrange(len(text) + 1)
        if generator.random() < _DELETES and len(text) > _SHORTEST:
            text = text[:at] + text[at + generator.randint(1, 3) :]
        else:
            text = text[:at] + generator.choice(_SCRAPS) + text[at:]
    return text


_DELETES = 0.5
"""How many mutations delete; the others insert."""


def _calls(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return calls as they are compared: arguments that are JSON by what they say."""
    return [(name, _said(arguments)) for name, arguments in found]


def _said(arguments: str) -> str:
    try:
        return canonical(json.loads(arguments))
    except ValueError:
        return arguments


def _intended(vector: Vector) -> list[tuple[str, str]]:
    """Return the calls that *vector* holds."""
    calls = [(call["name"], call["arguments"]) for call in vector.expect.tool_calls]
    return [(n, a if isinstance(a, str) else canonical(a)) for n, a in calls]


def _verdict(text: Text, told: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Return whether both read alike, and whether we and SGLang read the calls that are meant."""
    ours = read(text.vector, one)
    our_calls = _calls([(call.name, call.arguments) for call in ours.tool_calls])
    their_calls = _calls([(name, arguments) for name, arguments in told.get("calls", ())])
    contents = (ours.content or "").strip(), (told.get("content") or "").strip()
    alike = "error" not in told and our_calls == their_calls and contents[0] == contents[1]
    meant = _intended(text.vector)
    return alike, our_calls == meant, their_calls == meant


def main() -> int:
    """Ask the oracle about every text; print what differs, then the counts."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--oracle", required=True, help="a Python that has SGLang's parsers")
    arguments.add_argument("--mutations", type=int, default=4, help="of each vector")
    given = arguments.parse_args()
    known = list(texts(given.mutations))
    script = str(Path(__file__).with_name("sglang_oracle.py"))
    answers = subprocess.run(
        [given.oracle, script],
        input="\n".join(text.asked() for text in known),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.splitlines()
    wrong = 0
    counts = {False: [0, 0, 0, 0], True: [0, 0, 0, 0]}
    for text, line in zip(known, answers, strict=True):
        told = json.loads(line)
        if told is None:
            continue
        verdict = _verdict(text, told)
        for at, holds in enumerate((True, *verdict)):
            counts[text.mutated][at] += holds
        if not text.mutated:
            wrong += bool(differences(text.vector, read(text.vector, one)))
            if not verdict[0]:
                print(text.vector.id, json.dumps(told, ensure_ascii=False)[:160])
    for mutated, (total, alike, ours, theirs) in counts.items():
        print(
            f"{total} {'mutations' if mutated else 'vectors'}: {alike} read alike;"
            f" the calls that are meant: {ours} by us, {theirs} by SGLang"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
