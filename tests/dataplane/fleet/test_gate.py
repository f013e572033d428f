"""The gate: who is let in, who waits, who is sent away, and that no place is ever lost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglr_dataplane.errors import (
    NoAvailableWorkersError,
    QueueFullError,
    QueueTimeoutError,
    RouterError,
    UnknownModelError,
    WorkerUnavailableError,
)
from sglr_dataplane.fleet.caller import Caller
from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_dataplane.fleet.fair_queue import FairQueue, Priority
from sglr_dataplane.fleet.gate import Gate, GateSettings, Slot
from sglr_dataplane.fleet.registry import Registry
from sglr_proto.backend import Admission
from support.engines import HANG, HI, ScriptedEngine, a_finish, some_facts
from support.fleets import KEY, a_backend, a_job, a_registry
from support.router import eventually

NORMAL = Priority.NORMAL
REFUSED = WorkerUnavailableError("The worker cannot be reached.")


def a_gate(room: int | None = 2, **fields: float) -> Gate:
    """Return a gate whose workers take *room* jobs at once."""
    gates: list[Gate] = []

    def left() -> int | None:
        return None if room is None else room - (gates[0].held - gates[0]._starting)

    gates.append(Gate(GateSettings(**fields), left, time.monotonic))  # type: ignore[arg-type]  # numbers
    return gates[0]


def later(gate: Gate, caller: str = "", priority: Priority = NORMAL) -> asyncio.Task[Slot]:
    """Let a job come to *gate*."""
    return asyncio.ensure_future(gate.enter(caller, priority, time.monotonic() + 10))


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_jobs_beyond_the_room_wait_for_a_place() -> None:
    """Two are let in, the third when one of them ends."""
    gate = a_gate()
    first, _second = await later(gate), await later(gate)
    third = later(gate)
    await settle()
    waited = (third.done(), gate.waiting)
    first.release()
    await asyncio.wait_for(third, 2)

    assert waited == (False, 1)
    assert (gate.held, gate.waiting) == (2, 0)


async def test_one_more_than_may_wait_is_sent_away_at_once() -> None:
    """The queue is as long as it is said to be, and the answer says when to come back."""
    gate = a_gate(room=1, depth=1)
    await later(gate)
    waiting = later(gate)
    await settle()
    with pytest.raises(QueueFullError) as failure:
        await gate.enter("", NORMAL, time.monotonic() + 10)
    waiting.cancel()
    await asyncio.wait({waiting})

    assert failure.value.status == 429
    assert failure.value.retry_after is not None
    assert failure.value.retry_after >= 1
    assert gate.waiting == 0


async def test_waiting_has_an_absolute_end() -> None:
    """Looking again does not start the time anew."""
    gate = a_gate(room=1, wait=0.7)
    await later(gate)
    began = time.monotonic()
    with pytest.raises(QueueTimeoutError) as failure:
        await gate.enter("", NORMAL, began + 10)

    assert failure.value.status == 429
    assert 0.6 < time.monotonic() - began < 3
    assert (gate.held, gate.waiting) == (1, 0)


async def test_who_leaves_the_queue_frees_its_place() -> None:
    """A client that goes while it waits is let in no more, and nobody waits for it."""
    gate = a_gate(room=1, depth=1)
    first = await later(gate)
    gone = later(gate)
    await settle()
    gone.cancel()
    await asyncio.wait({gone})
    second = later(gate)
    await settle()
    first.release()
    await asyncio.wait_for(second, 2)

    assert gate.held == 1


async def test_who_leaves_in_the_moment_it_is_let_in_gives_its_place_back() -> None:
    """Granted and cancelled before it could go on: the next one has the place."""
    gate = a_gate(room=1)
    first = await later(gate)
    gone, next_one = later(gate), later(gate)
    await settle()
    first.release()
    gone.cancel()
    await asyncio.wait({gone})
    await asyncio.wait_for(next_one, 2)

    assert (gate.held, gate.waiting) == (1, 0)


async def test_releasing_twice_frees_one_place() -> None:
    """Every path may release; only the first does."""
    gate = a_gate()
    slot = await later(gate)
    slot.release()
    slot.release()

    assert gate.held == 0


async def test_scaled_to_zero_waits_as_long_as_it_is_told() -> None:
    """Without a worker a job waits for one, and is 503 when none comes."""
    gate = a_gate(room=None, wait_for_workers=0.2)
    with pytest.raises(QueueTimeoutError) as failure:
        await gate.enter("", NORMAL, time.monotonic() + 10)

    assert (failure.value.status, failure.value.code) == (503, "no_available_workers")


def served(queue: FairQueue, turns: int) -> list[str]:
    """Return whose jobs are let in, with nothing ending meanwhile."""
    names: list[str] = []
    for _ in range(turns):
        ticket = queue.take()
        queue.admit(ticket.caller)
        names.append(ticket.caller)
    return names


def stand(queue: FairQueue, *callers: str, priority: Priority = NORMAL) -> None:
    """Let a job of each of *callers* wait."""
    for caller in callers:
        queue.put(queue.ticket(caller, priority))


def test_a_heavy_caller_does_not_starve_a_light_one() -> None:
    """With fifty jobs before it, a newcomer's job is among the next two."""
    queue = FairQueue()
    stand(queue, *["heavy"] * 50, "light")

    assert "light" in served(queue, 2)


def test_callers_share_what_is_admitted() -> None:
    """Whoever has fewest jobs running is next, whatever was there first."""
    queue = FairQueue()
    stand(queue, *"aaaaaaaaabbbccc")
    shares = Counter(served(queue, 6))

    assert shares == {"a": 2, "b": 2, "c": 2}


def test_a_higher_priority_goes_first_but_nobody_waits_for_ever() -> None:
    """High before normal before low, and one turn in eight for whoever waits longest."""
    queue = FairQueue()
    stand(queue, "low", priority=Priority.LOW)
    for n in range(30):
        stand(queue, f"high{n}", priority=Priority.HIGH)
    order = served(queue, 20)

    assert order[0].startswith("high")
    assert "low" in order


def test_a_full_queue_makes_room_at_the_heaviest() -> None:
    """The youngest job of who has most waiting goes; between equals the newcomer does."""
    queue = FairQueue()
    stand(queue, "a", "a", "a", "b")
    for_b = queue.heaviest(queue.ticket("b", NORMAL))
    for_a = queue.heaviest(queue.ticket("a", NORMAL))
    for_high = queue.heaviest(queue.ticket("a", Priority.HIGH))

    assert for_b is not None
    assert for_b.caller == "a"
    assert for_a is None
    assert for_high is not None


async def test_a_light_caller_takes_the_place_of_a_heavy_ones_youngest() -> None:
    """A heavy key can fill the queue, but not against others."""
    gate = a_gate(room=1, depth=3)
    await later(gate, "heavy")
    heavy = [later(gate, "heavy") for _ in range(3)]
    await settle()
    light = later(gate, "light")
    await settle()

    assert [task.done() for task in heavy] == [False, False, True]
    assert isinstance(heavy[2].exception(), QueueFullError)
    assert not light.done()
    for task in (*heavy[:2], light):
        task.cancel()
    await asyncio.wait({*heavy[:2], light})


STEP = st.sampled_from(["come", "come", "end", "leave"])


@settings(deadline=None)
@given(st.lists(STEP, max_size=40), st.integers(1, 3), st.integers(0, 4))
def test_a40_no_place_is_lost_or_given_twice(steps: list[str], room: int, depth: int) -> None:
    """A40: whatever comes, ends and leaves in any order, the counts are right."""

    async def run() -> None:
        gate = a_gate(room=room, depth=depth)
        tasks: list[asyncio.Task[Slot]] = []
        for number, step in enumerate(steps):
            inside = [task for task in tasks if task.done() and is_inside(task)]
            waiting = [task for task in tasks if not task.done()]
            if step == "come":
                tasks.append(later(gate, str(number % 3), list(Priority)[number % 3]))
            elif step == "end" and inside:
                inside[0].result().release()
                tasks.remove(inside[0])
            elif step == "leave" and waiting:
                waiting[-1].cancel()
            if number % 2:
                await settle()
            assert gate.held <= room
            assert gate.waiting <= depth
        await settle()
        await all_end(tasks)

        assert (gate.held, gate.waiting) == (0, 0)

    asyncio.run(run())


async def all_end(tasks: list[asyncio.Task[Slot]]) -> None:
    """End every job, whether it waits or is inside."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if is_inside(task):
            task.result().release()


def is_inside(task: asyncio.Task[Slot]) -> bool:
    """Return whether *task* was let in."""
    return not task.cancelled() and task.exception() is None


def a_full_fleet(admission: Admission, *acts: object) -> tuple[Registry, Dispatcher]:
    """Return one worker that plays *acts*, and a dispatcher."""
    engine = ScriptedEngine(*acts)  # type: ignore[arg-type]  # acts of a scripted engine
    registry = a_registry({"w1": engine}, backend=a_backend(admission=admission))
    return registry, Dispatcher(registry, chance=lambda: 0.0)


async def test_a40_a_slot_is_held_until_the_stream_ends_and_a_fourth_is_429() -> None:
    """A40: two run, one waits, the fourth is told at once; closing one lets the waiting one in."""
    limits = Admission(max_inflight=2, max_queue_depth=1, max_queue_wait="1s")
    registry, dispatcher = a_full_fleet(limits, [1, HANG], [1, HANG], HI)
    one, two = [await dispatcher.dispatch(KEY, a_job()) for _ in range(2)]
    third = asyncio.ensure_future(dispatcher.dispatch(KEY, a_job()))
    await settle()
    with pytest.raises(QueueFullError):
        await dispatcher.dispatch(KEY, a_job())
    waiting = third.done()
    await one.aclose()
    stream = await asyncio.wait_for(third, 2)
    await two.aclose()
    async with aclosing(stream):
        chunks = [chunk async for chunk in stream]
    pool = registry.pool(KEY)
    assert pool is not None

    assert not waiting
    assert len(chunks) == 3
    assert (pool.gate.held, pool.gate.waiting, registry.workers()[0].in_flight) == (0, 0, 0)


@pytest.mark.parametrize("how", ["error", "cancel", "refused model"])
async def test_a40_a_slot_comes_back_when_there_is_no_stream(how: str) -> None:
    """A40: an error before the answer, or a client that leaves, frees the place."""
    registry, dispatcher = a_full_fleet(
        Admission(max_inflight=1), [REFUSED] if how == "error" else [HANG]
    )
    caller = Caller(models=frozenset({"other"})) if how == "refused model" else Caller()
    task = asyncio.ensure_future(dispatcher.dispatch(KEY, a_job(), caller))
    await settle()
    if how == "cancel":
        task.cancel()
    with pytest.raises((RouterError, asyncio.CancelledError)) as failure:
        await task
    pool = registry.pool(KEY)
    assert pool is not None

    assert (pool.gate.held, pool.gate._starting) == (0, 0)
    assert isinstance(failure.value, UnknownModelError) == (how == "refused model")


async def test_a_worker_is_given_no_more_than_it_runs() -> None:
    """By default its own max_running_requests is the limit: eight, and the ninth waits."""
    registry, dispatcher = a_full_fleet(Admission(), [1, HANG])
    streams = [await dispatcher.dispatch(KEY, a_job()) for _ in range(8)]
    ninth = asyncio.ensure_future(dispatcher.dispatch(KEY, a_job()))
    await settle()
    waits = not ninth.done()
    await streams[0].aclose()
    streams[0] = await asyncio.wait_for(ninth, 2)

    assert waits
    assert registry.workers()[0].in_flight == 8
    for stream in streams:
        await stream.aclose()
    assert registry.workers()[0].in_flight == 0


async def test_a_job_waits_for_the_first_worker() -> None:
    """A backend that is scaled to zero holds jobs and serves them when a worker is up."""
    registry = a_registry(
        {"w1": ScriptedEngine(HI)},
        ready=False,
        backend=a_backend(admission=Admission(no_endpoint_wait="10s")),
    )
    task = asyncio.ensure_future(Dispatcher(registry).dispatch(KEY, a_job()))
    await settle()
    registry.workers()[0].became_ready(some_facts())
    stream = await asyncio.wait_for(task, 2)
    await stream.aclose()

    assert registry.workers()[0].in_flight == 0


async def test_without_a_wait_nobody_there_is_503_at_once() -> None:
    """The default: the answer says how many workers are known."""
    registry = a_registry({"w1": ScriptedEngine(HI)}, ready=False)

    with pytest.raises(NoAvailableWorkersError, match="1 known, 0 ready"):
        await Dispatcher(registry).dispatch(KEY, a_job())


async def test_a_job_whose_worker_dies_waits_for_the_others_and_is_not_refused() -> None:
    """Let in for the place of a worker that fails, it goes before all that wait."""
    engines = {"w1": ScriptedEngine([1, HANG]), "w2": ScriptedEngine([REFUSED])}
    registry = a_registry(
        engines, backend=a_backend(admission=Admission(max_inflight_per_endpoint=1))
    )
    dispatcher = Dispatcher(registry, chance=lambda: 0.0)
    first = await dispatcher.dispatch(KEY, a_job())
    unlucky = asyncio.ensure_future(dispatcher.dispatch(KEY, a_job()))
    await eventually(lambda: engines["w2"].jobs)
    await settle()
    registry.workers()[1].refused("The worker reports that it is not serving.")
    behind = asyncio.ensure_future(dispatcher.dispatch(KEY, a_job()))
    await settle()
    early = (unlucky.done(), behind.done())
    await first.aclose()
    second = await asyncio.wait_for(unlucky, 5)
    still = behind.done()
    await second.aclose()
    third = await asyncio.wait_for(behind, 5)
    await third.aclose()
    pool = registry.pool(KEY)
    assert pool is not None

    assert (early, still) == ((False, False), False)
    assert (pool.gate.held, pool.gate.waiting, pool.gate._starting) == (0, 0, 0)


@pytest.mark.parametrize("how", ["time", "cancel"])
async def test_a_parked_job_ends_like_any_other(how: str) -> None:
    """Its wait has an end, and a client that leaves frees the place."""
    registry = a_registry(
        {"w1": ScriptedEngine([1, HANG]), "w2": ScriptedEngine([REFUSED])},
        backend=a_backend(admission=Admission(max_inflight_per_endpoint=1, max_queue_wait="300ms")),
    )
    dispatcher = Dispatcher(registry, chance=lambda: 0.0)
    first = await dispatcher.dispatch(KEY, a_job())
    parked = asyncio.ensure_future(dispatcher.dispatch(KEY, a_job()))
    pool = registry.pool(KEY)
    assert pool is not None
    await eventually(lambda: pool.gate.waiting)
    if how == "cancel":
        parked.cancel()
    await asyncio.wait({parked}, timeout=5)
    await first.aclose()

    assert parked.cancelled() or isinstance(parked.exception(), QueueTimeoutError)
    assert (pool.gate.held, pool.gate.waiting, pool.gate._starting) == (0, 0, 0)


async def test_a_retry_keeps_its_place() -> None:
    """A job that goes to another worker does not stand in line again."""
    engines = {"w1": ScriptedEngine([REFUSED]), "w2": ScriptedEngine([1, a_finish()])}
    registry = a_registry(
        engines, backend=a_backend(admission=Admission(max_inflight=1, max_queue_depth=0))
    )
    stream = await Dispatcher(registry, chance=lambda: 0.0).dispatch(KEY, a_job())
    pool = registry.pool(KEY)
    assert pool is not None
    held = pool.gate.held
    await stream.aclose()

    assert held == 1
    assert (pool.gate.held, pool.gate._starting) == (0, 0)
