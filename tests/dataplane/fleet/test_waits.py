"""Waits for a first chunk: ended by their time or by the worker's end, and told from cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sglr_dataplane.errors import DeadlineExceededError, RouterError, WorkerLostError
from sglr_dataplane.fleet.waits import Wait, Waits


async def waiting(waits: Waits, seconds: float, until: asyncio.Future[str]) -> str:
    """Return what *until* brings within *seconds*; raises why it was ended otherwise."""
    task = asyncio.current_task()
    assert task is not None
    wait = Wait(task, task.cancelling(), asyncio.get_running_loop().time() + seconds)
    waits.enter(wait)
    try:
        return await until
    except asyncio.CancelledError as cause:
        why = waits.leave(wait)
        if why is None:
            raise
        raise why from cause
    finally:
        waits.leave(wait)


def never() -> asyncio.Future[str]:
    """Return what brings nothing."""
    return asyncio.get_running_loop().create_future()


async def outcome(task: asyncio.Task[str]) -> str | type[RouterError]:
    """Return what came of *task*."""
    try:
        return await asyncio.wait_for(task, 5)
    except RouterError as failure:
        return type(failure)


async def test_each_wait_is_over_at_its_own_time() -> None:
    """One timer serves them all, whichever came first; what arrives in time is not ended."""
    waits, answer = Waits(), never()
    seconds = (0.09, 0.03, 60, 0.06)
    futures = (never(), never(), answer, never())
    tasks = [
        asyncio.ensure_future(waiting(waits, each, future))
        for each, future in zip(seconds, futures, strict=True)
    ]
    order: list[float] = []
    for each, task in zip(seconds, tasks, strict=True):
        task.add_done_callback(lambda _, each=each: order.append(each))  # type: ignore[misc]  # bound now
    late = [await outcome(task) for task in (tasks[1], tasks[3], tasks[0])]
    answer.set_result("hello")

    assert await outcome(tasks[2]) == "hello"
    assert late == [DeadlineExceededError] * 3
    assert order == [0.03, 0.06, 0.09, 60]
    assert repr(waits) == "<Waits 0>"


async def test_a_wait_whose_time_is_over_already_is_ended() -> None:
    """The queue had it for too long."""
    task = asyncio.ensure_future(waiting(Waits(), -1.0, never()))

    assert await outcome(task) is DeadlineExceededError


async def test_the_end_of_the_worker_ends_every_wait_once() -> None:
    """And one that begins afterwards is not ended by what was."""
    waits = Waits()
    tasks = [asyncio.ensure_future(waiting(waits, 60, never())) for _ in range(3)]
    await asyncio.sleep(0)
    waits.end()
    waits.end()
    ended = [await outcome(task) for task in tasks]
    answer = never()
    later = asyncio.ensure_future(waiting(waits, 60, answer))
    await asyncio.sleep(0)
    answer.set_result("hello")

    assert ended == [WorkerLostError] * 3
    assert [task.cancelling() for task in tasks] == [0, 0, 0]
    assert await outcome(later) == "hello"


@pytest.mark.parametrize("first", ["the client", "the worker"])
async def test_a_client_that_leaves_as_the_worker_goes_has_its_way(first: str) -> None:
    """Its task is cancelled, and stays so: nothing is tried again for it."""
    waits = Waits()
    task = asyncio.ensure_future(waiting(waits, 60, never()))
    await asyncio.sleep(0)
    ends: list[Callable[[], object]] = [task.cancel, waits.end]
    for end in ends if first == "the client" else reversed(ends):
        end()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert task.cancelled()
