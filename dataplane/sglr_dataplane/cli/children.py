"""Processes that the demo starts: each announces itself in one line and is ended by pid."""

from __future__ import annotations

import argparse
import json
import selectors
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_STOP_SECONDS = 8.0
_LAST_PORT = 65535


class ChildFailedError(Exception):
    """A process of the demo ended, or did not announce itself in time."""


class Child:
    """One ``sglr`` command in a process of its own; its log goes to a file."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        """Start ``sglr`` with *arguments*."""
        self.name = name
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(  # noqa: S603  # our own command, no shell
                [sys.executable, "-m", "sglr_dataplane", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def address(self, deadline: float) -> str:
        """Return the ``host:port`` the process announces.

        Args:
            deadline: The monotonic time until which to wait.

        Raises:
            ChildFailedError: It ended first, or said nothing in time; the end of its log is in
                the message.
        """
        assert self._process.stdout is not None  # noqa: S101  # Popen was given PIPE
        line = _read_line(self._process.stdout, deadline)
        if not line:
            reason = "did not start in time" if self.is_running else "ended at its start"
            tail = self._log.read_text(errors="replace")[-2000:]
            raise ChildFailedError(f"{self.name} {reason}. Its log ends:\n{tail}")
        announced: dict[str, Any] = json.loads(line)
        return str(announced["address"])

    def wait(self) -> None:
        """Wait until the process ends by itself."""
        self._process.wait()

    def stop(self) -> None:
        """End the process: SIGTERM first, SIGKILL when that is not heard."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _read_line(pipe: IO[bytes], deadline: float) -> bytes:
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        ready = selector.select(max(deadline - time.monotonic(), 0))
    return pipe.readline() if ready else b""


def port_number(text: str) -> int:
    """Return the TCP port that *text* names, for argparse."""
    if text.isdecimal() and int(text) <= _LAST_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a port from 0 to {_LAST_PORT}, not {text!r}")
