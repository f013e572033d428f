"""Compares the router's prompts with SGLang's, token by token: every shape of every tokenizer.

Makes an environment of its own in ``.cache/parity`` at the first run. Exits with 1 when anything
differs that no decision explains.

Usage: ``PYTHONPATH=scripts python -m parity.compare [--only NAME...] [--record]``
``--record`` writes what SGLang made into ``tests/dataplane/prompt/parity.json``, which the test
suite holds the router against without that environment.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.ours import Ours, fingerprint, of_router, recipe_for, template_of
from parity.shapes import SHAPES

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
TOKENIZERS = ROOT / ".cache" / "tokenizers"
VERDICTS = ROOT / ".cache" / "verdicts"
RECORD = ROOT / "tests" / "dataplane" / "prompt" / "parity.json"
ORACLE_SECONDS = 300

Json = dict[str, Any]

MODES = ("AsTokens", "AsText")
"""Both ways to take control tokens that people type; SGLang knows only the first."""


@dataclass(frozen=True)
class Decision:
    """A difference that is meant."""

    name: str
    reason: str
    covers: Callable[[str, str, Ours], bool]
    """Of a shape, of who says otherwise, and of our answer."""


DECISIONS = (
    Decision(
        "tools that no template shows",
        "The model would never hear of them: 400 instead of an answer that ignores them.",
        lambda _shape, _who, ours: "does not show tools to the model" in ours.refusal,
    ),
    Decision(
        "the assistant's last message",
        "SGLang hands it on as the user's, without its calls, unless it is to be continued. It "
        "stays the assistant's here, as in transformers.",
        lambda shape, who, _ours: who == "sglang" and shape == "assistant last",
    ),
    Decision(
        "parts to be continued",
        "SGLang ends the message and begins another where a template takes parts, although it was "
        "asked to continue. It is continued here.",
        lambda shape, who, _ours: who == "sglang" and shape == "continued in parts",
    ),
)
_TYPED = Decision(
    "typed control tokens",
    "The text has a control token of this model: with controlTokens AsText it stays text.",
    lambda _shape, _who, _ours: True,
)


def main() -> int:
    """Compare; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="tokenizers; default: all there")
    parser.add_argument("--record", action="store_true", help="write the test suite's expectations")
    asked = parser.parse_args()
    python = environment()
    there = sorted(path.name for path in TOKENIZERS.iterdir() if (path / "tokenizer.json").exists())
    recorded: Json = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    failures = 0
    for name in asked.only or there:
        recorded[name], differences = asyncio.run(compared(python, name))
        failures += len(differences)
        for line in differences:
            print(f"  {line}")
    if asked.record:
        RECORD.write_text(json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    print(f"{failures} differences that no decision explains")
    return 1 if failures else 0


def environment() -> Path:
    """Return the Python of the oracle's environment, which is made when it is not there."""
    wanted = (HERE / "requirements.txt").read_bytes()
    home = ROOT / ".cache" / "parity" / hashlib.sha256(wanted).hexdigest()[:12]
    python = home / "bin" / "python"
    done = home / "complete"
    if not done.exists():
        venv.create(home, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        lines = [line for line in wanted.decode().splitlines() if not line.startswith("#")]
        # These two declare torch, by way of xgrammar, and OpenCV; nothing here reaches either.
        bare = [line for line in lines if line.startswith(("llm-router-utils", "mistral-common"))]
        subprocess.run([*pip, *(line for line in lines if line not in bare)], check=True)
        subprocess.run([*pip, "--no-deps", *bare], check=True)
        done.touch()
    return python


async def compared(python: Path, name: str) -> tuple[Json, list[str]]:
    """Return the fingerprints that SGLang agrees with, and a line for each difference."""
    directory = TOKENIZERS / name
    theirs: dict[str, Json] = {}
    record: Json = {}
    lines: list[str] = []
    for mode in MODES:
        recipe = recipe_for(directory, VERDICTS, mode)
        ours = {shape: await of_router(recipe, body) for shape, body in SHAPES.items()}
        if not theirs:
            answers = _asked(python, directory, list(ours.values()))
            theirs = dict(zip(SHAPES, answers, strict=True))
        counts: Counter[str] = Counter()
        for shape, mine in ours.items():
            for who, answer in theirs[shape].items():
                verdict = judged(mine, answer)
                if (mode, who) == ("AsTokens", "sglang") and not verdict.startswith("DIFFERS"):
                    record[shape] = fingerprint(mine.ids)
                if verdict.startswith("DIFFERS"):
                    typed = mode == "AsText" and recipe.tokenizer.controls.is_in(
                        json.dumps(SHAPES[shape], ensure_ascii=False)
                    )
                    decision = _decision(shape, who, mine) or (_TYPED if typed else None)
                    if decision is None:
                        lines.append(f"{name}, {mode}, {shape}, {who}: {verdict}")
                    else:
                        verdict = f"decided ({decision.name})"
                counts[f"{who} {verdict.partition(':')[0]}"] += 1
        told = ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))
        print(f"{name} {mode}: {told}", flush=True)
    return record, lines


def judged(mine: Ours, theirs: Any) -> str:
    """Return ``equal``, ``both refuse``, ``not asked``, or what differs."""
    if theirs is None:
        return "not asked"
    if isinstance(theirs, str):
        if mine.ids is None:
            return "both refuse"
        return f"DIFFERS: it says {theirs[:160]!r}, we give {len(mine.ids)} ids"
    if mine.ids is None:
        return f"DIFFERS: it gives {len(theirs)} ids, we say {mine.refusal[:160]!r}"
    if mine.ids == theirs:
        return "equal"
    at = next((i for i, pair in enumerate(zip(mine.ids, theirs, strict=False)) if pair[0] != pair[1]),
              min(len(mine.ids), len(theirs)))  # fmt: skip
    return f"DIFFERS: at id {at}: {mine.ids[at : at + 8]} instead of {theirs[at : at + 8]}"


def _asked(python: Path, directory: Path, ours: list[Ours]) -> list[Json]:
    asked = [
        {"sglang": body, "prepared": mine.prepared}
        for body, mine in zip(SHAPES.values(), ours, strict=True)
    ]
    template = template_of(directory)
    named = [] if template is None else [str(template)]
    done = subprocess.run(
        [str(python), "-W", "ignore", str(HERE / "oracle.py"), str(directory), *named],
        input=json.dumps(asked).encode(),
        stdout=subprocess.PIPE,
        timeout=ORACLE_SECONDS,
        check=True,
    )
    answers: list[Json] = json.loads(done.stdout)
    return answers


def _decision(shape: str, who: str, mine: Ours) -> Decision | None:
    return next((each for each in DECISIONS if each.covers(shape, who, mine)), None)


if __name__ == "__main__":
    sys.exit(main())
