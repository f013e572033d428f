"""Simulated workers for tests: in this process, and in one of their own. Every wait has a limit."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sglr_dataplane
from sglr_dataplane.sim.script import Script
from sglr_dataplane.sim.settings import WorkerSettings
from sglr_dataplane.sim.worker import SimWorker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

DEMO_TOKENIZER = Path(sglr_dataplane.__file__).parent / "demo_model"
START_LIMIT = 15.0
"""Seconds a worker process may take to listen on a busy machine."""
EXIT_LIMIT = 10.0
"""Seconds it may take to end."""

_PROGRAM = (
    "import argparse, sys\n"
    "from sglr_dataplane.sim.command import add_arguments, run\n"
    "parser = argparse.ArgumentParser()\n"
    "add_arguments(parser)\n"
    "sys.exit(run(parser.parse_args()))\n"
)


@asynccontextmanager
async def sim_worker(
    script: Script | None = None,
    *,
    die: Callable[[str], None] | None = None,
    stall: float = 30.0,
    **settings: Any,
) -> AsyncIterator[SimWorker]:
    """Return a worker in this process, with the demo tokenizer unless *settings* say otherwise.

    Args:
        script: What it plays.
        die: As SimWorker's; None: it ends alone, as a killed process would.
        stall: As SimWorker's.
        settings: Fields of WorkerSettings.
    """
    chosen = replace(WorkerSettings(tokenizer=DEMO_TOKENIZER), **settings)
    async with SimWorker(chosen, script, die=die, stall=stall) as worker:
        yield worker


@dataclass
class SimProcess:
    """A worker process; started by sim_process, which ends it."""

    arguments: Sequence[str]
    journal: Path
    port: int = 0
    process: asyncio.subprocess.Process | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """``host:port`` of the running worker; the same after a restart."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it and wait until it listens, on the port it had before if it had one."""
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _PROGRAM,
            *("--port", str(self.port), "--journal", str(self.journal)),
            *self.arguments,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        async with asyncio.timeout(START_LIMIT):
            line = await self.process.stdout.readline()
        assert line, f"the worker ended with {await self.wait()} before it was ready"
        self.port = int(json.loads(line)["address"].rpartition(":")[2])

    async def wait(self) -> int:
        """Return its exit code, minus the signal's number when one ended it."""
        assert self.process is not None
        async with asyncio.timeout(EXIT_LIMIT):
            return await self.process.wait()

    async def kill(self) -> None:
        """End it with SIGKILL and wait for that."""
        await self._end(signal.SIGKILL)

    async def terminate(self) -> None:
        """End it with SIGTERM and wait: as long as its streams run, 5 s at most."""
        await self._end(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send *number* and do not wait."""
        assert self.process is not None
        self.process.send_signal(number)

    def events(self) -> list[dict[str, Any]]:
        """Return its journal so far, of all its lives."""
        lines = self.journal.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    async def _end(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)
            await self.wait()


@asynccontextmanager
async def sim_process(
    directory: Path, *arguments: str, tokenizer: Path | None = DEMO_TOKENIZER
) -> AsyncIterator[SimProcess]:
    """Return a worker in a process of its own, listening; killed at the end.

    Args:
        directory: Takes the journal; a test's ``tmp_path``.
        arguments: More of ``sglr sim-worker``'s, such as ``"--script", str(path)``.
        tokenizer: The model; None: ids only.
    """
    model = () if tokenizer is None else ("--tokenizer", str(tokenizer))
    worker = SimProcess((*model, *arguments), directory / "journal.jsonl")
    try:
        await worker.start()
        yield worker
    finally:
        await worker.kill()
