"""LangChain over a router's streams: what it accumulates, against what the worker wrote.

``python -m parsers.langchain_check --client PYTHON``, with ``PYTHONPATH=scripts:tests`` and an
interpreter that has ``langchain-openai``. Ends with 1 when an answer is not as it was written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from sglr_dataplane.sim.script import Play, Rule, Script
from support.router import manifest, running_router
from support.sim import sim_worker

_SIZES = (1, 3, 7, 0)
"""Tokens a chunk; 0: all at once."""
_SECONDS = 120.0


def _block(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


_CITY = {"city": 'Łódź "x" \\ 🌦 </tool_call>'}
_ANSWERS: tuple[tuple[str, str, list[list[Any]]], ...] = (
    ("Just text, 你好.", "Just text, 你好.", []),
    (_block("now", "{}"), "", [["now", {}]]),
    (
        "<think>\nHm.\n</think>\nBoth.\n"
        + _block("weather", json.dumps(_CITY, ensure_ascii=False))
        + "\n"
        + _block("now", "{}")
        + "\nDone.",
        "\nBoth.\nDone.",
        [["weather", _CITY], ["now", {}]],
    ),
)


async def _accumulated(client: str, text: str) -> list[dict[str, Any]]:
    """Return what LangChain has of *text*, once for each size of chunks."""
    plays = [Rule(play=Play(text=text, chunk_size=size), times=1) for size in _SIZES]
    with tempfile.TemporaryDirectory() as folder:
        async with (
            sim_worker(Script(rules=tuple(plays)), model_name="m") as worker,
            running_router(Path(folder), manifest(worker.address)) as router,
        ):
            script = str(Path(__file__).with_name("langchain_client.py"))
            process = await asyncio.create_subprocess_exec(
                client,
                script,
                f"{router.url}/v1",
                str(len(_SIZES)),
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await asyncio.wait_for(process.communicate(), _SECONDS)
    return [json.loads(line) for line in output.splitlines()]


async def check(client: str) -> int:
    """Print what differs, then the counts; return 1 when something does."""
    right = 0
    for text, content, calls in _ANSWERS:
        meant = {"content": content, "calls": calls, "invalid": []}
        for size, got in zip(_SIZES, await _accumulated(client, text), strict=True):
            right += got == meant
            if got != meant:
                print(f"chunks of {size}: expected {meant}, got {got}")
    total = len(_ANSWERS) * len(_SIZES)
    print(f"{right} of {total} streams accumulate to what was written")
    return int(right < total)


def main() -> int:
    """Run the check."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--client", required=True, help="a Python that has langchain-openai")
    return asyncio.run(check(arguments.parse_args().client))


if __name__ == "__main__":
    sys.exit(main())
