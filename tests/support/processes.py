"""``sglr serve`` with several processes, as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from support.router import SECONDS, eventually

_VERDICTS = Path(__file__).parents[2] / ".cache" / "verdicts"


@dataclass
class Served:
    """A router of several processes."""

    process: asyncio.subprocess.Process
    url: str
    manifest: Path
    log: Path

    def pids(self) -> list[int]:
        """Return the processes that serve now."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def supervisor_threads(self) -> int:
        """Return how many threads the supervisor has: with one alone, forking is safe."""
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Open a connection of its own, which one of the processes serves to its end."""
        async with httpx2.AsyncClient(base_url=self.url, timeout=SECONDS) as http:
            yield http

    async def status(self, path: str = "/readyz") -> int:
        """Return the status of a GET on a new connection; 0 when there is no answer."""
        async with self.connection() as http:
            try:
                return (await http.get(path)).status_code
            except httpx2.TransportError:
                return 0

    async def metrics(self) -> dict[str, float]:
        """Return one scrape, on a new connection, by series."""
        async with self.connection() as http:
            lines = (await http.get("/metrics")).text.splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {series: float(number) for series, _, number in pairs}

    def logged(self, message: str) -> list[dict[str, object]]:
        """Return the lines of the log that say *message*."""
        lines = (line for line in self.log.read_text().splitlines() if line.startswith("{"))
        return [line for line in map(json.loads, lines) if line["message"] == message]


@asynccontextmanager
async def serving(
    folder: Path, text: str, *arguments: str, processes: int = 2
) -> AsyncIterator[Served]:
    """Serve the manifest *text* and wait until every process is ready; killed at the end."""
    manifest = folder / "backends.yaml"
    manifest.write_text(text)
    async with starting(folder, "-f", str(manifest), *arguments, processes=processes) as served:
        await eventually(lambda: len(served.logged("worker ready")) >= processes)
        yield served


@asynccontextmanager
async def starting(folder: Path, *arguments: str, processes: int = 2) -> AsyncIterator[Served]:
    """Start a router of *processes* and wait until it listens; killed at the end."""
    log = folder / "router.log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sglr_dataplane", "serve", *arguments),
            *("--port", "0", "--processes", str(processes), "--cache-dir", str(_VERDICTS)),
            *("--drain-settle", "0s"),
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS):
            address = json.loads(await process.stdout.readline())["address"]
        yield Served(process, f"http://{address}", folder / "backends.yaml", log)
    finally:
        await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
    try:
        async with asyncio.timeout(5):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def is_running(pid: int) -> bool:
    """Return whether *pid* is a process that has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def kill(pid: int) -> None:
    """Kill *pid*, which a test started."""
    os.kill(pid, signal.SIGKILL)
