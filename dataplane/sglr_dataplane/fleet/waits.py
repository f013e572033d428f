"""The waits for a worker's first chunks: over at a job's deadline, or when the worker is down."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from sglr_dataplane.errors import DeadlineExceededError, RouterError, WorkerLostError

_EARLY: Final = 0.001
"""Seconds that a loop's timer may come too soon."""


class Wait(msgspec.Struct, eq=False):
    """One task's wait, which may be ended from outside; as ``asyncio.Timeout`` does it."""

    task: asyncio.Task[object]
    """The running one."""
    before: int
    """How often it was asked to end before."""
    ends_at: float
    """When the wait is over, by the loop's clock."""
    why: RouterError | None = None
    """Why it was ended from outside; None: it was not."""

    def end(self, why: RouterError) -> None:
        """Cancel the task where it waits; only the first call counts."""
        if self.why is None:
            self.why = why
            self.task.cancel()

    def told(self) -> RouterError | None:
        """Return why the wait was ended; None when it was not, or the task is to end as well."""
        if self.why is None or self.task.uncancel() > self.before:
            return None
        return self.why


class Waits:
    """Everybody's waits at one worker, with one timer for all.

    Jobs of a backend have all the same time, so the first that came is over first: a timer for each
    would be made and thrown away with nearly every request.
    """

    def __init__(self) -> None:
        """Have nobody waiting."""
        self._waiting: set[Wait] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = 0.0

    def __repr__(self) -> str:
        return f"<Waits {len(self._waiting)}>"

    def enter(self, wait: Wait) -> None:
        """End *wait* when its time is over, until :meth:`leave`."""
        self._waiting.add(wait)
        if self._timer is None or wait.ends_at < self._rings_at:
            self._ring_at(wait.ends_at)

    def leave(self, wait: Wait) -> RouterError | None:
        """Leave *wait*, which is over, alone; return why it was ended, if it was, as ``told`` does."""
        self._waiting.discard(wait)
        return None if wait.why is None else wait.told()

    def end(self) -> None:
        """End every wait: the worker is down."""
        for wait in self._waiting:
            # Lost, not unreachable: the job may be what froze the worker.
            wait.end(WorkerLostError("The worker went silent before it sent anything."))

    def _ring_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._look)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time() + _EARLY
        for wait in self._waiting:
            if wait.ends_at <= now:
                wait.end(over())
        left = [wait.ends_at for wait in self._waiting if wait.why is None]
        if left:
            self._ring_at(min(left))


def over() -> DeadlineExceededError:
    """Return what ends a job whose time is over."""
    return DeadlineExceededError("The request was not complete within the time it is given.")
