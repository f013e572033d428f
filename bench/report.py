"""Writes the tables of ``docs/performance.md`` from ``bench/results/*.json``.

    bench/report.py [--check]

What stands between the two marks of that page is replaced; ``--check`` only says whether it would
change.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

_COMPARED = {
    "token-paced": ("CPU per token, 200 streams at 26 ms a token", "cpu_per_piece", "µs"),
    "token-flood": ("CPU per token, 32 streams as fast as they go", "cpu_per_piece", "µs"),
    "request-500": ("CPU per request, 500-token prompt, streamed", "cpu_per_request", "µs"),
    "request-500-plain": ("the same, not streamed", "cpu_per_request", "µs"),
    "request-4k": ("CPU per request, 4,000-token prompt", "cpu_per_request", "µs"),
    "burst": ("500 prompts at once: TTFT mean", "ttft", "ms"),
    "forwarded-paced": ("HTTP worker: CPU per chunk, 200 streams at 26 ms", "cpu_per_piece", "µs"),
    "forwarded-flood": ("HTTP worker: CPU per chunk, as fast as they go", "cpu_per_piece", "µs"),
    "forwarded-request": ("HTTP worker: CPU per request", "cpu_per_request", "µs"),
}


def markdown(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what *results*, by case, come to; cases that were not run are left out."""
    parts: list[str] = []
    compared = [row for name in _COMPARED if name in results for row in _compared(name, results)]
    if compared:
        parts += [
            "### Beside the peer gateway",
            _table(
                ("", "case", "sglr", "smg 1.13.0", "ratio", "bar"),
                compared,
            ),
        ]
    if "seed" in results:
        rows = results["seed"]["table"]
        parts += [
            "### The seed workload",
            _said(results["seed"], "seed"),
            _table(rows[0], rows[1:]),
            "![Distributions of the seed workload](../bench/results/seed.svg)",
        ]
    others = [
        row for name, tell in _OTHERS.items() if name in results for row in tell(results[name])
    ]
    if others:
        parts += ["### Limits", _table(("case", "figure", "bar"), others)]
    if results:
        parts += [_measured_on(results)]
    return "\n\n".join(parts)


def _compared(name: str, results: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    title, figure, unit = _COMPARED[name]
    found = results[name]
    ours = found["contestants"]["sglr"]
    peer = found["contestants"].get("smg")
    return [
        (
            f"`{name}`",
            title,
            f"{_number(ours[figure])} {unit}",
            "-" if peer is None else f"{_number(peer[figure])} {unit}",
            f"{found['ratio']:.2f}" if "ratio" in found else "-",
            "-" if found["bar"] is None else f"{found['bar']:.2f}",
        )
    ] + ([_memory(found)] if name == "token-paced" and peer is not None else [])


def _number(figure: float) -> str:
    """Return *figure* with three digits, or as many as it has before the point."""
    return f"{figure:.0f}" if figure >= 100 else f"{figure:.3g}"  # noqa: PLR2004  # three digits


def _memory(found: Mapping[str, Any]) -> tuple[str, ...]:
    ours, peer = (found["contestants"][name]["memory_mb"] for name in ("sglr", "smg"))
    return ("", "memory after it", f"{ours:.0f} MB", f"{peer:.0f} MB", f"{ours / peer:.2f}", "1.00")


def _startup(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            f"`startup`: to the first answered chat, {name}",
            f"{seconds:.2f} s, {found['cpu_seconds'][name]:.2f} s of CPU",
            f"{found['bar_seconds']} s" if name == "sglr" else "-",
        )
        for name, seconds in found["seconds"].items()
    ]


def _linearity(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    cost = found["cpu_per_answer"]
    return [
        (
            "`linearity`: CPU of an answer of 2,000 tokens over one of 1,000",
            f"{found['ratio']:.2f} ({cost['2000'] / 1000:.2f} over {cost['1000'] / 1000:.2f} ms)",
            f"{found['bar']:.2f}",
        )
    ]


def _tools(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            f"`tools`: CPU per token with tools offered over without, {pace}",
            f"{ratio:.2f}",
            f"{found['bar']:.2f}",
        )
        for pace, ratio in found["ratios"].items()
    ]


def _unread(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    name = f"`unread`: {found['clients']} clients that never read"
    return [
        (f"{name}: memory of the router", f"{found['kib_per_stream']:.0f} KiB a stream", "-"),
        (
            f"{name}: streams whose worker waits",
            str(found["streams_paused"]),
            str(found["clients"]),
        ),
        (f"{name}: tokens sent while paused", str(found["tokens_while_paused"]), "0"),
    ]


_OTHERS = {"startup": _startup, "linearity": _linearity, "tools": _tools, "unread": _unread}


def _said(found: Mapping[str, Any], name: str) -> str:
    return f"`make bench ARGS={name}`: the middle one of {found['rounds']} interleaved rounds."


def _measured_on(results: Mapping[str, Mapping[str, Any]]) -> str:
    found = [results[name] for name in sorted(results)]
    rounds = sorted({each["rounds"] for each in found})
    loads = sorted(each["load_average"] for each in found)
    return (
        f"Medians of {' or '.join(map(str, rounds))} interleaved rounds, {found[0]['machine']}, Python "
        f"{found[0]['python']}; the machine's load average was {loads[0]} to {loads[-1]}."
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def replaced(page: str, text: str) -> str:
    """Return *page* with *text* between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main() -> int:
    """Write the page, or look."""
    parser = argparse.ArgumentParser(description="Write docs/performance.md from bench/results.")
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 if it would")
    given = parser.parse_args()
    results = {place.stem: json.loads(place.read_text()) for place in RESULTS.glob("*.json")}
    page = PAGE.read_text()
    wanted = replaced(page, markdown(results))
    if not given.check:
        PAGE.write_text(wanted)
    return int(given.check and wanted != page)


if __name__ == "__main__":
    sys.exit(main())
