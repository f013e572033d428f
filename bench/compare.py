# ruff: noqa: T201 -- a report prints
"""Measure this router and the peer gateway side by side, interleaved, against one simulated worker.

    bench/compare.py [--rounds N] [--no-peer] [--folder DIR] [CASE ...]

Cases: see ``CASES``; without any, all. Each writes ``bench/results/CASE.json``; the seed case an SVG
too. Figures that hold on a busy machine are microseconds of CPU (user and system, all processes and
threads of the router); what the clock says is for reading side by side. Needs gcc and
libnghttp2-dev; fetches a tokenizer and the peer (PyPI) once.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import direct
import limits
from contestants import Measured, Running, Stage, load
from tools import PEER, ROOT, Toolbox

from sglr_dataplane.cli.bench_figures import Figures, Record, figures, rendered, table
from sglr_dataplane.cli.bench_plot import panels, svg
from sglr_dataplane.prompt.encoder import ReferenceEncoder

RESULTS = ROOT / "bench" / "results"
FLOOD: dict[str, Any] = {}
TICKING = {"first": 130, "gap": 26, "together": True}
ALONE = {"first": 130, "gap": 26}


@dataclass(frozen=True)
class Case:
    """A load that both are put under in turn."""

    worker: Mapping[str, Any]
    bodies: str
    requests: int
    concurrency: int
    figure: str
    """What is compared: ``cpu_per_piece``, ``cpu_per_request`` or ``ttft``."""
    bar: float | None
    """Highest ratio ours / peer that is good enough."""


CASES = {
    "token-flood": Case(FLOOD, "flood", 96, 32, "cpu_per_piece", 0.65),
    "token-paced": Case(TICKING, "paced", 400, 200, "cpu_per_piece", 0.70),
    "request-500": Case(FLOOD, "request-500", 1500, 16, "cpu_per_request", 0.75),
    "request-500-plain": Case(FLOOD, "request-500-plain", 1500, 16, "cpu_per_request", 0.75),
    "request-4k": Case(FLOOD, "request-4k", 300, 8, "cpu_per_request", 0.75),
    "burst": Case(TICKING, "burst", 500, 500, "ttft", None),
}
SEED = "seed"


class Run:
    """One call of this program."""

    def __init__(self, tools: Toolbox, rounds: int, *, with_peer: bool) -> None:
        """Measure each case *rounds* times."""
        self.tools = tools
        self.rounds = rounds
        self.with_peer = with_peer
        self.stage = Stage(tools)

    def routers(self, stack: ExitStack, worker: Running) -> list[Running]:
        """Start the contestants in front of *worker*."""
        found = [stack.enter_context(self.stage.peer(worker))] if self.with_peer else []
        return [*found, stack.enter_context(self.stage.router(worker))]

    def compared(self, case: Case) -> dict[str, Any]:
        """Return the medians of *case* for each contestant, and the ratio of what is compared."""
        with ExitStack() as stack:
            worker = stack.enter_context(self.stage.worker(**case.worker))
            routers = self.routers(stack, worker)
            found: dict[str, list[Measured]] = {router.name: [] for router in routers}
            for _ in range(self.rounds):
                for router in routers:
                    measured = load(
                        self.tools, router, case.bodies, case.requests, case.concurrency
                    )
                    found[router.name].append(measured)
        medians = {name: _medians(runs) for name, runs in found.items()}
        result = {"figure": case.figure, "bar": case.bar, "contestants": medians}
        if "smg" in medians:
            result["ratio"] = medians["sglr"][case.figure] / medians["smg"][case.figure]
        return result

    def seed(self) -> dict[str, Any]:
        """Return the seed workload's table: straight to the worker, the peer, this router."""
        encoder = ReferenceEncoder((self.tools.model / "tokenizer.json").read_bytes())
        runs: dict[str, list[list[Record]]] = {}
        memory: dict[str, list[float]] = {}
        with ExitStack() as stack:
            worker = stack.enter_context(self.stage.worker(**ALONE))
            routers = self.routers(stack, worker)
            for router in routers:
                load(self.tools, router, SEED, 5, 1)
            direct.measure(self.tools, worker.port, 5, 5, 20)
            for _ in range(self.rounds):
                straight = direct.measure(self.tools, worker.port, 100, 20, 20)
                runs.setdefault("direct", []).append(straight)
                for router in routers:
                    measured = load(self.tools, router, SEED, 100, 20, 20)
                    runs.setdefault(router.name, []).append(measured.records)
                    memory.setdefault(router.name, []).append(measured.memory_mb)
        # The round whose median TTFT is in the middle speaks for all: one table, not a mixture.
        chosen = {name: _middle(rounds) for name, rounds in runs.items()}
        told = {
            name: figures(records, lambda text: len(encoder.encode(text)))
            for name, records in chosen.items()
        }
        RESULTS.mkdir(exist_ok=True)
        title = "Seed workload: 100 requests, 20 a second, 20 at once, 505 tokens in, 259 out"
        (RESULTS / "seed.svg").write_text(svg(title, panels(chosen)))
        rows = table(list(told.items()))
        print(rendered(rows))
        return {
            "table": rows,
            "ttft_medians": {n: [_ttft(r) for r in rounds] for n, rounds in runs.items()},
            "memory_mb": {n: statistics.median(found) for n, found in memory.items()},
            "figures": {n: _plain(found) for n, found in told.items()},
        }


def _ttft(records: Sequence[Record]) -> float:
    return figures(records).ttft.median


def _middle(rounds: Sequence[list[Record]]) -> list[Record]:
    return sorted(rounds, key=_ttft)[len(rounds) // 2]


def _plain(found: Figures) -> dict[str, Any]:
    return {name: getattr(found, name) for name in ("completed", "failed", "output_tokens")} | {
        "retokenized": found.retokenized,
        "ttft_median": found.ttft.median,
    }


def _medians(runs: Sequence[Measured]) -> dict[str, float]:
    told = [figures(run.records) for run in runs]
    return {
        "cpu_per_piece": statistics.median(run.cpu_per_piece for run in runs),
        "cpu_per_request": statistics.median(run.cpu_per_request for run in runs),
        "memory_mb": statistics.median(run.memory_mb for run in runs),
        "ttft": statistics.median(each.ttft.mean for each in told),
        "ttft_p50": statistics.median(each.ttft.median for each in told),
        "itl_p99": statistics.median(each.itl.p99 for each in told),
        "failed": sum(run.totals["failed"] for run in runs),
    }


def write(name: str, result: Mapping[str, Any], rounds: int) -> None:
    """Write *result* of the case *name*, with what it was measured on."""
    RESULTS.mkdir(exist_ok=True)
    facts = {
        "case": name,
        "rounds": rounds,
        "peer": PEER,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "load_average": round(os.getloadavg()[0], 1),
    }
    text = json.dumps({**facts, **result}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")


def _show(name: str, result: Mapping[str, Any]) -> None:
    for contestant, medians in result.get("contestants", {}).items():
        told = "  ".join(f"{figure} {value:.4g}" for figure, value in medians.items())
        print(f"{name:18} {contestant:5} {told}")
    rest = {k: v for k, v in result.items() if k not in {"contestants", "table", "figures"}}
    print(f"{name:18} {json.dumps(rest)}", flush=True)


def main() -> None:
    """Run the cases that are asked for."""
    parser = argparse.ArgumentParser(description="Measure this router beside the peer gateway.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="(all)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--no-peer", action="store_true", help="measure this router alone")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "bench", help="for tools")
    given = parser.parse_args()
    cases: dict[str, Callable[[Run], dict[str, Any]]] = {
        name: (lambda run, case=case: run.compared(case)) for name, case in CASES.items()
    }
    cases |= {SEED: Run.seed} | limits.CASES
    unknown = set(given.cases) - cases.keys()
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(cases)}")
    tools = Toolbox(given.folder.resolve())
    tools.make(with_peer=not given.no_peer)
    run = Run(tools, given.rounds, with_peer=not given.no_peer)
    for name in given.cases or cases:
        result = cases[name](run)
        write(name, result, given.rounds)
        _show(name, result)


if __name__ == "__main__":
    main()
