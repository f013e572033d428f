# ruff: noqa: S603, S310 -- starts the run's own processes, asks them on loopback
"""The processes of a load run: workers, this router, the peer; started, asked, measured, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from tools import ROOT, Toolbox, reserved_port

from sglr_dataplane.cli.bench_figures import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

START_SECONDS = 90.0
_MANIFEST = """apiVersion: sglr.dev/v1alpha1
kind: SGLangBackend
metadata: {{name: qwen, namespace: default}}
spec:
  model: {{name: qwen}}
  tokenizer: {{path: {model}}}
  workers: {{static: {{endpoints: [{{host: 127.0.0.1, port: {port}}}]}}}}
  routing: {{policy: RoundRobin}}
"""


@dataclass
class Running:
    """A process of the run."""

    name: str
    port: int
    process: subprocess.Popen[bytes]

    def pids(self) -> list[int]:
        """Return its process and all that it started."""
        found = [self.process.pid]
        for pid in found:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                found += [int(child) for child in (thread / "children").read_text().split()]
        return found

    def cpu_seconds(self) -> float:
        """Return the CPU time, user and system, of all of them so far."""
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2] for pid in self.pids()]
        ticks = sum(int(tick) for stat in stats for tick in stat.split()[11:13])
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory_kb(self) -> int:
        """Return the memory of all of them that is in use now."""
        lines = [
            line
            for pid in self.pids()
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        ]
        return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


class Stage:
    """Starts what a case needs, and ends it, whatever happens."""

    def __init__(self, tools: Toolbox) -> None:
        """Start nothing yet; logs go beside the tools."""
        self._tools = tools

    @contextmanager
    def worker(
        self, *, first: float = 0, gap: float = 0, together: bool = False
    ) -> Iterator[Running]:
        """Run a worker whose first token takes *first* milliseconds, and each other one *gap*."""
        command = [
            *(self._tools.worker, "0", "--ids", self._tools.folder / "ids.txt"),
            *("--replies", self._tools.folder / "replies"),
            *("--first", first, "--gap", gap, *(["--together"] if together else [])),
        ]
        with self._running("worker", command) as process:
            assert process.stdout is not None  # noqa: S101  # it is a pipe
            yield Running("worker", int(process.stdout.readline()), process)

    @contextmanager
    def router(self, worker: Running, *arguments: str) -> Iterator[Running]:
        """Run this router, as it is installed, in front of *worker*."""
        manifest = self._tools.folder / f"backend-{worker.port}.yaml"
        manifest.write_text(_MANIFEST.format(model=self._tools.model, port=worker.port))
        sglr = os.environ.get("SGLR", str(ROOT / ".venv" / "bin" / "sglr"))
        command = [*sglr.split(), "serve", "-f", manifest, "--port", "0", *arguments]
        with self._running("sglr", command) as process:
            assert process.stdout is not None  # noqa: S101  # it is a pipe
            line = process.stdout.readline()
            if not line:
                raise SystemExit((self._tools.folder / "sglr.log").read_text()[-2000:])
            address = json.loads(line)["address"]
            running = Running("sglr", int(address.rpartition(":")[2]), process)
            wait_for_chat(running)
            yield running

    @contextmanager
    def peer(self, worker: Running) -> Iterator[Running]:
        """Run the peer gateway in front of *worker*."""
        port, other = reserved_port(), reserved_port()
        command = [
            *(self._tools.peer, "launch", "--host", "127.0.0.1", "--port", port),
            *("--worker-urls", f"grpc://127.0.0.1:{worker.port}"),
            *("--model-path", self._tools.model, "--policy", "round_robin"),
            *("--prometheus-port", other),
        ]
        with self._running("smg", command) as process:
            running = Running("smg", port, process)
            wait_for_chat(running)
            yield running

    @contextmanager
    def _running(self, name: str, command: Sequence[object]) -> Iterator[subprocess.Popen[bytes]]:
        with (self._tools.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                # The peer logs to standard output; what we start says its address there.
                stdout=log if name == "smg" else subprocess.PIPE,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


@dataclass(frozen=True)
class Measured:
    """One run of the load generator."""

    totals: dict[str, Any]
    records: list[Record]

    @property
    def cpu_per_piece(self) -> float:
        """CPU microseconds of the router for each piece of content, requests included."""
        return float(self.totals["cpu_us"]) / max(int(self.totals["pieces"]), 1)

    @property
    def cpu_per_request(self) -> float:
        """CPU microseconds of the router for each request."""
        return float(self.totals["cpu_us"]) / max(int(self.totals["done"]), 1)

    @property
    def memory_mb(self) -> float:
        """Memory of the router at the end."""
        return float(self.totals["memory_kb"]) / 1024


def load(
    tools: Toolbox, router: Running, bodies: str, requests: int, concurrency: int, rate: float = 0
) -> Measured:
    """Put a load on *router*."""
    place = tools.folder / f"records-{os.getpid()}.jsonl"
    command = [
        *(tools.load, router.port, tools.bodies(bodies), requests, concurrency, rate),
        *("--pids", ",".join(map(str, router.pids())), "--records", place, "--texts"),
    ]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    if not done.stdout:
        raise SystemExit(f"The load generator broke:\n{done.stderr}")
    records = [msgspec.json.decode(line, type=Record) for line in place.read_bytes().splitlines()]
    place.unlink()
    return Measured(json.loads(done.stdout), records)


def wait_for_chat(router: Running) -> float:
    """Return the seconds until *router* has answered a chat."""
    body = {"model": "qwen", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    request = urllib.request.Request(
        f"http://127.0.0.1:{router.port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    begin, last = time.monotonic(), ""
    while time.monotonic() - begin < START_SECONDS:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                if b'"choices"' in answer.read():
                    return time.monotonic() - begin
        except urllib.error.HTTPError as refusal:
            last = refusal.read().decode(errors="replace")
            time.sleep(0.02)
        except OSError as failure:
            last = str(failure)
            time.sleep(0.02)
        if router.process.poll() is not None:
            break
    raise SystemExit(f"{router.name} answers no chat, its log is beside the tools: {last}")


def asked(worker: Running) -> dict[str, int]:
    """Return what *worker* has done so far."""
    worker.process.send_signal(signal.SIGUSR1)
    assert worker.process.stdout is not None  # noqa: S101  # it is a pipe
    said: dict[str, int] = json.loads(worker.process.stdout.readline())
    return said
