"""Hedging: a request that is late is given to a second worker, and whoever answers first has it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from sglr_dataplane.errors import NoAvailableWorkersError, WorkerRefusedError
from sglr_dataplane.fleet.dispatch import Dispatcher
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.sim.script import Play
from sglr_proto.backend import Admission, Retry
from sglr_proto.spec_resilience import Hedge
from support.dispatching import (
    INVALID,
    LOST,
    DyingEngine,
    Ledger,
    a_dispatcher,
    all_of,
    in_flight,
)
from support.engines import HANG, HI, ScriptedEngine, Step
from support.fleets import KEY, a_backend, a_job, a_registry
from support.router import a_worker, eventually, manifest, running_router

AT_ONCE = Hedge(after="1ms")


def _fleet(
    *acts: list[Step] | tuple[Step, ...],
    retry: Retry | None = None,
    admission: Admission | None = None,
) -> tuple[Registry, dict[str, ScriptedEngine], Dispatcher, Ledger]:
    """Return workers w0, w1 and so on that play one act each, and who dispatches to them."""
    engines = {f"w{number}": ScriptedEngine(act) for number, act in enumerate(acts)}
    backend = a_backend(retry=retry or Retry(hedge=AT_ONCE), admission=admission or Admission())
    registry, ledger = a_registry(engines, backend=backend), Ledger()
    return registry, engines, a_dispatcher(registry, ledger), ledger


async def test_a_late_worker_is_overtaken_and_its_call_cancelled() -> None:
    """The client gets the second one's answer; the first is neither failure nor success."""
    registry, engines, dispatcher, ledger = _fleet([HANG], HI)

    chunks = await all_of(await asyncio.wait_for(dispatcher.dispatch(KEY, a_job()), 5))

    assert len(chunks) == 3
    assert sorted(ledger.entries) == [("w0", "abandoned"), ("w1", "succeeded")]
    assert engines["w0"].running == 0
    assert in_flight(registry) == 0


async def test_nobody_is_asked_twice_while_the_first_answers_in_time() -> None:
    """A second attempt begins after the time only."""
    _, engines, dispatcher, _ = _fleet(HI, HI, retry=Retry(hedge=Hedge(after="1h")))

    await all_of(await dispatcher.dispatch(KEY, a_job()))

    assert [len(engine.jobs) for engine in engines.values()] == [1, 0]


async def test_hedging_is_off_by_default() -> None:
    """A worker that is late has the request to itself."""
    _, engines, dispatcher, _ = _fleet([HANG], HI, retry=Retry())
    job = asyncio.ensure_future(dispatcher.dispatch(KEY, a_job()))
    await eventually(lambda: engines["w0"].running)

    done, _ = await asyncio.wait({job}, timeout=0.1)
    job.cancel()
    await asyncio.wait({job})

    assert not done
    assert engines["w1"].jobs == []


async def test_a_refusal_ends_the_race() -> None:
    """Another worker would say the same; the one that still thinks is cancelled."""
    registry, engines, dispatcher, _ = _fleet([HANG], [INVALID])

    with pytest.raises(WorkerRefusedError):
        await asyncio.wait_for(dispatcher.dispatch(KEY, a_job()), 5)

    assert engines["w0"].running == 0
    assert in_flight(registry) == 0


async def test_a_worker_that_fails_leaves_the_race_to_the_other() -> None:
    """The one that was asked first answers after the second one failed."""
    die = asyncio.Event()
    slow = DyingEngine(die)
    engines: dict[str, ScriptedEngine] = {"w0": slow, "w1": ScriptedEngine([LOST]), "w2": slow}
    registry = a_registry(engines, backend=a_backend(retry=Retry(hedge=AT_ONCE)))
    ledger = Ledger()
    job = asyncio.ensure_future(a_dispatcher(registry, ledger).dispatch(KEY, a_job()))
    await eventually(lambda: ledger.entries)
    still_waits = not job.done()
    die.set()

    with pytest.raises(NoAvailableWorkersError):
        await asyncio.wait_for(job, 5)

    # Two workers were lost under it: never a third.
    assert still_waits
    assert ledger.entries == [("w1", "failed"), ("w0", "failed")]
    assert in_flight(registry) == 0


async def test_the_budget_bounds_second_attempts() -> None:
    """With an empty budget the late worker keeps the request."""
    retry = Retry(hedge=AT_ONCE, budget_percent=0, budget_minimum=0)
    _, engines, dispatcher, _ = _fleet([HANG], HI, retry=retry)
    job = asyncio.ensure_future(dispatcher.dispatch(KEY, a_job()))
    await eventually(lambda: engines["w0"].running)

    done, _ = await asyncio.wait({job}, timeout=0.1)
    job.cancel()
    await asyncio.wait({job})

    assert not done
    assert engines["w1"].jobs == []


async def test_a_second_attempt_takes_no_room_from_those_who_wait() -> None:
    """While somebody is in the queue there is none: a full fleet is late because it is full."""
    admission = Admission(max_inflight=1)
    _, engines, dispatcher, _ = _fleet(
        [HANG], HI, admission=admission, retry=Retry(hedge=Hedge(after="50ms"))
    )
    jobs = [asyncio.ensure_future(dispatcher.dispatch(KEY, a_job())) for _ in range(2)]
    await eventually(lambda: engines["w0"].running)

    done, _ = await asyncio.wait(jobs, timeout=0.2)
    for job in jobs:
        job.cancel()
    await asyncio.wait(jobs)

    assert not done
    assert engines["w1"].jobs == []


@pytest.mark.parametrize("turns", range(8))
async def test_a_client_that_leaves_ends_both_attempts(turns: int) -> None:
    """Whenever it leaves: nothing stays in flight, on no worker."""
    registry, engines, dispatcher, ledger = _fleet([HANG], [HANG])
    job = asyncio.ensure_future(dispatcher.dispatch(KEY, a_job()))
    await eventually(lambda: engines["w0"].running)
    for _ in range(turns):
        await asyncio.sleep(0.0005)
    job.cancel()
    await asyncio.wait({job})

    assert job.cancelled()
    assert {outcome for _, outcome in ledger.entries} == {"abandoned"}
    assert in_flight(registry) == 0
    assert all(engine.running == 0 for engine in engines.values())


async def test_a_slow_worker_is_overtaken_over_sockets_and_its_call_ends(tmp_path: Path) -> None:
    """Streamed and whole: every word once, and nothing runs on at the slow worker."""
    slow, quick = Play(text="Late.", first_delay="30s"), Play(text="One two three.")
    async with a_worker(slow) as late, a_worker(quick) as soon:
        document = yaml.safe_load(manifest(late.address, soon.address))
        document["spec"]["retry"] = {"hedge": {"after": "50ms"}, "budgetMinimum": 100}
        async with running_router(tmp_path, json.dumps(document)) as router:
            ready = '"ready_workers": 2'

            async def both_are_ready() -> bool:
                page = (await router.http.get("/readyz")).json()
                return ready in json.dumps(page)

            await eventually(both_are_ready)
            body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
            said: list[str] = []
            for _ in range(3):
                answer = await router.http.post("/v1/chat/completions", json=body)
                said.append(answer.json()["choices"][0]["message"]["content"])
                streamed = await router.http.post(
                    "/v1/chat/completions", json=body | {"stream": True}
                )
                lines = streamed.text.splitlines()
                frames = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
                said.append(
                    "".join(frame["choices"][0]["delta"].get("content") or "" for frame in frames)
                )
            await eventually(lambda: not late.scheduler.running)

        assert said == ["One two three."] * 6
        assert late.received
        assert len(late.cancelled) == len(late.received)
