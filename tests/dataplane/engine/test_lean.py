"""The lean client and the grpcio client hear the same, whatever the worker plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from sglr_dataplane.engine import Engine
from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.lean import lean_engine
from sglr_dataplane.engine.sglang import SGLangEngine
from sglr_dataplane.errors import RouterError, WorkerBusyError, WorkerUnavailableError
from sglr_dataplane.job import Chunk, Constraint, Job, Sampling, new_job_id
from sglr_dataplane.sim.script import (
    CompleteStyle,
    HealthChange,
    Incident,
    Play,
    RpcFault,
    Script,
    Status,
    StatusCode,
)
from sglr_dataplane.sim.settings import WorkerSettings
from sglr_dataplane.sim.worker import SimWorker
from support.pairs import a_job, plays

SHORT = Deadlines(
    connect=0.3, first_token=0.3, idle=0.3, total=0.6, linger=0.1, probe=0.3, facts=0.3
)
Conversation = tuple[list[Chunk], str]
"""Every chunk, and how the stream ended: ``end``, or class and sentence of the error."""


async def converse(engine: Engine, job: Job) -> Conversation:
    """Return what *engine* hears of *job*."""
    chunks: list[Chunk] = []
    try:
        async with aclosing(engine.generate(job)) as stream:
            async for chunk in stream:
                chunks.append(chunk)  # noqa: PERF401  # what came before a failure counts
    except RouterError as failure:
        return chunks, f"{type(failure).__name__}: {failure}"
    return chunks, "end"


async def by_both(
    script: Script, job: Job, deadlines: Deadlines | None = None
) -> tuple[Conversation, Conversation]:
    """Return what the lean and the grpcio client hear of the same job, each of its own worker."""
    async with (
        SimWorker(None, script) as worker,
        aclosing(lean_engine(worker.address, deadlines=deadlines)) as engine,
    ):
        lean = await converse(engine, job)
    async with (
        SimWorker(None, script) as worker,
        aclosing(SGLangEngine(worker.address, deadlines=deadlines)) as reference,
    ):
        return lean, await converse(reference, job)


LONG = tuple(range(1, 400))
BIG_IDS = (0, 127, 128, 16_383, 16_384, 2**21 - 1, 2**21, 2**32 - 1)
STYLES: tuple[CompleteStyle, ...] = (
    "repeat_last",
    "all",
    "only",
    "last_only",
    "last_and_all",
    "empty",
    "missing",
)
CODES: tuple[StatusCode, ...] = (
    "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
    "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
SCRIPTS: dict[str, Script] = {
    "one token a chunk": plays(Play(ids=LONG)),
    "ids of every size": plays(Play(ids=BIG_IDS)),
    "three tokens a chunk": plays(Play(ids=LONG, chunk_size=3)),
    "all tokens in one chunk": plays(Play(ids=LONG, chunk_size=0)),
    "chunks of any size": plays(Play(chunks=((1,), (), (2, 3, 4), tuple(range(300))))),
    "no tokens": plays(Play(ids=())),
    "cumulative": plays(Play(ids=(7, 8, 9), cumulative=True)),
    "counters that fit nothing": plays(Play(ids=(7, 8, 9), count_offset=5)),
    "slow": plays(Play(ids=(1, 2, 3), first_delay="20ms", delay="10ms")),
    "two choices": plays(Play(ids=(1, 2)), Play(ids=(3, 4, 5))),
    "length": plays(Play(ids=(1,), finish="length")),
    "abort": plays(Play(ids=(1, 2), finish="abort")),
    "no reason": plays(Play(ids=(1, 2), finish="")),
    "a stop token": plays(Play(ids=(1, 2), matched=2)),
    "a stop string": plays(Play(ids=(1, 2), matched="stöp")),
    "the assistant": Script(),
    **{f"complete: {style}": plays(Play(ids=(1, 2, 3), complete=style)) for style in STYLES},
    **{
        f"{code} after {after}": plays(
            Play(
                ids=(1, 2, 3),
                incidents=(
                    Incident(after=after, status=Status(code=code, message="no: ü 100 %\n2")),
                ),
            )
        )
        for code in CODES
        for after in (0, 2)
    },
    "OK without completion": plays(
        Play(ids=(1, 2), incidents=(Incident(after=1, status=Status(code="OK")),))
    ),
    "a full queue": plays(
        Play(
            ids=(1,),
            incidents=(
                Incident(status=Status(code="UNAVAILABLE", message="The request queue is full.")),
            ),
        )
    ),
    "trailers": plays(
        Play(
            ids=(1,),
            incidents=(
                Incident(
                    after=1,
                    status=Status(code="FAILED_PRECONDITION", trailers={"smg-x": "engine"}),
                ),
            ),
        )
    ),
    "a reset before": plays(Play(ids=(1, 2, 3), incidents=(Incident(die="reset"),))),
    "an rpc that is not served": Script(
        rpcs={"Generate": RpcFault(status=Status(code="UNIMPLEMENTED"))}
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_both_clients_hear_the_same(name: str) -> None:
    """Chunk for chunk, and the same end: streamed, whole, and with two choices."""
    for job in (a_job(), a_job(stream=False), a_job(n=2)):
        lean, reference = await by_both(SCRIPTS[name], job)

        assert lean == reference


async def test_both_clients_lose_a_connection_alike() -> None:
    """After a reset the end is the same; what the kernel threw away may differ."""
    script = plays(Play(ids=(1, 2, 3), incidents=(Incident(after=2, die="reset"),)))

    lean, reference = await by_both(script, a_job())

    assert lean[1] == reference[1]
    assert lean[1].startswith("WorkerLostError")
    shorter, longer = sorted((lean[0], reference[0]), key=len)
    assert longer[: len(shorter)] == shorter


@pytest.mark.parametrize(
    ("play", "stream"),
    [
        (Play(ids=(1, 2), first_delay="20s"), True),
        (Play(ids=(1, 2), delay="20s"), True),
        (Play(ids=LONG, delay="100ms"), True),
        (Play(ids=(1, 2), first_delay="20s"), False),
        (Play(ids=(1, 2), incidents=(Incident(after=1, hang=True),)), True),
    ],
    ids=["no first token", "no second token", "too slow in all", "nothing at all", "hang"],
)
async def test_both_clients_give_up_alike(play: Play, *, stream: bool) -> None:
    """The same deadline ends both, for the same reason."""
    lean, reference = await by_both(plays(play), a_job(stream=stream), SHORT)

    # grpcio's client names what was left of the total, which differs by its own microseconds.
    assert lean[1].split(" within ")[0] == reference[1].split(" within ")[0]
    assert lean[1].startswith("DeadlineExceededError")


@pytest.mark.parametrize(
    "job",
    [
        Job(new_job_id(), "m", tuple(range(9_000))),
        Job(new_job_id(), "m", (1, 2), Sampling(constraint=Constraint("regex", "a(")) ),
        Job(new_job_id(), "m", (1, 2), Sampling(stop=("a",) * 33)),
        Job(new_job_id(), "m", (1, 2), Sampling(max_new_tokens=0)),
        Job(new_job_id(), "m", (1, 2), Sampling(max_new_tokens=3, stop_token_ids=(7,))),
    ],
    ids=["too long", "a bad grammar", "too many stops", "no tokens wanted", "three wanted"],
)  # fmt: skip
async def test_both_clients_ask_alike(job: Job) -> None:
    """The worker sees the same request, and answers or refuses it alike."""
    async with SimWorker() as worker:
        async with (
            aclosing(lean_engine(worker.address)) as lean,
            aclosing(SGLangEngine(worker.address)) as reference,
        ):
            heard = [await converse(engine, job) for engine in (lean, reference)]

        assert heard[0][1] == heard[1][1]
        assert worker.requests[0] == worker.requests[1]


HEALTH: dict[str, Script] = {
    "serving": Script(),
    "warming up": Script(warmup="20s"),
    "one name only": Script(health=(HealthChange(after="0s", serving=False, service=""),)),
    "no health service": Script(rpcs={"Check": RpcFault(status=Status(code="UNIMPLEMENTED"))}),
    "an unknown name": Script(rpcs={"Check": RpcFault(status=Status(code="NOT_FOUND"))}),
    "a broken check": Script(rpcs={"Check": RpcFault(status=Status(code="INTERNAL"))}),
    "a silent check": Script(rpcs={"Check": RpcFault(hang=True)}),
}


@pytest.mark.parametrize("name", HEALTH)
async def test_both_clients_judge_health_alike(name: str) -> None:
    """The same answer, or the same error."""

    async def ask(engine: Engine) -> str:
        try:
            return str(await engine.is_serving())
        except RouterError as failure:
            return f"{type(failure).__name__}: {failure}"

    async with (
        SimWorker(None, HEALTH[name]) as worker,
        aclosing(lean_engine(worker.address, deadlines=SHORT)) as lean,
        aclosing(SGLangEngine(worker.address, deadlines=SHORT)) as reference,
    ):
        assert await ask(lean) == await ask(reference)


FACTS: dict[str, Script] = {
    "all": Script(),
    "no GetServerInfo": Script(rpcs={"GetServerInfo": RpcFault(status=Status(code="UNIMPLEMENTED"))}),
    "a broken GetServerInfo": Script(rpcs={"GetServerInfo": RpcFault(status=Status(code="INTERNAL"))}),
    "a silent GetModelInfo": Script(rpcs={"GetModelInfo": RpcFault(hang=True)}),
    "a broken list of adapters": Script(rpcs={"ListLoadedLoRAAdapters": RpcFault(status=Status(code="INTERNAL"))}),
    "odd arguments": Script(server_args={"context_length": None, "max_running_requests": "many"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FACTS)
async def test_both_clients_learn_the_same_facts(name: str) -> None:
    """The same values, or the same error."""

    async def ask(engine: Engine) -> str:
        try:
            return repr(await engine.facts())
        except RouterError as failure:
            return f"{type(failure).__name__}: {failure}"

    async with (
        SimWorker(None, FACTS[name]) as worker,
        aclosing(lean_engine(worker.address, deadlines=SHORT)) as lean,
        aclosing(SGLangEngine(worker.address, deadlines=SHORT)) as reference,
    ):
        assert await ask(lean) == await ask(reference)


@pytest.mark.parametrize("adapters", [(), ("sql", "chat")])
async def test_both_clients_learn_which_adapters_a_worker_has(adapters: tuple[str, ...]) -> None:
    """By name, each with the worker's own id; none from a worker that has no such list."""
    async with (
        SimWorker(WorkerSettings(adapters=adapters)) as worker,
        aclosing(lean_engine(worker.address, deadlines=SHORT)) as lean,
        aclosing(SGLangEngine(worker.address, deadlines=SHORT)) as reference,
    ):
        found, expected = (await lean.facts()).adapters, (await reference.facts()).adapters

    assert found == expected
    assert [name for name, _ in found] == sorted(adapters)
    assert all(len(lora_id) == 32 for _, lora_id in found)


async def test_a49_three_hundred_streams_run_at_once() -> None:
    """A49: nothing on the way to one worker limits how many streams run; each can be ended."""
    settings = WorkerSettings(max_running_requests=300)
    script = plays(Play(ids=(1, 2), incidents=(Incident(after=1, hang=True),)))
    async with (
        SimWorker(settings, script) as worker,
        aclosing(lean_engine(worker.address)) as engine,
    ):
        streams = [engine.generate(a_job()) for _ in range(300)]
        async with asyncio.timeout(10):
            first = await asyncio.gather(*(anext(stream) for stream in streams))

        assert [chunk.token_ids for chunk in first] == [(1,)] * 300
        assert worker.recorder.finished == []
        for stream in streams:
            await stream.aclose()
        await worker.recorder.wait_until(lambda: len(worker.cancelled) == 300, 10)


async def test_a50_a_request_above_four_mebibytes_is_sent() -> None:
    """A50: 1.6 million ids reach a worker that reads up to 256 MiB, whole."""
    async with SimWorker() as worker, aclosing(lean_engine(worker.address)) as engine:
        _, end = await converse(engine, a_job(ids=tuple(range(1_600_000))))

        assert end.startswith("ContextLengthExceededError: Input length (1600000 tokens)")


async def test_a09_closing_reaches_the_worker() -> None:
    """A09: a stream that is closed early is cancelled at the worker, without Abort."""
    job = a_job()
    script = plays(Play(ids=(1, 2, 3), delay="10s"))
    async with SimWorker(None, script) as worker, aclosing(lean_engine(worker.address)) as engine:
        stream = engine.generate(job)
        await anext(stream)
        await stream.aclose()
        await worker.wait_for_cancel(job.id)

        assert worker.aborted == []
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_a09_a_cancelled_consumer_reaches_the_worker_before_the_first_token() -> None:
    """A09: a task that is cancelled while it waits ends the worker's call."""
    job = a_job(n=2)
    script = plays(Play(ids=(1, 2), first_delay="10s"))
    async with SimWorker(None, script) as worker, aclosing(lean_engine(worker.address)) as engine:
        task = asyncio.ensure_future(converse(engine, job))
        await worker.wait_for_requests(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await worker.wait_for_cancel(job.id)


async def test_a09_a_finished_call_is_not_cancelled() -> None:
    """A09: after a normal completion the worker hears nothing more."""
    job = a_job()
    script = plays(Play(ids=(1, 2)))
    async with SimWorker(None, script) as worker, aclosing(lean_engine(worker.address)) as engine:
        await converse(engine, job)
        await worker.recorder.wait_until(lambda: job.id in worker.recorder.finished, 2)

        assert worker.cancelled == []


async def test_nothing_is_sent_before_the_first_chunk_is_asked_for() -> None:
    """A stream that is made and closed never meets the worker."""
    async with SimWorker() as worker, aclosing(lean_engine(worker.address)) as engine:
        stream = engine.generate(a_job())
        await stream.aclose()
        await stream.aclose()

        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert worker.requests == []


async def test_closing_the_engine_ends_its_streams() -> None:
    """Running streams end with WorkerUnavailableError, and none begins any more."""
    script = plays(Play(ids=(1, 2), delay="10s"))
    async with SimWorker(None, script) as worker:
        engine = lean_engine(worker.address)
        stream = engine.generate(a_job())
        await anext(stream)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        await engine.aclose()

        for late in (waiting, anext(engine.generate(a_job()))):
            with pytest.raises(WorkerUnavailableError) as failure:
                await late
            assert type(failure.value) is WorkerUnavailableError


async def test_an_address_can_be_ipv6() -> None:
    """Brackets belong to the address, not to the host."""
    engine = lean_engine("[::1]:30000")

    assert (engine.channel.host, engine.channel.port) == ("::1", 30_000)


@pytest.mark.parametrize("kind", [lean_engine, SGLangEngine])
async def test_a_full_worker_says_how_long_it_wants_to_be_left_alone(
    kind: Callable[[str], Engine],
) -> None:
    """In its trailers; both clients read it."""
    full = Status(
        code="UNAVAILABLE", message="The request queue is full.", trailers={"retry-after-ms": "700"}
    )
    script = Script(rpcs={"Generate": RpcFault(status=full)})
    async with (
        SimWorker(None, script) as worker,
        aclosing(kind(worker.address)) as engine,
        aclosing(engine.generate(a_job())) as stream,
    ):
        with pytest.raises(WorkerBusyError) as failure:
            await anext(aiter(stream))

    assert failure.value.pause == 0.7
