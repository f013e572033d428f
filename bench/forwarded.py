# ruff: noqa: S603, T201 -- starts the run's own processes; a report prints
"""Measure what HTTP workers cost: this router and the peer gateway, side by side, interleaved.

    bench/forwarded.py [--rounds N] [--no-peer] [--folder DIR] [CASE ...]

Both forward the same requests to one simulated HTTP worker (``native/http_worker.c``) and relay its
streams. Figures are microseconds of CPU (user and system) of the router, a chunk or a request: they
hold on a busy machine. Each case writes ``bench/results/CASE.json``. Needs gcc; what else is needed
is fetched once, as ``bench/compare.py`` does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compare import Case, write
from contestants import Measured, Running, Stage, load, wait_for_chat
from tools import ROOT, Toolbox, reserved_port

if TYPE_CHECKING:
    from collections.abc import Iterator

_MANIFEST = """apiVersion: sglr.dev/v1alpha1
kind: SGLangBackend
metadata: {{name: qwen, namespace: default}}
spec:
  model: {{name: qwen}}
  workers: {{protocol: HTTP, static: {{endpoints: [{{host: 127.0.0.1, port: {port}}}]}}}}
  routing: {{policy: RoundRobin}}
"""

CASES = {
    "forwarded-paced": Case({"first": 130, "gap": 26}, "paced", 400, 200, "cpu_per_piece", 1.0),
    "forwarded-flood": Case({}, "flood", 96, 32, "cpu_per_piece", 1.0),
    "forwarded-request": Case({}, "request-500", 1500, 16, "cpu_per_request", None),
}


class HttpStage(Stage):
    """Starts the same contestants in front of an HTTP worker."""

    @contextmanager
    def http_worker(self, *, first: float = 0, gap: float = 0) -> Iterator[Running]:
        """Run a worker whose first chunk takes *first* milliseconds, and each other one *gap*."""
        program = self._tools.folder / "http_worker"
        source = ROOT / "bench" / "native" / "http_worker.c"
        subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-o", program, source], check=True)  # noqa: S607  # found on PATH
        with self._running("worker", [program, 0, "--first", first, "--gap", gap]) as process:
            assert process.stdout is not None  # noqa: S101  # it is a pipe
            yield Running("worker", int(process.stdout.readline()), process)

    @contextmanager
    def http_router(self, worker: Running) -> Iterator[Running]:
        """Run this router, as it is installed, in front of *worker*."""
        manifest = self._tools.folder / f"backend-{worker.port}.yaml"
        manifest.write_text(_MANIFEST.format(port=worker.port))
        sglr = os.environ.get("SGLR", str(ROOT / ".venv" / "bin" / "sglr"))
        command = [*sglr.split(), "serve", "-f", manifest, "--port", "0"]
        with self._running("sglr", command) as process:
            assert process.stdout is not None  # noqa: S101  # it is a pipe
            address = json.loads(process.stdout.readline())["address"]
            running = Running("sglr", int(address.rpartition(":")[2]), process)
            wait_for_chat(running)
            yield running

    @contextmanager
    def http_peer(self, worker: Running) -> Iterator[Running]:
        """Run the peer gateway in front of *worker*."""
        port = reserved_port()
        command = [
            *(self._tools.peer, "launch", "--host", "127.0.0.1", "--port", port),
            *("--worker-urls", f"http://127.0.0.1:{worker.port}", "--policy", "round_robin"),
            *("--prometheus-port", reserved_port()),
        ]
        with self._running("smg", command) as process:
            running = Running("smg", port, process)
            wait_for_chat(running)
            yield running


def compared(stage: HttpStage, tools: Toolbox, case: Case, rounds: int, *, peer: bool) -> Any:
    """Return the medians of *case* for each contestant, and the ratio of what is compared."""
    with ExitStack() as stack:
        worker = stack.enter_context(stage.http_worker(**case.worker))
        routers = [stack.enter_context(stage.http_peer(worker))] if peer else []
        routers.append(stack.enter_context(stage.http_router(worker)))
        found: dict[str, list[Measured]] = {router.name: [] for router in routers}
        for _ in range(rounds):
            for router in routers:
                measured = load(tools, router, case.bodies, case.requests, case.concurrency)
                found[router.name].append(measured)
    medians = {
        name: {
            case.figure: statistics.median(getattr(run, case.figure) for run in runs),
            "memory_mb": statistics.median(run.memory_mb for run in runs),
            "failed": sum(run.totals["failed"] for run in runs),
        }
        for name, runs in found.items()
    }
    result: dict[str, Any] = {"figure": case.figure, "bar": case.bar, "contestants": medians}
    if peer:
        result["ratio"] = medians["sglr"][case.figure] / medians["smg"][case.figure]
    return result


def main() -> None:
    """Run the cases that are asked for."""
    parser = argparse.ArgumentParser(description="Measure HTTP workers behind both routers.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="(all)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--no-peer", action="store_true", help="measure this router alone")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "bench", help="for tools")
    given = parser.parse_args()
    unknown = set(given.cases) - CASES.keys()
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    tools = Toolbox(given.folder.resolve())
    tools.make(with_peer=not given.no_peer)
    stage = HttpStage(tools)
    for name in given.cases or CASES:
        result = compared(stage, tools, CASES[name], given.rounds, peer=not given.no_peer)
        write(name, result, given.rounds)
        print(name, result, flush=True)


if __name__ == "__main__":
    main()
