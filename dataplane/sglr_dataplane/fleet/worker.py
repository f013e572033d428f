"""Workers: the data plane's live view of an endpoint."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from sglr_dataplane.errors import UnknownModelError
from sglr_dataplane.fleet.breaker import Breaker
from sglr_dataplane.fleet.shares import share
from sglr_dataplane.fleet.waits import Waits
from sglr_proto.snapshot import EndpointState

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglr_dataplane.engine import Engine, EngineFacts
    from sglr_dataplane.job import Job
    from sglr_proto.snapshot import Endpoint


BUSY: Final = 1.0
"""Seconds that a worker whose queue was full is avoided, where another can be had: a decode step
frees a place every few tens of milliseconds."""


_COLD: Final = 0.1
"""Share of its weight that a worker begins with: enough to warm it up."""

REGROWTH: Final = 1.0
"""Seconds after which a worker that was full is tried with one job more than it held: one refused
job a second is soon sent elsewhere, and a worker that others filled for a while is soon back."""


_UNLIMITED: Final = 1_000_000
"""Room of a worker of which no limit is known."""


class WorkerState(StrEnum):
    """Where a worker is in its life."""

    PENDING = "pending"
    """Not seen healthy yet, or what it serves is not known yet: slow starts stay here."""
    READY = "ready"
    UNHEALTHY = "unhealthy"
    """Was ready and is not, or serves the wrong model."""
    LEAVING = "leaving"
    """No longer in the snapshot: keeps its streams, gets no new ones. There is no way back."""


class Worker:
    """One worker of one backend. State changes in its methods only, all of them synchronous."""

    facts: EngineFacts | None = None
    """What it said last of itself."""
    is_unreachable = False
    """Could not be reached when it was last tried: not counted as ready."""
    losses = 0
    """How often its connection was lost."""
    is_lost = False
    """Its connection was lost, and it has not said again what it serves: it gets no jobs, for
    another process may have come up in its place, with another model."""
    is_unjudged = True
    """No probe has ended since it came, since its connection was lost, or since the control plane
    called it ready: it may be about to take jobs."""
    may_still_serve = True
    """False when it says itself that it does not serve, or serves another model: then not even
    the last resort is to be tried with it."""
    problem: str | None = None
    """Why it is not ready, as a sentence for operators; None when it is."""
    answered_at: float | None = None
    """When it last answered a job, by the dispatcher's clock in seconds; None before."""
    first_token_seconds: float | None = None
    """From a job's start to its first chunk, lately: a tenth of each new one is mixed in."""
    drain: float | None = None
    """Seconds that jobs may go on here once it leaves; None: as long as it lets them."""
    warm_up = 0.0
    """Seconds over which it gets its full share after it became ready; 0: at once."""

    def __init__(
        self,
        backend_key: str,
        endpoint: Endpoint,
        engine: Engine,
        *,
        model_names: frozenset[str],
        processes: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start pending.

        Args:
            backend_key: The backend's ``namespace/name``.
            endpoint: Where it is.
            engine: Its client; the worker's last stream must have ended before it is closed.
            model_names: What it may call the model it serves.
            processes: How many share what it runs at once, this one included.
            clock: Seconds that only go up; the dispatcher's.
        """
        self.state = WorkerState.PENDING
        self.in_flight = 0
        self.suspect = False
        """Failed its last probe or dropped a connection: taken only when nothing better is left."""
        self.full_at: float | None = None
        """When its queue was full last; None before."""
        self.most_jobs = _UNLIMITED
        """What this process may give it at once, by what it says it runs."""
        self.backend_key = backend_key
        self.id = endpoint.id
        """The endpoint's identity: of a newer snapshot it is the same."""
        self.endpoint = endpoint
        self.engine = engine
        engine.on_lost = self.was_lost
        self.model_names = model_names
        self._processes = processes
        self._clock = clock
        self._leaves_since: float | None = None
        self._ready_at: float | None = None
        self._note_leaving()
        self._foreign = 0
        """Jobs that other routers sent it."""
        self._busy: dict[Engine, int] = {}
        """Jobs by the engine that runs them."""
        self._retired: list[Engine] = []
        self.breaker = Breaker()
        """What real traffic says of it; lives as long as this worker, whatever its probes say."""
        self._busy_until = 0.0
        self._held = 0
        """Our jobs that it had when its queue was full last."""
        self.on_verdict: Callable[[], None] = _nobody
        """Called when it becomes ready, or is found not to be: somebody may be waiting for that."""
        self.wake: Callable[[], None] = _nobody
        """Called when the one who tends this worker should look at it at once."""
        self.waits = Waits()
        """Those of the jobs that wait here for a first chunk: over at once when it is down."""
        self.on_facts: Callable[[], object] = _nobody
        """Called when it says something else of itself than before."""

    def __repr__(self) -> str:
        suspect = " suspect" if self.suspect else ""
        return f"<Worker {self.id} {self.state}{suspect} in_flight={self.in_flight}>"

    @property
    def name(self) -> str:
        """What people call it: the pod's name, or its identity."""
        return self.endpoint.pod or self.id

    @property
    def is_ready(self) -> bool:
        """True when it may get jobs, as far as it can be told from here."""
        return self.state is WorkerState.READY

    @property
    def is_done(self) -> bool:
        """True when it left and its last stream has ended: its engine can be closed."""
        return self.state is WorkerState.LEAVING and self.in_flight == 0

    @property
    def load(self) -> int:
        """How many jobs it is busy with: ours, and by its last word what others sent."""
        return self.in_flight + self._foreign

    @property
    def weight(self) -> float:
        """How much of the work it is to have: its endpoint's weight, less while it warms up."""
        weight = float(self.endpoint.weight)
        if not self.warm_up or self._ready_at is None:
            return weight
        age = self._clock() - self._ready_at
        return weight * min(max(age / self.warm_up, _COLD), 1.0)

    def tells_load(self, jobs: int | None) -> None:
        """Take over that it says to have *jobs* in all; None: it no longer says."""
        self._foreign = max(jobs - self.in_flight, 0) if jobs is not None else 0

    def room(self, limit: int | None, now: float) -> int:
        """Return how many jobs more it may be given at *now*.

        Up to *limit*, or to what it says it runs; and up to what it held when its queue was full,
        and one more for each second since. Other routers fill it, too, and what it is said to take
        may be wrong: then jobs wait here, and are not sent there to be refused.
        """
        most = self.most_jobs if limit is None else limit
        if self.full_at is not None:
            most = min(most, self._held + int((now - self.full_at) / REGROWTH))
        return most - self.in_flight

    @property
    def adapters(self) -> dict[str, str]:
        """The id of each LoRA adapter that it listed last, by name."""
        return dict(self.facts.adapters) if self.facts is not None else {}

    def fitted(self, job: Job) -> Job:
        """Return *job* as this worker is asked for it: with its own id of the adapter.

        Raises:
            UnknownModelError: It has not got the adapter, and must not answer without.
        """
        if not job.adapter:
            return job
        lora_id = self.adapters.get(job.adapter)
        if lora_id is None:
            raise UnknownModelError(f"The model {job.model!r} is no longer here.", param="model")
        return msgspec.structs.replace(job, lora_id=lora_id)

    def told(self, endpoint: Endpoint, model_names: frozenset[str]) -> None:
        """Take over what a newer snapshot says of it; its address is the same."""
        comes_up = endpoint.state is EndpointState.READY is not self.endpoint.state
        self.endpoint = endpoint
        if comes_up and not self.is_ready:
            # Whoever it replaces may be gone in a moment: its next probe would come too late.
            self.is_unjudged = True
            self.wake()
        self._note_leaving()
        if model_names != self.model_names:
            self.model_names = model_names
            self.wake()

    def reconnect(self, engine: Engine) -> None:
        """Use *engine* for new jobs; the one before is closed when its last stream ends."""
        self.engine.on_lost = _nobody
        self._retired.append(self.engine)
        self.engine = engine
        engine.on_lost = self.was_lost
        self.wake()

    def engines(self) -> tuple[Engine, ...]:
        """Return every engine that is not closed, the one in use first."""
        return (self.engine, *self._retired)

    def take_idle_engines(self) -> tuple[Engine, ...]:
        """Return, once, the engines that new ones replaced and whose last stream has ended."""
        idle = tuple(engine for engine in self._retired if engine not in self._busy)
        self._retired = [engine for engine in self._retired if engine not in idle]
        return idle

    def begin(self) -> Engine:
        """Count one more job and return the engine that is to run it."""
        engine = self.engine
        self.in_flight += 1
        self._busy[engine] = self._busy.get(engine, 0) + 1
        return engine

    def end(self, engine: Engine) -> None:
        """Count one job less; *engine* is what ``begin`` returned."""
        left = self._busy.pop(engine, 0) - 1
        if left < 0:
            raise RuntimeError(f"A job of {self!r} ended that had never begun.")
        if left:
            self._busy[engine] = left
        self.in_flight -= 1
        if engine is not self.engine or (self.state is WorkerState.LEAVING and not self.in_flight):
            self.wake()

    def answered(self, now: float, seconds: float) -> None:
        """Note that it began to answer a job at *now*, which had waited *seconds* for that.

        It is a sign of life as good as a probe.
        """
        self.answered_at = now
        before = self.first_token_seconds
        self.first_token_seconds = seconds if before is None else before + 0.1 * (seconds - before)

    def was_busy(self, now: float, pause: float = BUSY) -> None:
        """Avoid it for *pause* seconds: its queue was full at *now*, which is no failure."""
        self._busy_until = now + pause
        # The job that was refused is still counted. One is always tried: others may have filled it.
        self._held, self.full_at = max(self.in_flight - 1, 1), now

    def is_busy(self, now: float) -> bool:
        """Return whether its queue was full a moment ago."""
        return now < self._busy_until

    def suspected(self) -> None:
        """Avoid it until a probe has cleared it, and have that probe made at once."""
        self.suspect = self.is_unreachable = True
        self.wake()

    def was_lost(self) -> None:
        """Give it no jobs until a probe has told who is there now; have that probe made at once."""
        self.losses += 1
        self.is_lost = self.is_unjudged = True
        self.suspected()

    def doubted(self, problem: str, *, unreachable: bool = False) -> None:
        """Avoid it because a probe failed with *problem*; it is not given up yet."""
        self.suspect = True
        self.is_unreachable = self.is_unreachable or unreachable
        self.problem = problem

    def was_judged(self) -> None:
        """Note that a probe of it has ended, whatever it found."""
        if self.is_unjudged:
            self.is_unjudged = False
            self.on_verdict()

    def became_ready(self, facts: EngineFacts) -> None:
        """Give it jobs from now on; *facts* are what it said just now."""
        self._take_over(facts)
        was_lost = self.is_lost
        self.suspect = self.is_unreachable = self.is_lost = self.is_unjudged = False
        self.may_still_serve = True
        if self.state is not WorkerState.LEAVING:
            self.problem = None
            was_ready = self.is_ready
            if not was_ready or was_lost:
                # Another process may be there, and then its cache is empty.
                self._ready_at = self._clock()
            self.state = WorkerState.READY
            if not was_ready or was_lost:
                self.on_verdict()

    def became_unhealthy(self, problem: str) -> None:
        """Give it no jobs until it is ready again; a worker that never was stays pending.

        Jobs that wait there for a first chunk are told, for they can still go elsewhere.
        """
        self.problem = problem
        if self.state is WorkerState.READY:
            self.state = WorkerState.UNHEALTHY
            self.waits.end()

    def refused(self, problem: str) -> None:
        """Give it no jobs, not even as the last resort: it says itself that they are not for it."""
        self.problem = problem
        self.may_still_serve = False
        if self.state is not WorkerState.LEAVING:
            self.state = WorkerState.UNHEALTHY

    def left(self) -> None:
        """Give it no more jobs, for good."""
        self.state = WorkerState.LEAVING
        self._note_leaving()
        self.problem = "It is no longer an endpoint of its backend."
        self.wake()

    def overdue_in(self, now: float) -> float | None:
        """Return for how many seconds its jobs may go on after *now*; None: it does not leave."""
        if self._leaves_since is None or self.drain is None:
            return None
        return max(self._leaves_since + self.drain - now, 0.0)

    def was_cut(self) -> None:
        """Note that its jobs were ended; what may come yet has the whole time again."""
        if self._leaves_since is not None:
            self._leaves_since = self._clock()

    def _take_over(self, facts: EngineFacts) -> None:
        if facts == self.facts:
            return
        self.facts = facts
        most = share(facts.max_running_requests, self._processes)
        self.most_jobs = _UNLIMITED if most is None else most
        self.on_facts()

    def _note_leaving(self) -> None:
        leaves = self.state is WorkerState.LEAVING or self.endpoint.state is EndpointState.DRAINING
        if not leaves:
            self._leaves_since = None
        elif self._leaves_since is None:
            self._leaves_since = self._clock()


def _nobody() -> None:
    """Be what is called while nobody tends the worker."""
