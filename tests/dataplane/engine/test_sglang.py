"""Jobs through the grpcio client to a simulated worker, over real sockets."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.errors import (
    ContextLengthExceededError,
    DeadlineExceededError,
    RouterError,
    TruncatedStreamError,
    WorkerBusyError,
    WorkerError,
    WorkerLostError,
    WorkerRefusedError,
)
from sglr_dataplane.job import Finish
from sglr_dataplane.sim.script import Incident, Play, Script, Status
from sglr_dataplane.sim.settings import WorkerSettings
from support.pairs import a_job, a_pair, all_of, ids, plays

SURE, DOT = 39814, 13
SHORT = Deadlines(
    connect=0.3, first_token=0.2, idle=0.2, total=0.3, linger=0.1, probe=0.2, facts=0.2
)


@pytest.mark.parametrize("cumulative", [False, True])
async def test_a01_chunks_come_once_however_the_engine_streams(*, cumulative: bool) -> None:
    """A01: increments and cumulative lists give the same three tokens, and usage 3."""
    async with a_pair(plays(Play(ids=(7, 8, 9), cumulative=cumulative))) as (_, engine):
        chunks = await all_of(engine, a_job())

    assert ids(chunks) == (7, 8, 9)
    assert chunks[-1].usage.completion_tokens == 3
    assert [chunk.finish is not None for chunk in chunks] == [False, False, False, True]


async def test_a01_counters_that_fit_nothing_end_the_stream() -> None:
    """A01: a stream whose counters contradict its ids is a worker's error, and is cancelled."""
    job = a_job()
    play = Play(ids=(7, 8, 9), count_offset=4, delays=("0s", "10s"))
    async with a_pair(plays(play)) as (worker, engine):
        with pytest.raises(WorkerError, match="neither"):
            await anext(engine.generate(job))
        await worker.wait_for_cancel(job.id)


@pytest.mark.parametrize("style", ["last_and_all", "last_only", "repeat_last", "only", "all"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a02_the_last_tokens_come_exactly_once(style: str, *, stream: bool) -> None:
    """A02: whatever `complete` holds, streaming or not, "Sure." is whole."""
    play = Play(ids=(SURE, DOT), complete=style)  # type: ignore[arg-type]  # one of the literals
    async with a_pair(plays(play)) as (_, engine):
        chunks = await all_of(engine, a_job(stream=stream))

    assert ids(chunks) == (SURE, DOT)
    assert [chunk.finish for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish is not None


async def test_a03_an_end_without_completion_is_a_truncation() -> None:
    """A03 (a): two chunks and status OK, no `complete`: an error, never silence."""
    async with a_pair(plays(Play(ids=(1, 2), complete="missing"))) as (_, engine):
        stream = engine.generate(a_job())
        async with aclosing(stream):
            got = [await anext(stream), await anext(stream)]
            with pytest.raises(TruncatedStreamError):
                await anext(stream)

    assert ids(got) == (1, 2)


async def test_a03_unavailable_after_two_chunks_is_an_error() -> None:
    """A03 (b): the chunks that came are there, then the stream fails."""
    status = Status(code="UNAVAILABLE", message="Stream removed")
    play = Play(ids=(1, 2, 3), incidents=(Incident(after=2, status=status),))
    async with a_pair(plays(play)) as (_, engine):
        stream = engine.generate(a_job())
        async with aclosing(stream):
            got = [await anext(stream), await anext(stream)]
            with pytest.raises(WorkerLostError):
                await anext(stream)

    assert ids(got) == (1, 2)


async def test_a03_an_empty_completion_finishes() -> None:
    """A03 (c): `complete` without ids after the chunks is a stop."""
    async with a_pair(plays(Play(ids=(1, 2), complete="empty", finish="stop"))) as (_, engine):
        chunks = await all_of(engine, a_job())

    assert ids(chunks) == (1, 2)
    assert chunks[-1].finish == Finish("stop")


async def test_a03_a_completion_without_reason_finishes() -> None:
    """A03 (d): the choice has ended although nobody says why."""
    async with a_pair(plays(Play(ids=(1, 2), finish=""))) as (_, engine):
        chunks = await all_of(engine, a_job())

    assert chunks[-1].finish == Finish("stop")


@pytest.mark.parametrize(
    ("play", "expected"),
    [
        (
            Play(
                ids=(1, 2, 3),
                incidents=(Incident(after=2, status=Status(code="INTERNAL", message="boom")),),
            ),
            WorkerError,
        ),
        (
            # The pauses let the chunks arrive: a reset throws away what was not read.
            Play(ids=(1, 2, 3), delay="50ms", incidents=(Incident(after=2, die="reset"),)),
            WorkerLostError,
        ),
        (Play(ids=(1, 2), finish="abort"), TruncatedStreamError),
    ],
)
async def test_a04_a_failure_after_tokens_is_an_error(
    play: Play, expected: type[RouterError]
) -> None:
    """A04: an abort, a reset and a status after tokens all raise; none is a stop."""
    async with a_pair(plays(play)) as (_, engine):
        stream = engine.generate(a_job())
        async with aclosing(stream):
            got = [await anext(stream), await anext(stream)]
            with pytest.raises(RouterError) as failure:
                await anext(stream)

    assert type(failure.value) is expected
    assert ids(got) == (1, 2)
    assert all(chunk.finish is None for chunk in got)


@pytest.mark.parametrize("stream", [True, False])
async def test_a09_closing_reaches_the_worker(*, stream: bool) -> None:
    """A09: a stream that is closed early is cancelled at the worker, without Abort."""
    job = a_job(stream=stream)
    async with a_pair(plays(Play(ids=(1, 2, 3), delay="10s"))) as (worker, engine):
        chunks = engine.generate(job)
        waiting = asyncio.ensure_future(anext(chunks))
        await worker.wait_for_requests(1)
        if stream:
            await waiting
        await chunks.aclose()
        await worker.wait_for_cancel(job.id)
        await asyncio.gather(waiting, return_exceptions=True)

        assert worker.aborted == []


async def test_a09_a_cancelled_consumer_reaches_the_worker_before_the_first_token() -> None:
    """A09: a task that is cancelled while it waits ends the worker's call, n = 2 included."""
    job = a_job(n=2)
    async with a_pair(plays(Play(ids=(1, 2), first_delay="10s"))) as (worker, engine):
        task = asyncio.ensure_future(all_of(engine, job))
        await worker.wait_for_requests(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await worker.wait_for_cancel(job.id)

        assert worker.aborted == []


async def test_finished_calls_are_not_cancelled() -> None:
    """A09: after a normal completion the worker hears nothing more, however the race goes."""
    async with a_pair(plays(Play(ids=(1, 2)))) as (worker, engine):
        await asyncio.gather(*(all_of(engine, a_job()) for _ in range(100)))
        await worker.recorder.wait_until(lambda: len(worker.recorder.finished) == 100, 5)

        assert worker.cancelled == []
        assert worker.aborted == []


async def test_a_call_that_is_complete_but_does_not_end_is_ended() -> None:
    """A worker that holds the status back delays the client by the linger, not by more."""
    job = a_job()
    play = Play(ids=(1, 2), incidents=(Incident(after="complete", hang=True),))
    async with a_pair(plays(play), deadlines=Deadlines(linger=0.05)) as (worker, engine):
        async with asyncio.timeout(2):
            chunks = await all_of(engine, job)
        await worker.wait_for_cancel(job.id)

    assert ids(chunks) == (1, 2)


async def test_nothing_is_sent_before_the_first_chunk_is_asked_for() -> None:
    """A stream that is made and closed never meets the worker."""
    async with a_pair(Script()) as (worker, engine):
        stream = engine.generate(a_job())
        await stream.aclose()
        await stream.aclose()

        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert worker.requests == []


async def test_whole_choices_are_numbered_by_arrival() -> None:
    """N = 2 without streaming: the wire says index 0 twice, the chunks say 0 and 1."""
    async with a_pair(plays(Play(ids=(1,)), Play(ids=(2,)))) as (_, engine):
        chunks = await all_of(engine, a_job(n=2, stream=False))

    assert [(chunk.index, chunk.token_ids) for chunk in chunks] == [(0, (1,)), (1, (2,))]


async def test_streamed_choices_keep_their_index() -> None:
    """N = 2 streamed: each choice's ids are its own, and both finish."""
    async with a_pair(plays(Play(ids=(1, 2)), Play(ids=(8, 9)))) as (_, engine):
        chunks = await all_of(engine, a_job(n=2))

    assert ids([chunk for chunk in chunks if chunk.index == 0]) == (1, 2)
    assert ids([chunk for chunk in chunks if chunk.index == 1]) == (8, 9)
    assert sum(chunk.finish is not None for chunk in chunks) == 2


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status(code="UNAVAILABLE", message="The request queue is full."), WorkerBusyError),
        (Status(code="RESOURCE_EXHAUSTED", message="busy"), WorkerBusyError),
        (Status(code="UNAVAILABLE", message="gone"), WorkerLostError),
        (Status(code="INVALID_ARGUMENT", message="bad regex"), WorkerRefusedError),
        (Status(code="INTERNAL", message="Request aborted"), WorkerError),
        (Status(code="DEADLINE_EXCEEDED", message="late"), DeadlineExceededError),
    ],
)
async def test_a_status_is_an_error_of_its_kind(
    status: Status, expected: type[RouterError]
) -> None:
    """The worker's status decides the error, before any token."""
    async with a_pair(plays(Play(ids=(1,), incidents=(Incident(status=status),)))) as (_, engine):
        with pytest.raises(RouterError) as failure:
            await all_of(engine, a_job())

    assert type(failure.value) is expected


async def test_a_prompt_at_the_limit_is_too_long() -> None:
    """The worker's own refusal of a long prompt is context_length_exceeded."""
    settings = WorkerSettings(context_length=16)
    job = a_job(ids=tuple(range(1, 17)))
    async with a_pair(Script(), settings=settings) as (_, engine):
        with pytest.raises(ContextLengthExceededError):
            await all_of(engine, job)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_worker_that_says_nothing_is_given_up(*, stream: bool) -> None:
    """A queue that lost the request does not hold the client for ever; the call is cancelled."""
    job = a_job(stream=stream)
    async with a_pair(plays(Play(ids=(1,), incidents=(Incident(hang=True),))), deadlines=SHORT) as (
        worker,
        engine,
    ):
        with pytest.raises(DeadlineExceededError):
            await all_of(engine, job)
        await worker.wait_for_cancel(job.id)


async def test_a_stream_that_falls_silent_is_given_up() -> None:
    """The idle deadline counts from the last message."""
    play = Play(ids=(1, 2, 3), incidents=(Incident(after=1, hang=True),))
    deadlines = Deadlines(idle=0.1)
    async with a_pair(plays(play), deadlines=deadlines) as (_, engine):
        stream = engine.generate(a_job())
        async with aclosing(stream):
            await anext(stream)
            with pytest.raises(DeadlineExceededError, match="another token"):
                await anext(stream)


async def test_a_slow_stream_ends_at_its_total() -> None:
    """Tokens that keep coming do not extend the whole."""
    deadlines = Deadlines(idle=5, total=0.3)
    play = Play(ids=tuple(range(1, 100)), delay="20ms")
    async with a_pair(plays(play), deadlines=deadlines) as (_, engine):
        with pytest.raises(DeadlineExceededError):
            await all_of(engine, a_job())
