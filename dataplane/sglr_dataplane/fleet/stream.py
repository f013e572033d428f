"""What a dispatched job gives back: the chunks of the worker that took it."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Self

from sglr_dataplane.engine.lean_stream import LeanStream
from sglr_dataplane.engine.openai_stream import RelayStream
from sglr_dataplane.errors import (
    RouterError,
    TruncatedStreamError,
)
from sglr_dataplane.fleet.breaker import SUCCEEDED, Outcome
from sglr_dataplane.fleet.waits import Wait, over

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sglr_dataplane.engine import ChunkStream
    from sglr_dataplane.engine.lanes import Lane
    from sglr_dataplane.engine.outlets import Outlet, Spoken
    from sglr_dataplane.fleet.lease import Lease
    from sglr_dataplane.fleet.worker import Worker
    from sglr_dataplane.job import Chunk, Job, Run, Usage


class Stream:
    """The chunks of one job from one worker; holds the lease until it is over or closed.

    Must be closed: consume it under ``contextlib.aclosing``. Closing early cancels the worker's
    call at once, without awaiting it.
    """

    def __init__(
        self, lease: Lease, job: Job, *, ends_at: float, clock: Callable[[], float]
    ) -> None:
        """Own *lease* from now on.

        Args:
            lease: The job's hold on a worker.
            job: What the worker is to generate.
            ends_at: When the job's time is over, by *clock*.
            clock: Seconds that only go up.
        """
        self.lease = lease
        """The job's hold on the worker."""
        if job.adapter:
            try:
                job = lease.worker.fitted(job)
            except RouterError:
                lease.end(Outcome.ABANDONED)
                raise
        start = lease.engine.embed if job.task == "embed" else lease.engine.generate
        self._chunks: ChunkStream = start(job)
        self._ends_at = ends_at
        self._clock = clock
        self._unfinished = max(job.sampling.n, 1)
        self._first: Chunk | None = None
        self.completion: dict[int, int] = {}
        """Tokens generated so far by choice, by the worker's count."""

    def __repr__(self) -> str:
        return f"<Stream {self.lease!r} unfinished={self._unfinished}>"

    def __del__(self) -> None:
        if self.lease.outcome is None:
            self.lease.end(Outcome.ABANDONED)
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=1)

    @property
    def worker(self) -> Worker:
        """The worker that generates."""
        return self.lease.worker

    async def open(self) -> Self:
        """Wait for the first chunk, keep it, and return the stream; it is closed when this fails.

        Raises:
            RouterError: It did not come, or the worker was declared down before it did; another
                worker may be tried.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # who awaits is one
        ends_at = task.get_loop().time() + self._ends_at - self._clock()
        wait, waits = Wait(task, task.cancelling(), ends_at), self.lease.worker.waits
        why: RouterError | None = None
        waits.enter(wait)
        try:
            try:
                self._first = await anext(self._chunks)
            finally:
                why = waits.leave(wait)
        except StopAsyncIteration:
            raise await self._given_up(_nothing_came()) from None
        except RouterError as failure:
            raise await self._given_up(failure) from failure.__cause__
        except BaseException as cause:
            if why is None or not isinstance(cause, asyncio.CancelledError):
                await self.aclose()
                raise
            raise await self._given_up(why) from cause
        self.lease.answered()
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        """Return the next chunk; raises what the worker's stream raises, and at its deadline."""
        chunk, self._first = self._first, None
        try:
            if chunk is None:
                chunk = await self._next()
        except StopAsyncIteration:
            self.lease.end(SUCCEEDED)
            raise
        except RouterError as failure:
            raise self.failed(failure) from failure.__cause__
        except BaseException:
            self.lease.end(Outcome.ABANDONED)
            raise
        self.passed(chunk)
        return chunk

    def passed(self, chunk: Chunk) -> None:
        """Count *chunk*, which is handed over."""
        self.completion[chunk.index] = chunk.usage.completion_tokens
        if chunk.finish is not None:
            self._unfinished -= 1

    @property
    def time_left(self) -> float:
        """Seconds that the job may still take."""
        return max(self._ends_at - self._clock(), 0.0)

    @property
    def batches(self) -> Batches | None:
        """What was not handed over yet, by batches; None where the worker's client has none: iterate.

        The first chunk may be among it: from now on it comes as the others do.
        """
        if not isinstance(self._chunks, LeanStream | RelayStream):
            return None
        if self._first is not None:
            self._chunks.put_back(self._first)
            self._first = None
        return Batches(self, self._chunks, self._ends_at, self._clock)

    async def aclose(self) -> None:
        """Give the worker back and cancel its call; safe to call twice."""
        self.lease.end(Outcome.ABANDONED if self._unfinished else SUCCEEDED)
        await self._chunks.aclose()

    def _next(self) -> Awaitable[Chunk]:
        """Return what waits for the next chunk; raises what ends the stream before that."""
        if self.lease.outcome is not None:
            raise StopAsyncIteration
        if self._clock() >= self._ends_at:
            raise over()
        return anext(self._chunks)

    async def _given_up(self, failure: RouterError) -> RouterError:
        """Give the worker back after *failure*, cancel its call, and return the failure."""
        self.lease.fail(failure)
        await self._chunks.aclose()
        return failure

    def failed(self, failure: RouterError) -> RouterError:
        """Give the worker back after *failure*, and return that."""
        self.lease.fail(failure)
        return failure


class Batches:
    """The rest of a stream, by batches: no task has to wake up for what arrives."""

    def __init__(
        self,
        stream: Stream,
        chunks: LeanStream | RelayStream,
        ends_at: float,
        clock: Callable[[], float],
    ) -> None:
        """Hand over *chunks*, which are those of *stream*: it counts them, and is closed."""
        self._stream = stream
        self._chunks = chunks
        self._ends_at = ends_at
        self._clock = clock

    def follow(self, on_news: Callable[[], None]) -> None:
        """Have *on_news* called whenever something arrives, and when the stream is over.

        It must not raise, and takes what there is by :meth:`pull`; so must the caller, once. What
        nobody takes stops the worker, once its window is full.
        """
        self._chunks.follow(on_news)

    def pull(self) -> tuple[Run | None, list[Chunk] | None]:
        """Return what has arrived: a run, and the chunks behind it; see ``LeanStream.pull``.

        Raises:
            RouterError: What ended the worker's stream, once all that came before was returned, and
                at the job's deadline.
        """
        stream = self._stream
        if self._clock() >= self._ends_at:
            raise stream.failed(over())
        run, chunks = self._chunks.pull()
        if run is not None:
            stream.completion[0] = run.usage.completion_tokens
        if chunks is None:
            return run, None
        for chunk in chunks:
            stream.passed(chunk)
        if run is None and not chunks and self._chunks.failure is not None:
            raise stream.failed(self._chunks.failure)
        return run, chunks

    def lay(self, lane: Lane) -> None:
        """Have a gRPC worker's tokens go by *lane*, told to nobody, until something else comes.

        Call :meth:`lift` before the next :meth:`pull`, and at the end.
        """
        if isinstance(self._chunks, LeanStream):
            self._chunks.lay(lane, self._stream.time_left)

    def lift(self) -> Usage | None:
        """End what :meth:`lay` began; return what tokens that passed came to, None if none did."""
        if not isinstance(self._chunks, LeanStream):
            return None
        usage = self._chunks.lift()
        if usage is not None:
            self._stream.completion[0] = usage.completion_tokens
        return usage

    def pipe(self, outlet: Outlet, spoken: Spoken) -> None:
        """Have frames that need no looking at written to *outlet* without being told of.

        Only what an HTTP worker answers is frames; of a gRPC worker's tokens none passes so.
        """
        if isinstance(self._chunks, RelayStream):
            self._chunks.pipe(outlet, spoken, self._stream.time_left)

    @property
    def are_quiet(self) -> bool:
        """Whether a gRPC worker has sent nothing more; False where another one answers."""
        return isinstance(self._chunks, LeanStream) and self._chunks.is_quiet

    @property
    def has_failed(self) -> bool:
        """Whether :meth:`pull` will raise, as soon as it has returned everything."""
        return self._chunks.failure is not None


def _nothing_came() -> TruncatedStreamError:
    return TruncatedStreamError("The worker ended the stream before it sent anything.")
