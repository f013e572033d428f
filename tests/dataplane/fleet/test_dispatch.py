"""Dispatch: who gets a job, who gets it next, and what the client hears when nobody can."""

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
    ContextLengthExceededError,
    DeadlineExceededError,
    NoAvailableWorkersError,
    RouterError,
    TruncatedStreamError,
    WorkerBusyError,
    WorkerError,
    WorkerLostError,
    WorkerRefusedError,
    WorkerUnavailableError,
)
from sglr_dataplane.fleet.breaker import BreakerState
from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.fleet.stream import Stream
from sglr_dataplane.fleet.worker import Worker
from sglr_dataplane.job import Chunk, Job
from sglr_proto.backend import Retry, Timeouts
from support.engines import (
    HANG,
    HI,
    FakeClock,
    ScriptedEngine,
    ScriptedStream,
    Step,
    a_finish,
    some_facts,
)
from support.fleets import KEY, a_backend, a_job, a_registry, a_snapshot, an_endpoint

REFUSED = WorkerUnavailableError("The worker cannot be reached.")
LOST = WorkerLostError("The worker went away.")
BUSY = WorkerBusyError("The worker's queue is full.")
BROKEN = WorkerError("The worker answered with an error (INTERNAL).")
INVALID = WorkerRefusedError("The worker refused the request.")


class Ledger:
    """The outcomes a dispatcher reported, by worker."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []

    def __call__(self, worker: Worker, outcome: str) -> None:
        """Write one outcome down."""
        self.entries.append((worker.id, str(outcome)))


class DyingEngine(ScriptedEngine):
    """An engine that takes every job and answers none, until it dies under all of them."""

    def __init__(self, die: asyncio.Event) -> None:
        """Die when *die* is set."""
        super().__init__([HANG])
        self.die = die
        self._taken = asyncio.Semaphore(0)

    async def has_jobs(self, count: int) -> None:
        """Wait until it has taken *count* jobs."""
        for _ in range(count):
            await self._taken.acquire()

    def generate(self, job: Job) -> ScriptedStream:
        """Take *job*."""
        self._taken.release()
        return DyingStream(self, job)


class DyingStream(ScriptedStream):
    """A job on an engine that dies."""

    def __init__(self, engine: DyingEngine, job: Job) -> None:
        """Wait for the death of *engine*."""
        super().__init__(engine, job, [HANG])
        self._die = engine.die

    async def _play(self, step: Step) -> Chunk:
        await self._die.wait()
        raise WorkerLostError("The worker went away.")


def a_dispatcher(
    registry: Registry, ledger: Ledger | None = None, *, clock: FakeClock | None = None
) -> Dispatcher:
    """Return a dispatcher over *registry* that waits for nothing between two attempts."""
    return Dispatcher(
        registry, on_outcome=ledger, clock=clock or time.monotonic, chance=lambda: 0.0
    )


async def all_of(stream: Stream) -> list[Chunk]:
    """Return every chunk of *stream* and close it."""
    async with aclosing(stream):
        return [chunk async for chunk in stream]


def in_flight(registry: Registry) -> int:
    """Return how many jobs the workers of *registry* are busy with."""
    return sum(worker.in_flight for worker in registry.tended())


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

    with pytest.raises(NoAvailableWorkersError, match="stayed up: 3 known, 3 ready, 2 tried"):
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
        "No worker of model 'qwen' could be reached: 4 known, 4 ready, 2 tried."
    )


async def test_attempts_wait_with_full_jitter() -> None:
    """The wait before the second attempt is a random part of the first backoff."""
    registry = a_registry(
        {"w1": ScriptedEngine([REFUSED]), "w2": ScriptedEngine(HI)},
        backend=a_backend(retry=Retry(initial_backoff="200ms")),
    )
    dispatcher = Dispatcher(registry, chance=lambda: 0.5)

    begin = time.monotonic()
    await all_of(await dispatcher.dispatch(KEY, a_job()))

    assert 0.1 <= time.monotonic() - begin < 1.0


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
