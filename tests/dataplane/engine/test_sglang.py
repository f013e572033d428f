"""The grpcio client against a simulated worker, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

import pytest

from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.sglang import SGLangEngine
from sglr_dataplane.errors import (
    ContextLengthExceededError,
    DeadlineExceededError,
    RouterError,
    TruncatedStreamError,
    WorkerBusyError,
    WorkerError,
    WorkerLostError,
    WorkerRefusedError,
    WorkerUnavailableError,
)
from sglr_dataplane.job import Chunk, Finish, Job, Sampling, new_job_id
from sglr_dataplane.sim.script import Incident, Play, RpcFault, Rule, Script, Status
from sglr_dataplane.sim.settings import WorkerSettings
from sglr_dataplane.sim.worker import SimWorker

SURE, DOT = 39814, 13
SHORT = Deadlines(
    connect=0.3, first_token=0.2, idle=0.2, total=0.3, linger=0.1, probe=0.2, facts=0.2
)


def a_job(*, n: int = 1, stream: bool = True, ids: tuple[int, ...] = (1, 2)) -> Job:
    """Return a job no other test has."""
    return Job(id=new_job_id(), model="sim", input_ids=ids, sampling=Sampling(n=n), stream=stream)


def plays(play: Play, *others: Play) -> Script:
    """Return a script that answers everything with *play*; choice by choice if there are more."""
    return Script(rules=(Rule(play=(play, *others)),))


@asynccontextmanager
async def a_pair(
    script: Script, *, deadlines: Deadlines | None = None, settings: WorkerSettings | None = None
) -> AsyncGenerator[tuple[SimWorker, SGLangEngine]]:
    """Run a worker with *script* and an engine that is its client."""
    async with SimWorker(settings, script) as worker:
        engine = SGLangEngine(worker.address, deadlines=deadlines)
        async with aclosing(engine):
            yield worker, engine


async def all_of(engine: SGLangEngine, job: Job) -> list[Chunk]:
    """Return every chunk of *job*."""
    async with aclosing(engine.generate(job)) as stream:
        return [chunk async for chunk in stream]


def ids(chunks: list[Chunk]) -> tuple[int, ...]:
    """Return all token ids of *chunks*."""
    return tuple(token for chunk in chunks for token in chunk.token_ids)


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


async def test_a_refused_connection_is_unavailable_and_not_lost() -> None:
    """Nobody listens: the job was never seen, so it cannot be to blame."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with aclosing(SGLangEngine(f"127.0.0.1:{port}")) as engine:
        with pytest.raises(WorkerUnavailableError) as failure:
            await all_of(engine, a_job())
        with pytest.raises(WorkerUnavailableError):
            await engine.is_serving()
        with pytest.raises(WorkerUnavailableError):
            await engine.facts()

    assert type(failure.value) is WorkerUnavailableError
    assert "127.0.0.1" not in failure.value.message


async def test_a_peer_that_never_speaks_is_given_up_within_the_connect_deadline() -> None:
    """A connection without HTTP/2 behind it ends at the connect deadline, not at the first token's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        engine = SGLangEngine(f"127.0.0.1:{port}", deadlines=Deadlines(connect=0.2))
        async with aclosing(engine), asyncio.timeout(5):
            with pytest.raises(WorkerUnavailableError):
                await all_of(engine, a_job())


async def test_a_worker_that_comes_back_is_used_again() -> None:
    """The same engine answers after the worker was gone for a while."""
    async with SimWorker(script=plays(Play(ids=(1,)))) as worker:
        port = int(worker.address.rpartition(":")[2])
        engine = SGLangEngine(worker.address)
        assert ids(await all_of(engine, a_job())) == (1,)
    async with aclosing(engine), asyncio.timeout(10):
        with pytest.raises(WorkerUnavailableError):
            await all_of(engine, a_job())
        async with SimWorker(WorkerSettings(port=port), plays(Play(ids=(2,)))):
            chunks: list[Chunk] = []
            while not chunks:
                with contextlib.suppress(WorkerUnavailableError):
                    chunks = await all_of(engine, a_job())
                await asyncio.sleep(0.01)

    assert ids(chunks) == (2,)


async def test_health_needs_both_names() -> None:
    """A process that is up with a scheduler that is stuck is not serving."""
    async with a_pair(Script()) as (worker, engine):
        assert await engine.is_serving()
        worker.set_serving(False, "sglang.grpc.scheduler.SglangScheduler")
        assert not await engine.is_serving()
        worker.set_serving(True)
        worker.set_serving(False, "")
        assert not await engine.is_serving()


async def test_a_health_check_has_its_own_deadline() -> None:
    """A probe that hangs ends at the probe's deadline."""
    script = Script(rpcs={"Check": RpcFault(hang=True)})
    async with a_pair(script, deadlines=Deadlines(probe=0.1)) as (_, engine):
        with pytest.raises(DeadlineExceededError):
            await engine.is_serving()


async def test_facts_are_the_trustworthy_ones() -> None:
    """Name, limits and version as the worker was started; none of its wrong defaults."""
    settings = WorkerSettings(model_name="qwen", context_length=8192)
    async with a_pair(Script(), settings=settings) as (_, engine):
        facts = await engine.facts()

    assert facts.served_model_name == "qwen"
    assert facts.max_req_input_len == 8186
    assert facts.context_length == 8192
    assert facts.max_running_requests == 32
    assert facts.version


async def test_facts_do_without_the_optional_rpc() -> None:
    """UNIMPLEMENTED on GetServerInfo is a missing capability, not a failure."""
    missing = RpcFault(status=Status(code="UNIMPLEMENTED", message="Method not implemented!"))
    async with a_pair(Script(rpcs={"GetServerInfo": missing})) as (_, engine):
        facts = await engine.facts()

    assert facts.max_req_input_len == 8186
    assert facts.context_length is None
    assert facts.version == ""


async def test_facts_that_fail_are_an_error() -> None:
    """What the model is must be known: a failing GetModelInfo is told."""
    broken = RpcFault(status=Status(code="INTERNAL", message="not yet"))
    async with a_pair(Script(rpcs={"GetModelInfo": broken})) as (_, engine):
        with pytest.raises(WorkerError):
            await engine.facts()


async def test_closing_the_engine_ends_its_streams() -> None:
    """Running streams hear that the worker left; they are not cancelled tasks."""
    async with a_pair(plays(Play(ids=(1, 2), delay="10s"))) as (_, engine):
        stream = engine.generate(a_job())
        async with aclosing(stream):
            await anext(stream)
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            await engine.aclose()
            with pytest.raises(WorkerUnavailableError):
                await waiting
        with pytest.raises(WorkerUnavailableError):
            await all_of(engine, a_job())


async def test_a50_a_request_above_four_mebibytes_is_sent() -> None:
    """A50: grpc's 4 MiB default is not ours, in either direction."""
    many = tuple([70_000] * 1_500_000)
    settings = WorkerSettings(context_length=2_000_000, vocab_size=100_000)
    async with a_pair(plays(Play(ids=many, chunk_size=0)), settings=settings) as (_, engine):
        chunks = await all_of(engine, a_job(ids=many, stream=False))

    assert sum(len(chunk.token_ids) for chunk in chunks) == 1_500_000
