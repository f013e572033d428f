"""What a simulated worker has seen, for tests: in memory, and as JSON lines for another process."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from google.protobuf.json_format import MessageToDict

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglr_proto.sglang import scheduler_pb2 as pb


@dataclass(frozen=True, slots=True)
class Received:
    """One Generate call as it came, and its sampling as the engine sees it."""

    number: int
    """Counts the worker's Generate calls from 1."""
    request: pb.GenerateRequest
    sampling: pb.SamplingParams
    metadata: tuple[tuple[str, str], ...]


class Recorder:
    """Everything one worker was asked and told; events are kept in order."""

    def __init__(self, journal: IO[str] | None = None) -> None:
        """Record in memory, and in *journal* one JSON object per line, on disk before it counts."""
        self.received: list[Received] = []
        self.cancelled: list[str] = []
        """Ids of Generate calls the client ended before they were answered."""
        self.finished: list[str] = []
        self.aborted: list[str] = []
        """Ids given to Abort."""
        self.scheduled: list[str] = []
        """Ids the scheduler saw: also the hidden ``-prefix`` and the ``-0``, ``-1`` of n > 1."""
        self.calls: Counter[str] = Counter()
        """Calls per rpc, health's Check and Watch included."""
        self.deaths: list[str] = []
        self._journal = journal
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return (
            f"Recorder(received={len(self.received)}, cancelled={self.cancelled},"
            f" aborted={self.aborted}, deaths={self.deaths})"
        )

    def call(self, rpc: str) -> None:
        """Record a call of *rpc*."""
        self.calls[rpc] += 1
        self._note(rpc=rpc)

    def generate(self, received: Received) -> None:
        """Record a Generate call."""
        self.received.append(received)
        self._note(
            generate=received.request.request_id,
            number=received.number,
            request=MessageToDict(received.request, preserving_proto_field_name=True),
        )

    def schedule(self, rid: str) -> None:
        """Record that the scheduler saw *rid*."""
        self.scheduled.append(rid)
        self._note(scheduled=rid)

    def cancel(self, rid: str) -> None:
        """Record that a client ended the call of *rid*."""
        self.cancelled.append(rid)
        self._note(cancelled=rid)

    def finish(self, rid: str) -> None:
        """Record that the call of *rid* was answered to its end, or with a status."""
        self.finished.append(rid)
        self._note(finished=rid)

    def abort(self, rid: str) -> None:
        """Record an Abort of *rid*."""
        self.aborted.append(rid)
        self._note(aborted=rid)

    def die(self, reason: str) -> None:
        """Record why the process ends."""
        self.deaths.append(reason)
        self._note(died=reason)

    async def wait_until(self, holds: Callable[[], bool], timeout: float) -> None:  # noqa: ASYNC109  # a deadline of its own, so that the error can say what was seen
        """Return when *holds* is true of this record.

        Raises:
            TimeoutError: It was not within *timeout* seconds; the message shows the record.
        """
        try:
            async with asyncio.timeout(timeout):
                while not holds():
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"Not seen within {timeout} s: {self!r}") from None

    def _note(self, **event: Any) -> None:
        """Write *event* down and wake who waits."""
        if self._journal is not None:
            self._journal.write(json.dumps(event) + "\n")
            self._journal.flush()
            os.fsync(self._journal.fileno())
        self._changed.set()
        self._changed = asyncio.Event()
