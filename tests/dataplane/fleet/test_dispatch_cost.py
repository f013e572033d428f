"""What a job costs the fleet: counted in Python calls, which are the same on every machine."""

from __future__ import annotations

import sys
from contextlib import aclosing
from types import FrameType

import pytest

from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_proto.backend import PolicyName, Routing
from support.engines import ScriptedEngine
from support.fleets import KEY, a_backend, a_job, a_registry

FEW, MANY = 10, 60


async def calls_of_a_job(workers: int, policy: PolicyName) -> int:
    """Return the Python calls from dispatch to the end of the stream, of workers that had jobs."""
    registry = a_registry(
        {f"w{n}": ScriptedEngine() for n in range(workers)},
        backend=a_backend(routing=Routing(policy=policy)),
    )
    dispatcher, calls, least = Dispatcher(registry), 0, sys.maxsize

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    for place in range(2 * workers + 10):
        calls = 0
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            async with aclosing(await dispatcher.dispatch(KEY, a_job())) as stream:
                async for _chunk in stream:
                    pass
        finally:
            sys.setprofile(before)
        # Once in a while a timer is set, or a window turned.
        least = min(least, calls) if place > workers else least
    return least


@pytest.mark.parametrize(
    ("policy", "each"),
    [
        (PolicyName.ROUND_ROBIN, 1),  # its weight
        (PolicyName.RANDOM, 1),
        (PolicyName.LEAST_REQUEST, 2),  # for two draws
        (PolicyName.CACHE_AWARE, 4),  # and its load, its score, and its weight among the cheapest
    ],
)
async def test_a_well_worker_more_costs_a_job_what_its_policy_asks_of_it(
    policy: PolicyName, each: int
) -> None:
    """No call is made to see that a worker is well, and what all can do is not asked of each."""
    few, many = [await calls_of_a_job(workers, policy) for workers in (FEW, MANY)]

    assert many - few <= each * (MANY - FEW) + 5  # a draw may take a branch more


async def test_a_job_on_one_worker_costs_the_fleet_some_seventy_calls() -> None:
    """Most of a request's CPU time is spent in the interpreter: what is added here must be seen."""
    assert await calls_of_a_job(1, PolicyName.ROUND_ROBIN) < 85
