"""The chunks of one job over the lean transport: one by one, or all that a read brought at once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from sglr_dataplane.engine.answers import Answers
from sglr_dataplane.engine.channel import Channel
from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.h2.call import Call
from sglr_dataplane.engine.h2.splitter import PREFIX
from sglr_dataplane.engine.h2.status import CallError
from sglr_dataplane.engine.lanes import Lane
from sglr_dataplane.engine.messages import take
from sglr_dataplane.engine.runs import RunReader
from sglr_dataplane.engine.statuses import UNAVAILABLE, error_from_status, name_of
from sglr_dataplane.engine.waiting import WaitingStream
from sglr_dataplane.engine.wire import ChunkReader, write_job
from sglr_dataplane.errors import (
    DeadlineExceededError,
    RouterError,
    WorkerError,
    WorkerUnavailableError,
)
from sglr_dataplane.job import Chunk, Job, Run, Usage
from sglr_proto.sglang import scheduler_pb2

logger = logging.getLogger(__name__)

GENERATE: Final = "/sglang.grpc.scheduler.SglangScheduler/Generate"


class LeanStream(WaitingStream):
    """The chunks of one job.

    *One by one*: ``async for`` under ``aclosing``. *By batches*, with no task wake-up a token:
    :meth:`start` with a callback, or :meth:`follow` from any chunk on; the callback calls
    :meth:`drain` and looks at :attr:`is_over` and :attr:`failure`. One that does not drain stops
    the worker, once the stream's window is full, until :meth:`drain` is called again.
    """

    def __init__(self, channel: Channel, job: Job, deadlines: Deadlines) -> None:
        """Prepare *job*; nothing is sent yet."""
        super().__init__()
        self._channel = channel
        self._job = job
        self._deadlines = deadlines
        self._answers = Answers(job)
        self._choice = self._answers.only
        self._reader = ChunkReader(job.id)
        self._runs: RunReader | None = None
        """Reads runs, once there are some."""
        self._unread: bytes = b""
        """Messages behind the first one or a run, with their prefixes: they may be a run."""
        self._call: Call | None = None
        self._on_news: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = self._waits_since = 0.0
        self._has_answered = False
        self._chunks: deque[Chunk] = deque()
        self._lane: Lane | None = None
        """What is laid."""
        self.is_over = False
        """Whether :meth:`drain` has nothing more to return, now or ever."""

    def __repr__(self) -> str:
        return f"<LeanStream {self._job.id} {self._answers!r}{' over' if self.is_over else ''}>"

    # --- by batches -----------------------------------------------------------------------------

    def start(self, on_news: Callable[[], None]) -> None:
        """Send the job.

        Args:
            on_news: Called after each socket read that brought tokens, and when the stream is
                over, at least once and possibly before this returns. It must not raise.
        """
        self._on_news = on_news
        self._waits_since = self._loop.time()
        self._ends_at = self._waits_since + self._deadlines.total
        self._call = self._channel.call(
            GENERATE,
            write_job(self._job),
            timeout=self._deadlines.total,
            listener=self._hear,
            fields=self._job.trace,
        )
        soonest = min(self._deadlines.first_token, self._deadlines.idle, self._deadlines.total)
        self._timer = self._loop.call_later(max(soonest, 0.001), self._check)
        self._channel.dial(self._call)

    def follow(self, on_news: Callable[[], None]) -> None:
        """Go on by batches: *on_news* is called as :meth:`start` says, after the next read.

        What is there already is not told of: drain once.
        """
        self._on_news = on_news

    def lay(self, lane: Lane, seconds: float) -> None:
        """Have tokens go by *lane*, told to nobody, until something else comes; then call :meth:`lift`.

        Args:
            lane: Where they go. Nothing is laid where something waits to be pulled.
            seconds: How long the job may still take.
        """
        call, choice = self._call, self._choice
        if call is None or choice is None or self.is_over or self._unread or self._chunks:
            return
        if lane.lay(self._run_reader(), choice.received, self._loop.time() + seconds):
            lane.heard_at = self._waits_since
            self._lane = lane
            call.lay(lane.take)

    def lift(self) -> Usage | None:
        """End what :meth:`lay` began; return what tokens that passed came to, None if none did."""
        lane, self._lane = self._lane, None
        if lane is None:
            return None
        if self._call is not None:
            self._call.lay(None)
        choice = self._choice
        if choice is None or not lane.passed:
            return None
        self._waits_since = lane.heard_at
        usage = self._reader.usage(choice.received + lane.passed)
        choice.advance(lane.passed, usage)
        return usage

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has come that was not handed over, not even the end."""
        call = self._call
        if call is None or self.is_over or self._chunks or self._unread:
            return False
        return not (call.is_over or call.has_waiting)

    def put_back(self, chunk: Chunk) -> None:
        """Have *chunk*, the last that was handed over, come next again."""
        self._chunks.appendleft(chunk)

    def pull(self) -> tuple[Run | None, list[Chunk] | None]:
        """Return what has arrived, and let the worker send as much again.

        Returns:
            The run that came first, if one did; and the chunks that came behind it or instead of
            it, as :meth:`drain` returns them. None: there is but the run, and the stream goes on.
        """
        call, choice = self._call, self._choice
        if call is None or choice is None or self.is_over or self._chunks:
            return None, self.drain()
        data = call.take_bytes()
        if self._unread:
            data = self._unread + data
        runs = self._run_reader() if data.startswith(self._reader.lead, PREFIX) else None
        found = None if runs is None else runs.read(data, choice.received)
        if runs is None or found is None:
            self._unread = b""
            return None, self._read(call, call.take(data), [])
        run, size = found
        if size < len(data):  # a run ends where its counter grows wider
            more = runs.read(data[size:], choice.received + len(run.token_ids))
            if more is not None:
                run = Run(run.token_ids + more[0].token_ids, more[0].usage)
                size += more[1]
        choice.advance(len(run.token_ids), run.usage)
        self._waits_since = self._loop.time()
        self._unread = data[size:]
        if self._unread or call.is_over:
            return run, self.drain()
        return run, None

    def _run_reader(self) -> RunReader:
        """Return the reader of runs; answers of one token need none."""
        if self._runs is None:
            self._runs = RunReader(self._reader)
        return self._runs

    def drain(self) -> list[Chunk]:
        """Return the chunks that have arrived, in order, and let the worker send as many again.

        Chunks that came before a failure are returned by the call that notices the failure.
        """
        chunks: list[Chunk] = []
        if self._chunks:
            chunks += self._chunks
            self._chunks.clear()
        call = self._call
        if call is None or self.is_over:
            return chunks
        unread, self._unread = self._unread, b""
        return self._read(call, call.take(unread), chunks)

    def _drain_first(self, call: Call) -> list[Chunk]:
        """Return what :meth:`drain` would, of one message; the others wait."""
        data = self._unread + call.take_bytes()
        size = PREFIX + int.from_bytes(data[1:PREFIX], "big")
        self._unread = data[size:]
        if data.startswith(b"\0") and size <= len(data):
            return self._read(call, [data[PREFIX:size]], [])
        return self._read(call, call.take(data[:size]), [])

    def _read(self, call: Call, messages: list[bytes], chunks: list[Chunk]) -> list[Chunk]:
        """Return *chunks* and what *messages* say, and be over if nothing can follow them."""
        answers, read = self._answers, self._reader.read
        if messages:
            self._has_answered = True
            self._waits_since = self._loop.time()
        try:
            for message in messages:
                if answers.finished:
                    logger.warning("worker spoke after its last finish")
                    break
                plain = read(message)
                chunk = self._meaning(message) if plain is None else answers.chunk(*plain)
                if chunk is not None:
                    chunks.append(chunk)
        except RouterError as failure:
            self._end(failure)
            return chunks
        if answers.finished:
            self._end(None)
        elif call.is_over and not self._unread:
            self._end(self._failure_of(call))
        return chunks

    def _meaning(self, message: bytes) -> Chunk | None:
        """Return what *message*, no plain chunk, adds to the answer; None when it adds nothing.

        Raises:
            RouterError: It is no valid answer.
        """
        end = None if self._job.logprobs is not None else self._reader.read_end(message)
        if end is None:
            return take(self._answers, _parse(message))
        return self._answers.complete(
            end.output_ids, end.usage, end.choice, reason=end.reason, matched=end.matched
        )

    def close(self) -> None:
        """End the worker's call if it still runs: RST_STREAM is written before this returns."""
        self._on_news = None
        call, self._call = self._call, None
        if not self.is_over:
            self._end(None)
            if call is not None:
                call.cancel()
        if self._waiter is not None:
            self._wake()

    # --- one by one -----------------------------------------------------------------------------

    def __aiter__(self) -> LeanStream:
        return self

    async def __anext__(self) -> Chunk:
        """Return the next chunk; whatever ends the stream ends the worker's call at once."""
        if self._on_news is None and not self.is_over:
            self.start(self._wake)
        while not self._chunks:
            call = self._call
            if call is None or self.is_over:
                raise self._last_word()
            if self._unread or call.is_over or call.has_waiting:
                self._chunks.extend(self.drain() if self._has_answered else self._drain_first(call))
            else:
                await self._wait()
        return self._chunks.popleft()

    async def aclose(self) -> None:
        """End the worker's call if it still runs, without awaiting it."""
        self._chunks.clear()
        self.failure = self._on_news = None
        if not self.is_over:
            self.close()

    # --- the call -------------------------------------------------------------------------------

    def _hear(self) -> None:
        """Pass on that a read brought messages or the end of the call."""
        if self.is_over:
            if self._call is not None:
                # What a worker says after its last finish must not stop its call's end.
                self._call.take()
        elif self._on_news is not None:
            self._on_news()

    def _end(self, failure: RouterError | None) -> None:
        """Be over; after a failure the worker's call is, too."""
        self.is_over = True
        self.failure = failure
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._call is None or self._call.is_over:
            return
        if failure is not None:
            self._call.cancel()
        else:
            # The call's own end is on its way: the worker must see no cancellation of what is done.
            self._loop.call_later(self._deadlines.linger, self._call.cancel)

    def _failure_of(self, call: Call) -> RouterError | None:
        """Return why *call*, which is over, is no whole answer."""
        error = call.error
        if error is not None:
            if self._channel.is_closed:
                return WorkerUnavailableError("The worker left before its answer was complete.")
            return translated(error)
        try:
            self._answers.end()
        except RouterError as failure:
            return failure
        return None

    # --- deadlines ------------------------------------------------------------------------------

    def _arm(self, now: float) -> None:
        """Look at the deadlines when the next one may have passed; not at every token."""
        delay = min(self._limit()[0] - now, self._deadlines.idle)
        self._timer = self._loop.call_later(max(delay, 0.001), self._check)

    def _limit(self) -> tuple[float, float]:
        """Return when the stream is given up, and after how long a wait that is."""
        total = self._ends_at, self._deadlines.total
        if not self._job.stream or (self._call is not None and self._call.has_waiting):
            # All comes in one message; or it is we who keep the worker waiting.
            return total
        wait = self._deadlines.idle if self._has_answered else self._deadlines.first_token
        since = self._waits_since if self._lane is None else self._lane.heard_at
        return min(total, (since + wait, wait))

    def _check(self) -> None:
        """Give the stream up if a deadline has passed."""
        now = self._loop.time()
        at, wait = self._limit()
        if now < at:
            self._arm(now)
            return
        what = "another token" if self._has_answered else "a first token"
        self._end(DeadlineExceededError(f"The worker did not send {what} within {wait:g} s."))
        if self._on_news is not None:
            self._on_news()


def translated(failure: CallError) -> RouterError:
    """Return what *failure* means to the one who asked."""
    # Never the details: a worker may echo headers and prompts in them.
    logger.debug("call failed", extra={"status": name_of(failure.code)})
    if not failure.sent and failure.code == UNAVAILABLE:
        return WorkerUnavailableError("The worker cannot be reached.")
    return error_from_status(failure.code, failure.details, failure.trailers)


def _parse(message: bytes) -> scheduler_pb2.GenerateResponse:
    """Return what the stubs read."""
    try:
        return scheduler_pb2.GenerateResponse.FromString(message)
    except DecodeError as failure:
        raise WorkerError("The worker's answer is no message of its contract.") from failure
