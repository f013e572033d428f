"""Dispatch under failure: breakers, retries, deadlines, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import time
from collections.abc import Sequence
from contextlib import aclosing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglr_dataplane.errors import (
    DeadlineExceededError,
    NoAvailableWorkersError,
    RouterError,
    WorkerBusyError,
    WorkerError,
    WorkerLostError,
    WorkerRefusedError,
    WorkerUnavailableError,
)
from sglr_dataplane.fleet.breaker import BreakerState
from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_dataplane.fleet.registry import Registry
from sglr_proto.backend import Retry, Timeouts
from support.dispatching import (
    BROKEN,
    BUSY,
    INVALID,
    LOST,
    REFUSED,
    DyingEngine,
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
    some_facts,
)
from support.fleets import KEY, a_backend, a_job, a_registry, a_snapshot, an_endpoint


async def test_a12_bad_requests_open_no_breaker() -> None:
    """A12: ten refusals in a row, then a good request is served, by the same worker."""
    registry = a_registry({"w1": ScriptedEngine(*[[INVALID]] * 10, HI)})
    dispatcher = a_dispatcher(registry)

    for _ in range(10):
        with pytest.raises(WorkerRefusedError):
            await dispatcher.dispatch(KEY, a_job())
    chunks = await all_of(await dispatcher.dispatch(KEY, a_job()))

    assert len(chunks) == 3
    assert registry.workers()[0].breaker.state is BreakerState.CLOSED


async def test_a13_twenty_full_queues_open_no_breaker() -> None:
    """A13: a request right after the queue has room again is served at once."""
    registry = a_registry({"w1": ScriptedEngine(*[[BUSY]] * 20, HI)})
    dispatcher = a_dispatcher(registry)

    for _ in range(20):
        with pytest.raises(WorkerBusyError):
            await dispatcher.dispatch(KEY, a_job())
    chunks = await all_of(await dispatcher.dispatch(KEY, a_job()))

    assert len(chunks) == 3
    assert registry.workers()[0].breaker.failures == 0


async def test_failures_open_the_breaker_and_the_first_chunk_closes_it() -> None:
    """A worker that fails five jobs gets none for ten seconds, then one, then all."""
    clock = FakeClock()
    engines = {"w1": ScriptedEngine(*[[BROKEN]] * 5, HI), "w2": ScriptedEngine(HI)}
    registry = a_registry(engines, clock=clock)
    dispatcher = a_dispatcher(registry, clock=clock)

    for _ in range(20):
        await all_of(await dispatcher.dispatch(KEY, a_job()))
    while_open = len(engines["w1"].jobs)
    clock.pass_by(10)
    for _ in range(4):
        await all_of(await dispatcher.dispatch(KEY, a_job()))

    assert while_open == 5
    assert len(engines["w1"].jobs) == 7
    assert registry.workers()[0].breaker.state is BreakerState.CLOSED


async def test_a_probe_whose_client_leaves_gives_its_permit_back() -> None:
    """Cancelling the half-open attempt lets the next job try the worker."""
    clock = FakeClock()
    engine = ScriptedEngine(*[[BROKEN]] * 5, [HANG], HI)
    registry = a_registry({"w1": engine}, clock=clock)
    dispatcher = a_dispatcher(registry, clock=clock)
    for _ in range(5):
        with pytest.raises(WorkerError):
            await dispatcher.dispatch(KEY, a_job())
    clock.pass_by(10)

    probe = asyncio.ensure_future(dispatcher.dispatch(KEY, a_job()))
    await asyncio.sleep(0)
    await engine.streams[-1].waiting.wait()
    probe.cancel()
    await asyncio.wait({probe})
    admitted = registry.workers()[0].breaker.admits(clock())
    await all_of(await dispatcher.dispatch(KEY, a_job()))

    assert admitted
    assert registry.workers()[0].breaker.state is BreakerState.CLOSED


async def test_a11_attempts_are_limited() -> None:
    """A11: with five dead workers and one more attempt allowed, two are asked."""
    engines = {f"w{n}": ScriptedEngine([REFUSED]) for n in range(5)}
    registry = a_registry(engines, backend=a_backend(retry=Retry(attempts=1)))

    with pytest.raises(NoAvailableWorkersError):
        await a_dispatcher(registry).dispatch(KEY, a_job())

    assert sum(len(engine.jobs) for engine in engines.values()) == 2


@pytest.mark.parametrize(
    ("failure", "attempts"),
    [
        (BROKEN, 100 + 20),
        (BUSY, 100 + 20),
        (REFUSED, 100 + 100 + 20),  # each job's first other worker, and the budget for the rest
    ],
)
async def test_a11_retries_add_no_more_load_than_the_budget(
    failure: RouterError, attempts: int
) -> None:
    """A11: with everything failing, a hundred requests have twenty retries that load workers."""
    engines = {f"w{n}": ScriptedEngine([failure]) for n in range(5)}
    clock = FakeClock()
    registry = a_registry(engines, backend=a_backend(retry=Retry()), clock=clock)
    dispatcher = a_dispatcher(registry, clock=clock)

    for _ in range(100):
        with pytest.raises(RouterError):
            await dispatcher.dispatch(KEY, a_job())

    assert sum(len(engine.jobs) for engine in engines.values()) == attempts


async def test_all_that_wait_for_a_worker_that_dies_are_answered_by_the_other() -> None:
    """Fifty jobs wait for a first token, one of two workers dies: nobody hears of it."""
    die = asyncio.Event()
    dying, other = DyingEngine(die), ScriptedEngine(HI)
    facts = dataclasses.replace(some_facts(), max_running_requests=100)
    dispatcher = a_dispatcher(a_registry({"w1": dying, "w2": other}, facts=facts))

    jobs = [asyncio.ensure_future(dispatcher.dispatch(KEY, a_job())) for _ in range(50)]
    await dying.has_jobs(25)
    die.set()
    answers = [await all_of(await job) for job in jobs]

    assert (len(dying.jobs), len(other.jobs)) == (25, 50)
    assert [len(chunks) for chunks in answers] == [3] * 50


async def test_a14_without_budget_the_client_hears_of_the_model_and_the_counts() -> None:
    """A14: a job that may not be tried again is told of the fleet, not of one connection."""
    engines = {f"w{n}": ScriptedEngine([REFUSED]) for n in range(4)}
    retry = Retry(budget_percent=0, budget_minimum=0)
    registry = a_registry(engines, backend=a_backend(retry=retry))

    with pytest.raises(NoAvailableWorkersError) as failure:
        await a_dispatcher(registry).dispatch(KEY, a_job(model="qwen"))

    assert sum(len(engine.jobs) for engine in engines.values()) == 2
    assert failure.value.code == "no_available_workers"
    assert failure.value.message == (
        "No worker of model 'qwen' could be reached: 4 known, 2 ready, 2 tried."
    )


async def test_attempts_wait_with_full_jitter() -> None:
    """The wait before the second attempt is a random part of the first backoff."""
    registry = a_registry(
        {"w1": ScriptedEngine([REFUSED]), "w2": ScriptedEngine(HI)},
        backend=a_backend(retry=Retry(initial_backoff="10s", max_backoff="10s")),
    )
    dispatcher = Dispatcher(registry, chance=lambda: 0.012)

    begin = time.monotonic()
    await all_of(await dispatcher.dispatch(KEY, a_job()))

    assert 0.12 <= time.monotonic() - begin < 8  # 0.012 of ten seconds, and not all ten


async def test_a_wait_ends_with_the_jobs_time() -> None:
    """A backoff longer than what is left does not outlast the total deadline."""
    registry = a_registry(
        {"w1": ScriptedEngine([REFUSED]), "w2": ScriptedEngine([HANG])},
        backend=a_backend(
            timeouts=Timeouts(request="50ms"), retry=Retry(initial_backoff="10s", max_backoff="10s")
        ),
    )

    async with asyncio.timeout(2):
        with pytest.raises(DeadlineExceededError):
            await Dispatcher(registry, chance=lambda: 0.9).dispatch(KEY, a_job())


async def test_a_full_worker_that_asks_for_a_pause_has_it_up_to_the_cap() -> None:
    """Retry-After of a worker is honoured while another can be had, and no longer than allowed."""
    clock = FakeClock()
    busy = WorkerBusyError("The worker's queue is full.", pause=3600)
    engines = {"w1": ScriptedEngine([busy], HI), "w2": ScriptedEngine(HI)}
    registry = a_registry(
        engines, backend=a_backend(retry=Retry(max_retry_after="30s")), clock=clock
    )
    dispatcher = a_dispatcher(registry, clock=clock)

    for _ in range(4):
        await all_of(await dispatcher.dispatch(KEY, a_job()))
    while_asked = len(engines["w1"].jobs)
    clock.pass_by(30)
    for _ in range(2):
        await all_of(await dispatcher.dispatch(KEY, a_job()))

    assert while_asked == 1
    assert len(engines["w1"].jobs) == 2


async def test_a_client_is_told_the_pause_that_the_workers_ask_for() -> None:
    """Rounded up to whole seconds, up to the same cap."""
    told: list[int | None] = []
    for pause in (None, 2.2, 3600):
        busy = WorkerBusyError("The worker's queue is full.", pause=pause)
        registry = a_registry({"w1": ScriptedEngine([busy])})
        with pytest.raises(WorkerBusyError) as failure:
            await a_dispatcher(registry).dispatch(KEY, a_job())
        told.append(failure.value.retry_after)

    assert told == [1, 3, 10]


async def test_new_timeouts_are_in_force_without_dropping_a_stream() -> None:
    """A reload gives workers a new client; the old one is kept for the streams it runs."""
    old, new = ScriptedEngine([1, 2, a_finish()]), ScriptedEngine(HI)
    made = [old, new]
    registry = Registry(lambda _endpoint, _backend: made.pop(0))
    registry.apply(a_snapshot(an_endpoint("w1")))
    (worker,) = registry.workers()
    worker.became_ready(some_facts())
    dispatcher = a_dispatcher(registry)

    stream = await dispatcher.dispatch(KEY, a_job())
    changed = a_backend(timeouts=Timeouts(first_token="5s"))
    registry.apply(a_snapshot(an_endpoint("w1"), backend=changed, version=2))
    idle_while_it_runs = worker.take_idle_engines()
    later = await all_of(await dispatcher.dispatch(KEY, a_job()))
    chunks = await all_of(stream)

    assert registry.workers() == (worker,)
    assert worker.is_ready
    assert (len(chunks), len(later)) == (3, 3)
    assert (len(old.jobs), len(new.jobs)) == (1, 1)
    assert idle_while_it_runs == ()
    assert worker.take_idle_engines() == (old,)
    assert worker.engines() == (new,)


def an_act(number: int) -> Sequence[Step]:
    """Return one of nine acts; its failures are new, for one that is raised again keeps frames."""
    acts: list[Sequence[Step]] = [
        HI,
        [WorkerUnavailableError("Refused.")],
        [1, WorkerLostError("Lost.")],
        [WorkerError("Broken.")],
        [WorkerRefusedError("Invalid.")],
        [WorkerBusyError("Busy.")],
        [],
        [1],
        [1, 2, 3, a_finish()],
    ]
    return acts[number % len(acts)]


async def test_a45_two_thousand_jobs_leave_nothing_behind() -> None:
    """A45: after a thousand jobs that end in every way, a thousand more make no object more."""
    engines = {f"w{n}": ScriptedEngine(HI) for n in range(3)}
    clock = FakeClock()
    registry = a_registry(engines, backend=a_backend(retry=Retry(budget_percent=100)), clock=clock)
    dispatcher = a_dispatcher(registry, clock=clock)
    counts: list[int] = []
    for number in range(2000):
        for at, engine in enumerate(engines.values()):
            engine._acts = [an_act(number + at * 2)]
            engine.streams.clear()
            engine.jobs.clear()
        clock.pass_by(1)
        with contextlib.suppress(RouterError):
            async with aclosing(await dispatcher.dispatch(KEY, a_job())) as stream:
                async for _ in stream:
                    if number % 3 == 0:
                        break
        if number in {999, 1999}:
            gc.collect()
            # Ours alone: the test runner keeps every log record.
            ours = (str(type(each).__module__) for each in gc.get_objects())
            counts.append(sum(name.startswith("sglr_") for name in ours))
        for worker in registry.workers():
            worker.became_ready(some_facts())
    pool = registry.pool(KEY)
    assert pool is not None

    assert in_flight(registry) == 0
    assert (pool.gate.held, pool.gate.waiting, pool.gate._starting) == (0, 0, 0)
    assert counts[1] - counts[0] < 100  # a leak would be thousands


ACTS: list[tuple[Step, ...]] = [
    HI,
    (1, HANG),
    (HANG,),
    (REFUSED,),
    (LOST,),
    (BUSY,),
    (BROKEN,),
    (INVALID,),
    (1, LOST),
    (1, BROKEN),
    (),
    (1,),
    (a_finish(),),
]
Ending = st.sampled_from(["read", "close at once", "read one", "cancel"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    acts=st.lists(st.lists(st.sampled_from(ACTS), min_size=1, max_size=4), min_size=1, max_size=3),
    endings=st.lists(Ending, min_size=1, max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_a45_any_interleaving_of_outcomes_leaves_nothing_in_flight(
    acts: list[list[tuple[Step, ...]]], endings: list[str], order: object
) -> None:
    """A45: whatever workers do and however clients leave, in any order, counts return to 0."""

    async def run() -> None:
        engines = {f"w{n}": ScriptedEngine(*each) for n, each in enumerate(acts)}
        registry = a_registry(engines)
        ledger = Ledger()
        dispatcher = a_dispatcher(registry, ledger)
        tasks = [asyncio.ensure_future(_walk(dispatcher, ending)) for ending in endings]
        for task in tasks:
            # Lets some of them run and some not, before they are cancelled.
            for _ in range(order.randrange(4)):  # type: ignore[attr-defined]  # a random.Random
                await asyncio.sleep(0)
            assert all(worker.in_flight >= 0 for worker in registry.workers())
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert in_flight(registry) == 0
        assert sum(engine.running for engine in engines.values()) == 0
        attempts = sum(len(engine.streams) for engine in engines.values())
        assert len(ledger.entries) == attempts

    asyncio.run(run())


async def _walk(dispatcher: Dispatcher, ending: str) -> None:
    stream = await dispatcher.dispatch(KEY, a_job())
    async with aclosing(stream):
        if ending == "close at once":
            return
        async for _ in stream:
            if ending == "read one":
                return
            await asyncio.sleep(0)
