"""Dispatch: who gets a job, who gets it next, and what the client hears when nobody can."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from sglr_dataplane.errors import (
    ContextLengthExceededError,
    DeadlineExceededError,
    NoAvailableWorkersError,
    RouterError,
    TruncatedStreamError,
    WorkerBusyError,
    WorkerError,
    WorkerLostError,
    WorkerRefusedError,
)
from sglr_proto.backend import Timeouts
from support.dispatching import (
    BROKEN,
    BUSY,
    INVALID,
    LOST,
    REFUSED,
    Ledger,
    a_dispatcher,
    all_of,
    in_flight,
)
from support.engines import (
    HANG,
    HI,
    FakeClock,
    ScriptedEngine,
    Step,
    a_finish,
)
from support.fleets import KEY, a_backend, a_job, a_registry


async def test_a_job_gets_the_chunks_of_its_worker() -> None:
    """The first chunk, which was waited for, comes first and once."""
    engine = ScriptedEngine(HI)
    registry = a_registry({"w1": engine})
    ledger = Ledger()

    stream = await a_dispatcher(registry, ledger).dispatch(KEY, a_job())
    assert in_flight(registry) == 1
    chunks = await all_of(stream)

    assert [chunk.token_ids for chunk in chunks] == [(1,), (2,), ()]
    assert ledger.entries == [("w1", "succeeded")]
    assert in_flight(registry) == 0


async def test_a10_a_dead_worker_is_left_for_another() -> None:
    """A10: the second attempt goes to a worker not tried yet; the dead one is charged once."""
    engines = {"w1": ScriptedEngine([REFUSED]), "w2": ScriptedEngine(HI)}
    registry = a_registry(engines)
    ledger = Ledger()

    chunks = await all_of(await a_dispatcher(registry, ledger).dispatch(KEY, a_job()))

    assert len(chunks) == 3
    assert ledger.entries == [("w1", "failed"), ("w2", "succeeded")]
    assert [len(engine.jobs) for engine in engines.values()] == [1, 1]
    assert registry.workers()[0].suspect


async def test_a10_every_worker_is_tried_once_and_then_503() -> None:
    """A10: with all workers dead the client hears 503, once, and nobody was asked twice."""
    engines = {f"w{n}": ScriptedEngine([REFUSED]) for n in range(4)}
    registry = a_registry(engines)

    with pytest.raises(NoAvailableWorkersError) as failure:
        await a_dispatcher(registry).dispatch(KEY, a_job())

    assert failure.value.status == 503
    assert failure.value.retry_after == 1
    assert [len(engine.jobs) for engine in engines.values()] == [1, 1, 1, 1]
    assert in_flight(registry) == 0


async def test_a10_a_suspect_worker_is_passed_over_until_it_is_all_there_is() -> None:
    """A10: after a failure other jobs avoid the worker, but it is not written off."""
    engines = {"w1": ScriptedEngine([REFUSED], HI), "w2": ScriptedEngine(HI)}
    registry = a_registry(engines)
    dispatcher = a_dispatcher(registry)

    for _ in range(4):
        await all_of(await dispatcher.dispatch(KEY, a_job()))
    before = len(engines["w1"].jobs)
    registry.workers()[1].became_unhealthy("It is gone.")
    await all_of(await dispatcher.dispatch(KEY, a_job()))

    assert before == 1
    assert len(engines["w1"].jobs) == 2


async def test_a14_nobody_there_names_the_model_and_the_counts() -> None:
    """A14: no worker is 503 no_available_workers, with the model and how many there are."""
    registry = a_registry({"w1": ScriptedEngine(), "w2": ScriptedEngine()}, ready=False)
    for worker in registry.workers():
        worker.was_judged()

    with pytest.raises(NoAvailableWorkersError) as failure:
        await a_dispatcher(registry).dispatch(KEY, a_job(model="qwen"))

    assert failure.value.message == "No worker of model 'qwen' is available: 2 known, 0 ready."
    assert failure.value.code == "no_available_workers"
    assert failure.value.retry_after == 1


async def test_a14_a_backend_that_is_gone_is_503_too() -> None:
    """A14: a backend that was removed between lookup and dispatch has no workers."""
    with pytest.raises(NoAvailableWorkersError, match="0 known, 0 ready"):
        await a_dispatcher(a_registry({})).dispatch("default/gone", a_job())


async def test_a_job_that_took_a_worker_down_is_replayed_once() -> None:
    """A connection that dies under a job is tried on a second worker and never on a third."""
    engines = {f"w{n}": ScriptedEngine([LOST]) for n in range(3)}
    registry = a_registry(engines)
    ledger = Ledger()

    with pytest.raises(NoAvailableWorkersError, match="stayed up: 3 known, 1 ready, 2 tried"):
        await a_dispatcher(registry, ledger).dispatch(KEY, a_job())

    assert [len(engine.jobs) for engine in engines.values()] == [1, 1, 0]
    assert ledger.entries == [("w0", "failed"), ("w1", "failed")]


async def test_an_error_has_a_second_opinion_and_no_third() -> None:
    """A worker's error before the first token is tried once more, then it is a 502."""
    engines = {f"w{n}": ScriptedEngine([BROKEN]) for n in range(3)}

    with pytest.raises(WorkerError) as failure:
        await a_dispatcher(a_registry(engines)).dispatch(KEY, a_job())

    assert failure.value.status == 502
    assert [len(engine.jobs) for engine in engines.values()] == [1, 1, 0]


async def test_the_only_workers_error_stays_an_error() -> None:
    """With nobody else to ask, a worker's error is a 502 and not "no workers"."""
    with pytest.raises(WorkerError) as failure:
        await a_dispatcher(a_registry({"w1": ScriptedEngine([BROKEN])})).dispatch(KEY, a_job())

    assert failure.value is BROKEN


@pytest.mark.parametrize(
    "refusal", [INVALID, ContextLengthExceededError("Too long."), DeadlineExceededError("Late.")]
)
async def test_what_another_worker_cannot_mend_is_not_retried(refusal: RouterError) -> None:
    """Refusals and deadlines reach the client from the first worker."""
    engines = {"w1": ScriptedEngine([refusal]), "w2": ScriptedEngine(HI)}

    with pytest.raises(type(refusal)):
        await a_dispatcher(a_registry(engines)).dispatch(KEY, a_job())

    assert engines["w2"].jobs == []


async def test_a12_a_refusal_says_nothing_about_the_worker() -> None:
    """A12: a bad request is no failure of the worker, nor makes it suspect."""
    registry = a_registry({"w1": ScriptedEngine([INVALID])})
    ledger = Ledger()

    with pytest.raises(WorkerRefusedError):
        await a_dispatcher(registry, ledger).dispatch(KEY, a_job())

    assert ledger.entries == [("w1", "abandoned")]
    assert not registry.workers()[0].suspect


async def test_a13_busy_everywhere_is_busy_and_no_failure() -> None:
    """A13: full queues are tried one by one, answered as busy, and charged to nobody."""
    registry = a_registry({"w1": ScriptedEngine([BUSY], HI), "w2": ScriptedEngine([BUSY], HI)})
    ledger = Ledger()
    dispatcher = a_dispatcher(registry, ledger)

    with pytest.raises(WorkerBusyError) as failure:
        await dispatcher.dispatch(KEY, a_job())
    chunks = await all_of(await dispatcher.dispatch(KEY, a_job()))

    assert failure.value.retry_after == 1
    assert ledger.entries[:2] == [("w1", "abandoned"), ("w2", "abandoned")]
    assert len(chunks) == 3


async def test_a04_a_failure_after_the_first_chunk_is_not_retried() -> None:
    """A04: what was shown cannot be said again; the failure reaches the client."""
    engines = {"w1": ScriptedEngine([1, LOST]), "w2": ScriptedEngine(HI)}
    registry = a_registry(engines)
    ledger = Ledger()

    stream = await a_dispatcher(registry, ledger).dispatch(KEY, a_job())
    async with aclosing(stream):
        first = await anext(stream)
        with pytest.raises(WorkerLostError):
            await anext(stream)

    assert first.token_ids == (1,)
    assert engines["w2"].jobs == []
    assert ledger.entries == [("w1", "failed")]
    assert registry.workers()[0].suspect


async def test_a_stream_without_a_single_chunk_is_a_truncation() -> None:
    """An engine that ends before it begins has not answered."""
    with pytest.raises(TruncatedStreamError):
        await a_dispatcher(a_registry({"w1": ScriptedEngine([])})).dispatch(KEY, a_job())


async def test_all_attempts_share_one_deadline() -> None:
    """A job that hangs is a 504 when its time is over; the worker is charged and freed."""
    registry = a_registry(
        {"w1": ScriptedEngine([HANG]), "w2": ScriptedEngine(HI)},
        backend=a_backend(timeouts=Timeouts(request="50ms")),
    )
    ledger = Ledger()

    with pytest.raises(DeadlineExceededError) as failure:
        await a_dispatcher(registry, ledger).dispatch(KEY, a_job())

    assert failure.value.status == 504
    assert ledger.entries == [("w1", "failed")]
    assert in_flight(registry) == 0


async def test_a_stream_that_outlives_its_time_is_ended() -> None:
    """The total deadline holds after the first chunk, too."""
    clock = FakeClock()
    engine = ScriptedEngine([1, 2, 3, a_finish()])
    backend = a_backend(timeouts=Timeouts(request="60s"))
    registry = a_registry({"w1": engine}, backend=backend, clock=clock)
    dispatcher = a_dispatcher(registry, clock=clock)

    stream = await dispatcher.dispatch(KEY, a_job())
    async with aclosing(stream):
        await anext(stream)
        clock.pass_by(60)
        with pytest.raises(DeadlineExceededError):
            await anext(stream)

    assert in_flight(registry) == 0
    assert engine.running == 0


async def test_a09_a_client_that_leaves_before_the_first_chunk_frees_the_worker() -> None:
    """A09: cancelling the dispatch ends the engine's stream and the lease, and blames nobody."""
    engine = ScriptedEngine([HANG])
    registry = a_registry({"w1": engine})
    ledger = Ledger()

    task = asyncio.ensure_future(a_dispatcher(registry, ledger).dispatch(KEY, a_job()))
    await asyncio.sleep(0)
    await engine.streams[0].waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ledger.entries == [("w1", "abandoned")]
    assert in_flight(registry) == 0
    assert engine.running == 0
    assert not registry.workers()[0].suspect


async def test_a09_closing_half_way_frees_the_worker() -> None:
    """A09: a stream that is closed after two chunks ends at the engine."""
    engine = ScriptedEngine([1, 2, HANG])
    registry = a_registry({"w1": engine})
    ledger = Ledger()

    stream = await a_dispatcher(registry, ledger).dispatch(KEY, a_job())
    await anext(stream)
    await stream.aclose()
    await stream.aclose()

    assert ledger.entries == [("w1", "abandoned")]
    assert in_flight(registry) == 0
    assert engine.running == 0
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_closing_after_every_finish_is_a_success() -> None:
    """Who stops reading at the last finish has had the whole answer."""
    acts: list[Step] = [1, a_finish(0), a_finish(1)]
    registry = a_registry({"w1": ScriptedEngine(acts)})
    ledger = Ledger()

    stream = await a_dispatcher(registry, ledger).dispatch(KEY, a_job(n=2))
    for _ in acts:
        await anext(stream)
    await stream.aclose()

    assert ledger.entries == [("w1", "succeeded")]


async def test_a45_a_stream_that_is_dropped_unclosed_gives_its_worker_back() -> None:
    """A45: even a bug in a caller leaks no count, and is told as a ResourceWarning."""
    registry = a_registry({"w1": ScriptedEngine(HI)})
    kept = [await a_dispatcher(registry).dispatch(KEY, a_job())]

    with pytest.warns(ResourceWarning, match="never closed"):
        kept.clear()

    assert in_flight(registry) == 0
