"""A job's chunks in batches: one call a read, back-pressure, deadlines, and odd workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

import h2.events
import pytest

from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.lean import LeanEngine, lean_engine
from sglr_dataplane.engine.lean_stream import LeanStream
from sglr_dataplane.errors import (
    DeadlineExceededError,
    TruncatedStreamError,
    WorkerError,
    WorkerLostError,
    WorkerUnavailableError,
)
from sglr_dataplane.job import Chunk, Finish, Job
from sglr_proto.sglang import scheduler_pb2 as pb
from support.h2calls import until
from support.h2illegal import CASES, Illegal
from support.h2peer import (
    DATA,
    Handler,
    Peer,
    PeerConnection,
    frame,
    h2_peer,
    head,
    message,
    settings,
    trailers,
)
from support.pairs import a_job


def a_token(job: Job, number: int, *, token: int | None = None) -> bytes:
    """Return DATA with the *number*-th token of *job*, counted from 1."""
    chunk = pb.GenerateStreamChunk(
        token_ids=[number if token is None else token], prompt_tokens=2, completion_tokens=number
    )
    answer = pb.GenerateResponse(request_id=job.id, chunk=chunk)
    return frame(DATA, 0, 1, message(answer.SerializeToString()))


def a_finish(job: Job, count: int) -> bytes:
    """Return DATA with the completion of *job* after *count* tokens."""
    complete = pb.GenerateComplete(finish_reason="stop", completion_tokens=count, prompt_tokens=2)
    answer = pb.GenerateResponse(request_id=job.id, complete=complete)
    return frame(DATA, 0, 1, message(answer.SerializeToString()))


@asynccontextmanager
async def a_worker(
    handler: Handler, deadlines: Deadlines | None = None, *, greets: bool = True
) -> AsyncGenerator[tuple[Peer, LeanEngine]]:
    """Run *handler* as a worker, and an engine that is its client."""
    async with h2_peer(handler, greets=greets) as peer:
        engine = lean_engine(f"127.0.0.1:{peer.port}", deadlines=deadlines)
        async with aclosing(engine):
            yield peer, engine


class Batches:
    """A consumer by batches."""

    def __init__(self, stream: LeanStream, *, paused: bool = False) -> None:
        """Start *stream*; a *paused* consumer drains nothing."""
        self.stream = stream
        self.paused = paused
        self.rings = 0
        self.chunks: list[Chunk] = []
        stream.start(self.listen)

    def listen(self) -> None:
        """Take what is there."""
        self.rings += 1
        if not self.paused:
            self.chunks += self.stream.drain()

    async def until_over(self) -> None:
        """Return once the stream is over."""
        await until(lambda: self.stream.is_over)


async def test_a_batch_is_what_one_read_brought() -> None:
    """Five hundred tokens and the finish in a few batches, in order; no task wakes a token."""
    job = a_job()

    async def flood(connection: PeerConnection) -> None:
        await connection.request()
        tokens = b"".join(a_token(job, number) for number in range(1, 501))
        connection.send(head() + tokens + a_finish(job, 500) + trailers())

    async with a_worker(flood) as (_, engine):
        batches = Batches(engine.generate(job))
        await batches.until_over()

    assert [chunk.token_ids for chunk in batches.chunks[:-1]] == [(n,) for n in range(1, 501)]
    assert batches.chunks[-1].finish == Finish("stop")
    assert batches.stream.failure is None
    assert batches.rings <= 5


async def test_a_flood_is_read_as_runs_behind_its_first_chunk() -> None:
    """The first chunk by iteration, the finish by itself, and all between as runs, in order."""
    job = a_job()

    async def flood(connection: PeerConnection) -> None:
        await connection.request()
        tokens = b"".join(a_token(job, number) for number in range(1, 401))
        connection.send(head() + tokens + a_finish(job, 400) + trailers())

    ids: list[int] = []
    singly: list[Chunk] = []
    over = asyncio.Event()
    async with a_worker(flood) as (_, engine), aclosing(engine.generate(job)) as stream:
        first = await anext(stream)

        def pull() -> None:
            run, chunks = stream.pull()
            ids.extend(() if run is None else run.token_ids)
            singly.extend(chunks or ())
            if stream.is_over:
                over.set()

        stream.follow(pull)
        pull()
        async with asyncio.timeout(10):
            await over.wait()

    assert (first.token_ids, ids) == ((1,), list(range(2, 401)))
    assert [(chunk.token_ids, chunk.finish) for chunk in singly] == [((), Finish("stop"))]
    assert stream.failure is None


async def test_a47_a_consumer_that_does_not_drain_stops_the_worker() -> None:
    """A47: the worker gets no further than the stream's window, and goes on after a drain."""
    job = a_job()
    sent = 0

    async def flood(connection: PeerConnection) -> None:
        nonlocal sent
        await connection.request()
        connection.h2.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
        for number in range(1, 3_001):
            content = a_token(job, number)[9:]
            while connection.h2.local_flow_control_window(1) < len(content):
                await connection.wait_for(h2.events.WindowUpdated, lambda e: e.stream_id == 1)
            connection.h2.send_data(1, content)
            connection.flush()
            sent += len(content)
        connection.send(a_finish(job, 3_000) + trailers())

    async with a_worker(flood) as (peer, engine):
        batches = Batches(engine.generate(job), paused=True)
        await until(lambda: bool(sent and peer.connections[0].h2.local_flow_control_window(1) < 60))
        held = sent
        assert batches.chunks == []
        batches.paused = False
        batches.listen()
        await batches.until_over()

    assert 32_768 - 60 < held <= 32_768
    assert [chunk.token_ids for chunk in batches.chunks[:-1]] == [(n,) for n in range(1, 3_001)]


async def test_a_paused_consumer_is_no_idle_worker() -> None:
    """The idle deadline counts the worker's silence, not the client's."""
    job = a_job()
    deadlines = Deadlines(first_token=0.05, idle=0.05)

    async def two_tokens(connection: PeerConnection) -> None:
        await connection.request()
        connection.send(head() + a_token(job, 1))
        await asyncio.sleep(0.2)
        connection.send(a_finish(job, 1) + trailers())

    async with a_worker(two_tokens, deadlines) as (_, engine):
        batches = Batches(engine.generate(job), paused=True)
        await until(lambda: batches.rings >= 2)
        batches.paused = False
        batches.listen()

        assert batches.stream.is_over
        assert batches.stream.failure is None
        assert [chunk.token_ids for chunk in batches.chunks] == [(1,), ()]


async def test_what_came_before_a_failure_is_returned_with_it() -> None:
    """Two tokens, then a lost connection: the drain that notices the failure has both."""
    job = a_job()

    async def die(connection: PeerConnection) -> None:
        await connection.request()
        connection.send(head() + a_token(job, 1) + a_token(job, 2))
        connection.close()

    async with a_worker(die) as (_, engine):
        batches = Batches(engine.generate(job))
        await batches.until_over()

    assert [chunk.token_ids for chunk in batches.chunks] == [(1,), (2,)]
    assert isinstance(batches.stream.failure, WorkerLostError)


async def test_a_deadline_rings_and_cancels() -> None:
    """A worker that says nothing is given up: the consumer hears of it, and so does the worker."""

    async def ignore(connection: PeerConnection) -> None:
        connection.send(head(await connection.request()))

    async with a_worker(ignore, Deadlines(first_token=0.1)) as (peer, engine):
        batches = Batches(engine.generate(a_job()))
        await batches.until_over()
        reset = await peer.connections[0].wait_for(h2.events.StreamReset)

    assert isinstance(batches.stream.failure, DeadlineExceededError)
    assert "a first token within 0.1 s" in str(batches.stream.failure)
    assert batches.rings == 1
    assert reset.error_code == 8


async def test_the_idle_deadline_begins_with_the_last_token() -> None:
    """A long wait for the first token does not lengthen the wait for the second."""
    job = a_job()

    async def one_token(connection: PeerConnection) -> None:
        await connection.request()
        connection.send(head() + a_token(job, 1))

    async with a_worker(one_token, Deadlines(first_token=10.0, idle=0.1)) as (_, engine):
        batches = Batches(engine.generate(job))
        await batches.until_over()

    assert "another token within 0.1 s" in str(batches.stream.failure)


async def test_a_closed_stream_rings_no_more() -> None:
    """After close nothing is heard of what was under way."""
    job = a_job()

    async def slow(connection: PeerConnection) -> None:
        await connection.request()
        connection.send(head() + a_token(job, 1))
        await connection.wait_for(h2.events.StreamReset)
        connection.send(a_token(job, 2))

    async with a_worker(slow) as (peer, engine):
        batches = Batches(engine.generate(job))
        await until(lambda: bool(batches.chunks))
        batches.stream.close()
        batches.stream.close()
        await peer.connections[0].until(h2.events.StreamReset)

        assert batches.rings == 1
        assert batches.stream.drain() == []


async def test_an_unreachable_worker_rings_once() -> None:
    """A channel that knows its worker to be down fails a stream at once."""

    async def hang_up(connection: PeerConnection) -> None:
        connection.close()

    async with a_worker(hang_up, greets=False) as (_, engine):
        first = Batches(engine.generate(a_job()))
        await first.until_over()
        second = Batches(engine.generate(a_job()))

        assert second.stream.is_over
        assert type(second.stream.failure) is WorkerUnavailableError
        assert (first.rings, second.rings) == (1, 1)


async def test_junk_is_a_workers_error() -> None:
    """A message that protobuf cannot read ends the stream, after what was good."""
    job = a_job()

    async def junk(connection: PeerConnection) -> None:
        await connection.request()
        connection.send(head() + a_token(job, 1) + frame(DATA, 0, 1, message(b"\xff\xff")))

    async with a_worker(junk) as (peer, engine):
        batches = Batches(engine.generate(job))
        await batches.until_over()
        await peer.connections[0].until(h2.events.StreamReset)

    assert [chunk.token_ids for chunk in batches.chunks] == [(1,)]
    assert type(batches.stream.failure) is WorkerError


async def test_a_worker_that_talks_on_after_its_finish_is_heard_out_and_cancelled() -> None:
    """The answer is whole: what follows is dropped, and the call ends after the linger."""
    job = a_job()

    async def talk(connection: PeerConnection) -> None:
        await connection.request()
        connection.send(head() + a_token(job, 1) + a_finish(job, 1) + a_token(job, 2))

    async with a_worker(talk, Deadlines(linger=0.05)) as (peer, engine):
        async with aclosing(engine.generate(job)) as stream:
            chunks = [chunk async for chunk in stream]
        reset = await peer.connections[0].wait_for(h2.events.StreamReset)

    assert [chunk.token_ids for chunk in chunks] == [(1,), ()]
    assert reset.error_code == 8


async def test_an_end_without_finish_is_a_truncation() -> None:
    """Status OK after half an answer is no stop."""
    job = a_job()

    async def stop(connection: PeerConnection) -> None:
        await connection.request()
        connection.send(head() + a_token(job, 1) + trailers())

    async with a_worker(stop) as (_, engine):
        batches = Batches(engine.generate(job))
        await batches.until_over()

    assert isinstance(batches.stream.failure, TruncatedStreamError)


async def test_closing_wakes_who_waits() -> None:
    """A consumer that waits in one task ends when another closes the stream."""

    async def ignore(connection: PeerConnection) -> None:
        await connection.request()

    async with a_worker(ignore) as (peer, engine):
        stream = engine.generate(a_job())
        waiting = asyncio.ensure_future(anext(stream))
        await (await peer.connected()).until(h2.events.StreamEnded)
        await stream.aclose()

        async with asyncio.timeout(2):
            with pytest.raises(StopAsyncIteration):
                await waiting


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_no_illegal_case_brings_a_wrong_token(case: Illegal) -> None:
    """A stream that a worker breaks HTTP/2 under has no chunk and a named error, in time."""

    async def play(connection: PeerConnection) -> None:
        if case.greets:
            connection.send(settings())
            await connection.request()
        connection.send(case.data)

    limits = Deadlines(connect=1.0, first_token=2.0, total=2.0)
    async with a_worker(play, limits, greets=False) as (_, engine):
        batches = Batches(engine.generate(a_job()))
        await batches.until_over()

    assert batches.chunks == []
    assert batches.stream.failure is not None
    assert not isinstance(batches.stream.failure, DeadlineExceededError)
