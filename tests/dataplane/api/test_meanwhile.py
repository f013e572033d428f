"""Things that are made while a task sleeps."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from sglr_dataplane.api.meanwhile import Meanwhile


async def test_it_is_made_when_the_task_sleeps() -> None:
    """After all that the task did before, and before what comes in later."""
    told: list[str] = []
    loop = asyncio.get_running_loop()

    def make() -> list[str]:
        told.append("made")
        return told

    thing = Meanwhile(loop, make)
    told.append("written")
    loop.call_soon(told.append, "woken")

    await asyncio.sleep(0)
    thing.take()

    assert told == ["written", "made", "woken"]


async def test_it_is_made_when_it_is_taken_by_a_task_that_never_slept() -> None:
    """And never a second time."""
    numbers = count()
    thing = Meanwhile(asyncio.get_running_loop(), lambda: next(numbers))

    taken = thing.take()
    await asyncio.sleep(0)

    assert [taken, thing.take(), next(numbers)] == [0, 0, 1]


async def test_what_fails_fails_where_it_is_taken() -> None:
    """The loop has nothing to complain of."""
    loop = asyncio.get_running_loop()
    complaints: list[object] = []
    loop.set_exception_handler(lambda _loop, context: complaints.append(context))
    thing = Meanwhile(loop, lambda: 1 / 0)
    await asyncio.sleep(0)

    with pytest.raises(ZeroDivisionError):
        thing.take()
    assert complaints == []
