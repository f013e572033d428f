"""The simulated engine: slots, a queue, and streams found by request id.

It keeps the real pair's flaws (sglang 0.5.23 and smg-grpc-servicer 0.14.1, seen running): outputs
find their stream by id, so a repeated id takes the first one's stream; Abort matches by prefix and
mutes the stream of the exact id for ever; a full queue loses the request without a word.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sglr_dataplane.sim.generation import Finish
from sglr_dataplane.sim.messages import Told, Writer
from sglr_dataplane.sim.playback import Emit, Wait
from sglr_dataplane.sim.script import Incident, Status
from sglr_proto.sglang import scheduler_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Literal

    from sglr_dataplane.sim.playback import Action

CONNECTION_LOST = Status(code="UNAVAILABLE", message="Socket closed")
"""What a client of a dead process sees; said by us only where the process is told not to die."""
QUEUE_FULL = Status(code="UNAVAILABLE", message="The request queue is full.")

Output = pb.GenerateResponse | Status | None
"""What a stream gets: a message, the status it ends with, or None for its good end."""


@dataclass(slots=True)
class Stream:
    """The front end's side of one request id."""

    outputs: asyncio.Queue[Output]
    muted: bool = False
    """True after an Abort of exactly this id: nothing arrives any more, not even an end."""


@dataclass(slots=True, eq=False)
class Run:
    """One choice on its way through the engine."""

    rid: str
    request: pb.GenerateRequest = field(repr=False)
    begin: Callable[[], Iterator[Action]] = field(repr=False)
    """Called when the run gets its slot."""
    strike: Callable[[Incident, str], None] = field(repr=False)
    """Called for an incident that is not the stream's own: a death, a reset, a change of health."""
    generated: int = 0
    """Tokens sent so far."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)
    """None while it waits for a slot."""


class Scheduler:
    """The runs of one worker, and the streams their outputs go to."""

    def __init__(
        self,
        *,
        slots: int,
        queue_limit: int | None,
        queue_full: Literal["hang", "unavailable"],
        clock: Callable[[], float],
    ) -> None:
        """Start empty.

        Args:
            slots: Runs at the same time.
            queue_limit: Runs that may wait; None: any number.
            queue_full: What one run too many gets.
            clock: Seconds that only grow.
        """
        self.slots = slots
        self.running: set[Run] = set()
        self.waiting: deque[Run] = deque()
        self.streams: dict[str, Stream] = {}
        self.last_push = clock()
        self._queue_limit = queue_limit
        self.queue_full = queue_full
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return (
            f"Scheduler(running={len(self.running)}, waiting={len(self.waiting)},"
            f" streams={sorted(self.streams)})"
        )

    def open(self, rid: str, outputs: asyncio.Queue[Output]) -> None:
        """Send what *rid* generates to *outputs* from now on, whoever had it before."""
        self.streams[rid] = Stream(outputs)

    def close(self, rid: str) -> None:
        """Forget the stream of *rid*, even when it is another call's by now."""
        self.streams.pop(rid, None)

    def submit(self, run: Run) -> None:
        """Start *run*, or queue it, or lose it when the queue is full."""
        if len(self.running) < self.slots:
            self._start(run)
        elif self._queue_limit is None or len(self.waiting) < self._queue_limit:
            self.waiting.append(run)
        elif self.queue_full == "unavailable":
            self._deliver(run.rid, QUEUE_FULL)

    def abort(self, prefix: str) -> None:
        """End every run whose id starts with *prefix*; the exact id's stream hears nothing more.

        A running one whose id is longer ends with the finish reason ``abort``; a waiting one is
        dropped in silence, as the real servicer drops the scheduler's word of it.
        """
        exact = self.streams.get(prefix)
        if exact is not None:
            exact.muted = True
        self.waiting = deque(run for run in self.waiting if not run.rid.startswith(prefix))
        for run in [run for run in self.running if run.rid.startswith(prefix)]:
            if run.task is not None:
                run.task.cancel()
            self.running.discard(run)
            self._tell_abort(run)
        self._fill()

    async def aclose(self) -> None:
        """End every run and wait for it; their streams hear nothing."""
        self.waiting.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def is_stuck(self, silence: float) -> bool:
        """Return whether requests are pending and nothing was sent for *silence* seconds."""
        return bool(self.streams) and self._clock() - self.last_push > silence

    def _start(self, run: Run) -> None:
        self.running.add(run)
        task = asyncio.get_running_loop().create_task(self._perform(run), name=f"run {run.rid}")
        run.task = task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(run, done))

    def _ended(self, run: Run, task: asyncio.Task[None]) -> None:
        """Give the slot of *run* to the next; a fault of ours reaches its stream as INTERNAL."""
        self._tasks.discard(task)
        self.running.discard(run)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._deliver(run.rid, Status(code="INTERNAL", message=f"simulator fault: {error!r}"))
        self._fill()

    def _fill(self) -> None:
        """Start what waits while there are slots."""
        while self.waiting and len(self.running) < self.slots:
            self._start(self.waiting.popleft())

    async def _perform(self, run: Run) -> None:
        for action in run.begin():
            if isinstance(action, Wait):
                await asyncio.sleep(action.seconds)
            elif isinstance(action, Emit):
                run.generated = max(run.generated, _completion_tokens(action.message))
                self._deliver(run.rid, action.message)
            elif await self._strike(run, action):
                return
        self._deliver(run.rid, None)

    async def _strike(self, run: Run, incident: Incident) -> bool:
        """Let *incident* happen; return whether it ended the run's stream."""
        if incident.status is not None:
            ends_well = incident.status.code == "OK"
            self._deliver(run.rid, None if ends_well else incident.status)
            return True
        if incident.hang:
            await asyncio.Event().wait()
        run.strike(incident, "the script says so")
        if incident.die == "exit":
            self._deliver(run.rid, CONNECTION_LOST)
        return incident.die is not None

    def _deliver(self, rid: str, output: Output) -> None:
        self.last_push = self._clock()
        stream = self.streams.get(rid)
        if stream is not None and not stream.muted:
            stream.outputs.put_nowait(output)

    def _tell_abort(self, run: Run) -> None:
        writer = Writer(run.request, vocab_size=1)
        told = Told(run.generated)
        if run.request.stream:
            self._deliver(run.rid, writer.chunk((), told))
        self._deliver(run.rid, writer.complete((), Finish("abort"), told, ()))
        self._deliver(run.rid, None)


def _completion_tokens(message: pb.GenerateResponse) -> int:
    return (message.chunk if message.HasField("chunk") else message.complete).completion_tokens
