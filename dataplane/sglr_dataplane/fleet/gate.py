"""The gate of one backend: lets jobs in while its workers have room, and others wait their turn."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from sglr_dataplane.errors import QueueFullError, QueueTimeoutError
from sglr_dataplane.fleet.fair_queue import FairQueue, Priority, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_AGAIN: Final = 0.5
"""Seconds after which one who waits looks again: a breaker's time ends without an event."""
_LONGEST_RETRY_AFTER: Final = 60

VERDICT: Final = 3.0
"""Seconds that a job waits at most, where there is no worker, for one that was not judged yet, or
of which the operator could not tell: a probe takes milliseconds, a hand-over between operators a
second or two, and in a roll-out the workers before may be gone in that moment."""


@dataclass(frozen=True, slots=True)
class GateSettings:
    """How many jobs of a backend this process lets in, and how many wait for how long."""

    most_jobs: int | None = None
    """Jobs in flight; None: as many as its workers take."""
    depth: int = 100
    wait: float = 60.0
    """Seconds that a job waits for room."""
    wait_for_workers: float = 0.0
    """Seconds that a job waits while there is no worker at all."""


class Slot(msgspec.Struct, eq=False):
    """A job's place behind the gate, from when it is let in to its end; given back once."""

    caller: str
    since: float
    at_work: bool
    """Whether a worker counts the job already: then the gate need not."""
    is_held: bool = True


class Gate:
    """The jobs of one backend that are let in, and those that wait.

    State: changed in synchronous methods only. A place is given back on every path: by the stream
    that holds it, or by the dispatcher when there is no stream.
    """

    def __init__(
        self,
        settings: GateSettings,
        room: Callable[[int], int | None],
        clock: Callable[[], float],
        is_coming: Callable[[], bool] = lambda: False,
    ) -> None:
        """Let jobs in by *settings*.

        Args:
            settings: See there.
            room: How many jobs more the workers take now, or any number above the one given if they
                take more than that; None when there is no worker.
            clock: Seconds that only go up.
            is_coming: Whether there may be a worker in a moment, while there is none.
        """
        self._settings = settings
        self._room = room
        self._is_coming = is_coming
        self._clock = clock
        self._queue = FairQueue()
        self._parked: deque[asyncio.Future[None]] = deque()
        """Jobs that were let in and found their worker gone: they go before all that wait."""
        self._granted: dict[Ticket, asyncio.Future[Slot]] = {}
        self._held = 0
        self._starting = 0
        self._mean_hold = 1.0

    def __repr__(self) -> str:
        return f"<Gate held={self._held} waiting={self.waiting}>"

    @property
    def held(self) -> int:
        """How many jobs are let in."""
        return self._held

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return self._queue.length + len(self._parked)

    @property
    def is_full(self) -> bool:
        """Whether one job more could neither run at once nor wait, as far as nobody makes room."""
        return self._queue.length >= self._settings.depth and not self._has_room(
            self._room(self._starting)
        )

    def adjust(self, settings: GateSettings) -> None:
        """Go by *settings* from now on; nobody who is in is sent out."""
        self._settings = settings

    def admit(self, caller: str, room: int | None) -> Slot | None:
        """Return a place for a job of *caller* that a worker counts at once; to be given back.

        Args:
            caller: Whose job it is; ``""`` for anybody's.
            room: How many jobs more are taken by the workers that may have it; None: no worker.

        Returns:
            None when somebody waits, or there is no room: :meth:`enter` knows what to do then.
        """
        if self._parked or self._queue.length or not self._has_room(room):
            return None
        return self._grant(caller, at_work=True)

    async def enter(self, caller: str, priority: Priority, ends_at: float) -> Slot:
        """Return a place for a job of *caller*, which waits for it; to be given back.

        Args:
            caller: Whose job it is; ``""`` for anybody's.
            priority: What it is let in before.
            ends_at: When the job's time is over.

        Raises:
            QueueFullError: As many wait as may.
            QueueTimeoutError: It waited as long as it may.
        """
        room = self._room(self._starting)
        if room is None and not self._longest_without_workers():
            return self._grant(caller)  # the dispatcher says that there is nobody, and why
        if not self._parked and self._has_room(room) and self._queue.goes_first(priority):
            return self._grant(caller)
        ticket = self._stand(caller, priority)
        future = self._granted[ticket] = asyncio.get_running_loop().create_future()
        try:
            return await self._wait(future, ends_at)
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.leave(future.result())  # it was let in, and is gone
            raise
        finally:
            if self._granted.pop(ticket, None) is not None and not future.done():
                self._queue.drop(ticket)

    def patience(self, ends_at: float) -> float:
        """Return until when a job that comes now, and whose time ends at *ends_at*, may wait."""
        return min(self._clock() + self._settings.wait, ends_at)

    async def park(self, until: float) -> None:
        """Wait for room, with a place in hand: its worker went, and the others are full.

        Raises:
            QueueTimeoutError: There was none until *until*.
        """
        self._starting -= 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.append(future)
        try:
            while not future.done():
                left = until - self._clock()
                if left <= 0:
                    raise self._too_late(nobody=False)
                await asyncio.wait({future}, timeout=min(left, _LOOK_AGAIN))
                self.pump()
        finally:
            if not future.done():
                self._parked.remove(future)
                self._starting += 1

    def pump(self) -> None:
        """Let in whoever there is room for, or nothing to wait for; call it when that changes."""
        while self._parked and (self._room(self._starting) or 0) > self._starting:
            self._starting += 1
            self._parked.popleft().set_result(None)
        while not self._parked and self._queue.length and self._goes_on():
            ticket = self._queue.take()
            self._granted[ticket].set_result(self._grant(ticket.caller))

    def began(self, slot: Slot) -> None:
        """Note that a worker counts *slot*'s job from now on."""
        slot.at_work = True
        self._starting -= 1

    def paused(self, slot: Slot) -> None:
        """Note that no worker counts *slot*'s job until its next attempt."""
        if slot.at_work:
            slot.at_work = False
            self._starting += 1

    def leave(self, slot: Slot) -> None:
        """Take *slot* back; only the first call counts."""
        if not slot.is_held:
            return
        slot.is_held = False
        self._held -= 1
        self._starting -= not slot.at_work
        self._mean_hold += 0.1 * (self._clock() - slot.since - self._mean_hold)
        self._queue.leave(slot.caller)
        if self._parked or self._queue.length:
            self.pump()

    def _grant(self, caller: str, *, at_work: bool = False) -> Slot:
        self._held += 1
        self._starting += not at_work
        self._queue.admit(caller)
        return Slot(caller, self._clock(), at_work)

    def _goes_on(self) -> bool:
        """Return whether the next job waits no longer: for a worker, or to hear that none comes."""
        room = self._room(self._starting)
        return self._has_room(room) or (room is None and not self._longest_without_workers())

    def _has_room(self, room: int | None) -> bool:
        most = self._settings.most_jobs
        if most is not None and self._held >= most:
            return False
        return room is not None and room > self._starting

    def _stand(self, caller: str, priority: Priority) -> Ticket:
        """Return a ticket in the queue, for which a heavier caller's may have had to go."""
        ticket = self._queue.ticket(caller, priority)
        if self._queue.length >= self._settings.depth:
            victim = self._queue.heaviest(ticket)
            if victim is None or not self._settings.depth:
                raise self._full()
            self._queue.drop(victim)
            self._granted.pop(victim).set_exception(self._full())
        self._queue.put(ticket)
        return ticket

    def _longest_without_workers(self) -> float:
        """Return how many seconds a job waits while there is no worker; 0: not at all."""
        wanted = self._settings.wait_for_workers
        return max(wanted, VERDICT) if self._is_coming() else wanted

    async def _wait(self, future: asyncio.Future[Slot], ends_at: float) -> Slot:
        began = self._clock()
        while True:
            nobody = self._room(self._starting) is None
            allowed = self._longest_without_workers() if nobody else self._settings.wait
            now = self._clock()
            left = min(began + allowed, ends_at) - now
            if left <= 0 and not future.done():
                raise self._too_late(nobody=nobody)
            await asyncio.wait({future}, timeout=max(min(left, _LOOK_AGAIN), 0.0))
            if future.done():
                return future.result()
            self.pump()

    def _full(self) -> QueueFullError:
        return QueueFullError(
            f"This model's queue is full: {self._held} requests run and {self._queue.length} wait.",
            retry_after=self._retry_after(),
        )

    def _too_late(self, *, nobody: bool) -> QueueTimeoutError:
        why = "no worker came up" if nobody else f"{self._held} requests run before it"
        return QueueTimeoutError(
            f"The request waited for a place as long as it may: {why}.",
            retry_after=self._retry_after(),
            nobody=nobody,
        )

    def _retry_after(self) -> int:
        """Return when a place may be free, in seconds, if jobs take as long as lately."""
        turns = (self._queue.length + 1) / max(self._held, 1)
        return min(max(math.ceil(turns * self._mean_hold), 1), _LONGEST_RETRY_AFTER)
