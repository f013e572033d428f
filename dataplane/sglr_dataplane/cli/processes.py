"""Several processes behind one socket: started, watched, replaced and ended by a supervisor.

The supervisor has no event loop, no threads and no gRPC: forking is safe there, and what it loaded
before is memory that its children share. It waits for signals and does nothing else.

State: which process runs in which place, and when the next one is due there.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from prometheus_client import CollectorRegistry, Counter, Gauge, values

from sglr_dataplane.fleet.siblings import forget, told_at

logger = logging.getLogger(__name__)

_WATCHED: Final = frozenset({signal.SIGCHLD, signal.SIGTERM, signal.SIGINT})
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
"""Seconds before a place is filled again: doubled each time that a process soon dies."""
_LONG_LIVED: Final = 10.0
"""Seconds after which a death is no consequence of the start: the next pause is the first again."""
_GRACE: Final = 10.0
"""Seconds beyond the drain's deadline after which a process that has not ended is killed."""
_LOOK: Final = 5.0
"""Seconds between two looks at what the processes tell, which they do every second."""
_MOST_LOOKS: Final = 12
"""Looks in a row at a process that told nothing, after which it is killed: its event loop stands
still, and nobody else would notice, for the other processes answer every probe. Looks and not
seconds: a machine that was frozen for an hour finds every process as it was."""
_SUPERVISOR: Final = "supervisor"
REFUSED: Final = 2
"""The status of a process that cannot work as it was told to: nor could the next."""


class Counting:
    """The folder in which the processes of one router count together.

    prometheus_client asks who is counting whenever it does. The answer is a place, not a process
    id: who takes the place of a dead process goes on where that one stopped.
    """

    def __init__(self, folder: Path) -> None:
        """Count in *folder*, as the supervisor; metrics must not have been made yet."""
        self.folder = folder
        self.name = _SUPERVISOR
        # The two ends of this library's multi-process mode; its README names both.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        values.ValueClass = values.MultiProcessValue(lambda: self.name)  # type: ignore[no-untyped-call]  # the library's

    def be(self, index: int) -> None:
        """Count in place *index* from now on: called in a process that was just started."""
        self.name = str(index)

    def forget(self, index: int) -> None:
        """Drop the gauges of the process in place *index*, which died; its counts stay."""
        # As mark_process_dead() of the library does, which wants a process id.
        for gauges in self.folder.glob(f"gauge_live*_{index}.db"):
            gauges.unlink()
        forget(self.folder, index)


@contextmanager
def counting() -> Generator[Counting]:
    """Let the processes started within the block count together."""
    # Memory where there is such a folder: every count is a write.
    memory = Path("/dev/shm")  # noqa: S108  # mkdtemp makes a folder of its own there
    parent = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="sglr-", dir=parent))
    try:
        yield Counting(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class _Place:
    """One of the processes that there are to be."""

    pid: int | None = None
    since: float = 0.0
    """When its process started."""
    due: float = 0.0
    """When the next one is to be, where none runs."""
    early: int = 0
    """How many in a row died soon."""
    started: int = 0
    """How many processes it has had."""
    told: int | None = None
    """What its process last told, at the last look."""
    silent: int = 0
    """At how many looks in a row that had not changed."""


class Supervisor:
    """Keeps *count* processes running until a signal ends them all."""

    def __init__(
        self,
        count: int,
        work: Callable[[int, bool], int],
        counting: Counting,
        *,
        deadline: float,
        look: float = _LOOK,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            count: How many.
            work: What each does, in a process of its own: is given its place, from 0, and whether
                another had that before; returns the process's exit status.
            counting: Where the processes count.
            deadline: Seconds that processes have for ending before they are killed.
            look: Seconds between two looks at whether they still turn.
            clock: Seconds that only go up.
        """
        self._work = work
        self._counting = counting
        self._deadline = deadline
        self._look_every = look
        self._clock = clock
        self._next_look = clock() + look
        self._places = [_Place() for _ in range(count)]
        self._ends_at: float | None = None
        self._failed = self._refused = False
        registry = CollectorRegistry()
        self._deaths = Counter(
            "sglr_process_deaths_total",
            "Processes of this router that ended by themselves or were killed, and were replaced.",
            registry=registry,
        )
        self._running = Gauge(
            "sglr_processes",
            "Processes of this router that run.",
            registry=registry,
            multiprocess_mode="livesum",
        )

    def __repr__(self) -> str:
        return f"<Supervisor {[place.pid for place in self._places]}>"

    def run(self) -> int:
        """Start every process, replace those that die, and return when a signal ended them all.

        Returns:
            0, or 1 when one had to be killed or did not end as it should; 2 when one of the first
            could not work as it was told to.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        # Open as long as this process lives: its end is how the others hear of it.
        self._life, mine = os.pipe()
        self._before, self._mine = before, mine
        try:
            while not self._is_over:
                self._fill()
                heard = signal.sigtimedwait(_WATCHED, self._patience())
                if heard is not None and heard.si_signo != signal.SIGCHLD:
                    self._end(signal.Signals(heard.si_signo))
                self._reap()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(mine)
            os.close(self._life)
        return REFUSED if self._refused else int(self._failed)

    @property
    def life(self) -> int:
        """A pipe's end that can be read, in the processes, as soon as the supervisor is gone."""
        return self._life

    @property
    def _is_over(self) -> bool:
        return self._ends_at is not None and all(place.pid is None for place in self._places)

    def _patience(self) -> float:
        """Return the seconds until something is to be done without a signal."""
        now = self._clock()
        if self._ends_at is not None:
            if now >= self._ends_at:
                self._kill()
            return max(self._ends_at - now, 1.0)
        if now >= self._next_look:
            self._look()
            self._next_look = now + self._look_every
        due = [place.due for place in self._places if place.pid is None]
        return max(min([*due, self._next_look]) - now, 0.0)

    def _fill(self) -> None:
        """Start a process in every place that is due for one."""
        if self._ends_at is not None:
            return
        for index, place in enumerate(self._places):
            now = self._clock()
            if place.pid is None and place.due <= now:
                place.pid = self._fork(index, replaces=place.started > 0)
                place.since, place.silent = now, 0
                place.started += 1
                logger.info("process started", extra={"place": index, "pid": place.pid})
        self._running.set(sum(place.pid is not None for place in self._places))

    def _fork(self, index: int, *, replaces: bool) -> int:
        pid = os.fork()
        if pid == 0:
            self._become(index, replaces=replaces)
        return pid

    def _become(self, index: int, *, replaces: bool) -> NoReturn:
        """Do the work of place *index*, and end this process with its status."""
        status = 1
        try:
            # A group of its own: Ctrl-C reaches the supervisor alone, which passes it on once.
            os.setpgid(0, 0)
            os.close(self._mine)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
            self._counting.be(index)
            status = self._work(index, replaces)
        except BaseException:  # noqa: BLE001  # the top of a process: nothing above may run twice
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _look(self) -> None:
        """Kill every process that has stood still for too long."""
        for index, place in enumerate(self._places):
            told = told_at(self._counting.folder, index)
            place.silent = place.silent + 1 if told == place.told else 0
            place.told = told
            if place.pid is not None and place.silent >= _MOST_LOOKS:
                logger.error("process stands still", extra={"place": index, "pid": place.pid})
                os.kill(place.pid, signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        """Pass *number* on; the first one sets the time at which all have to have ended."""
        logger.info("signal", extra={"signal": number.name})
        if self._ends_at is None:
            self._ends_at = self._clock() + self._deadline + _GRACE
        self._tell(number)

    def _kill(self) -> None:
        logger.error("processes killed that did not end", extra={"after": self._deadline + _GRACE})
        self._failed = True
        self._tell(signal.SIGKILL)

    def _tell(self, number: signal.Signals) -> None:
        for place in self._places:
            if place.pid is not None:
                os.kill(place.pid, number)

    def _reap(self) -> None:
        """Take note of every process that ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            # As process 1 of a container it is also told of processes that it never started.
            for index, place in enumerate(self._places):
                if place.pid == pid:
                    self._ended(index, place, os.waitstatus_to_exitcode(status))

    def _ended(self, index: int, place: _Place, status: int) -> None:
        now = self._clock()
        facts = {"place": index, "pid": place.pid, "status": status, "lived": now - place.since}
        self._counting.forget(index)
        place.pid = None
        if self._ends_at is not None:
            self._failed = self._failed or status != 0
            logger.info("process ended", extra=facts)
            return
        if status == REFUSED and place.started == 1:
            self._refused = True
            logger.error("process refused its settings", extra=facts)
            self._end(signal.SIGTERM)
            return
        place.early = place.early + 1 if now - place.since < _LONG_LIVED else 0
        place.due = now + min(_FIRST_PAUSE * 2.0 ** min(place.early, 16), _LONGEST_PAUSE)
        self._deaths.inc()
        logger.error("process died, another takes its place", extra=facts)
