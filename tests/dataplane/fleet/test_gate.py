"""The gate: who is let in, who waits, who is sent away, and that no place is ever lost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglr_dataplane.errors import (
    QueueFullError,
    QueueTimeoutError,
    WorkerUnavailableError,
)
from sglr_dataplane.fleet.fair_queue import FairQueue, Priority
from sglr_dataplane.fleet.gate import Gate, GateSettings, Slot

NORMAL = Priority.NORMAL
REFUSED = WorkerUnavailableError("The worker cannot be reached.")


def a_gate(room: int | None = 2, **fields: float) -> Gate:
    """Return a gate whose workers take *room* jobs at once."""
    gates: list[Gate] = []

    def left(_enough: int) -> int | None:
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
    gate.leave(first)
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
    assert 0.6 < time.monotonic() - began < 9
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
    gate.leave(first)
    await asyncio.wait_for(second, 2)

    assert gate.held == 1


async def test_who_leaves_in_the_moment_it_is_let_in_gives_its_place_back() -> None:
    """Granted and cancelled before it could go on: the next one has the place."""
    gate = a_gate(room=1)
    first = await later(gate)
    gone, next_one = later(gate), later(gate)
    await settle()
    gate.leave(first)
    gone.cancel()
    await asyncio.wait({gone})
    await asyncio.wait_for(next_one, 2)

    assert (gate.held, gate.waiting) == (1, 0)


async def test_releasing_twice_frees_one_place() -> None:
    """Every path may release; only the first does."""
    gate = a_gate()
    slot = await later(gate)
    gate.leave(slot)
    gate.leave(slot)

    assert gate.held == 0


async def test_who_is_let_in_at_once_overtakes_nobody() -> None:
    """No room, somebody who waits, or nobody to do it: then it has to stand in line."""
    gate = a_gate(room=1)
    nobody, first, full = gate.admit("a", None), gate.admit("a", 1), gate.admit("a", 0)
    waiting = later(gate)
    await settle()
    late = gate.admit("b", 5)
    assert first is not None
    gate.leave(first)

    assert (nobody, full, late) == (None, None, None)
    assert not (await asyncio.wait_for(waiting, 2)).at_work
    assert gate.held == 1


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


STEP = st.sampled_from(["come", "come", "come at once", "end", "leave"])


@settings(deadline=None)
@given(st.lists(STEP, max_size=40), st.integers(1, 3), st.integers(0, 4))
def test_a40_no_place_is_lost_or_given_twice(steps: list[str], room: int, depth: int) -> None:
    """A40: whatever comes, ends and leaves in any order, the counts are right."""

    async def run() -> None:
        gate = a_gate(room=room, depth=depth)
        tasks: list[asyncio.Future[Slot]] = []
        for number, step in enumerate(steps):
            inside = [task for task in tasks if task.done() and is_inside(task)]
            waiting = [task for task in tasks if not task.done()]
            come = str(number % 3), list(Priority)[number % 3]
            if step == "come at once":
                slot = gate.admit(come[0], room - gate.held)
                if slot is not None:
                    tasks.append(inside_with(slot))
            elif step == "come":
                tasks.append(later(gate, *come))
            elif step == "end" and inside:
                gate.leave(inside[0].result())
                tasks.remove(inside[0])
            elif step == "leave" and waiting:
                waiting[-1].cancel()
            if number % 2:
                await settle()
            assert gate.held <= room
            assert gate.waiting <= depth
        await settle()
        await all_end(gate, tasks)

        assert (gate.held, gate.waiting) == (0, 0)

    asyncio.run(run())


async def all_end(gate: Gate, tasks: list[asyncio.Future[Slot]]) -> None:
    """End every job, whether it waits or is inside."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if is_inside(task):
            gate.leave(task.result())


def inside_with(slot: Slot) -> asyncio.Future[Slot]:
    """Return what a job that was let in at once looks like beside those that waited."""
    done: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
    done.set_result(slot)
    return done


def is_inside(task: asyncio.Future[Slot]) -> bool:
    """Return whether *task* was let in."""
    return not task.cancelled() and task.exception() is None
