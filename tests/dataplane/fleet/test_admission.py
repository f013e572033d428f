"""Admission: places of a backend from dispatch to the end of a stream, on every path."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

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
from sglr_dataplane.fleet.fair_queue import Priority
from sglr_dataplane.fleet.registry import Registry
from sglr_proto.backend import Admission
from support.engines import HANG, HI, ScriptedEngine, a_finish, some_facts
from support.fleets import KEY, a_backend, a_job, a_registry
from support.router import eventually

NORMAL = Priority.NORMAL
REFUSED = WorkerUnavailableError("The worker cannot be reached.")


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


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
    registry.workers()[0].was_judged()

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
