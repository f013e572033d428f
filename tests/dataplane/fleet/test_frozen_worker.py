"""A worker that takes jobs and says nothing: those that wait there go elsewhere once probes fail."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglr_dataplane.errors import NoAvailableWorkersError
from support.dispatching import Ledger, a_dispatcher, all_of, in_flight
from support.engines import HANG, HI, ScriptedEngine
from support.fleets import KEY, a_job, a_registry
from support.router import eventually, manifest, running_router
from support.sim import sim_process


async def _waiting(engine: ScriptedEngine, place: int = 0) -> None:
    """Return when the job of the *place*-th act waits for a chunk."""
    await eventually(lambda: len(engine.streams) > place)
    await engine.streams[place].waiting.wait()


async def test_a_job_that_waits_on_a_worker_that_goes_down_is_done_by_another() -> None:
    """At once, not at its deadline of two minutes; the frozen worker is charged one failure."""
    engines = {"w1": ScriptedEngine([HANG]), "w2": ScriptedEngine(HI)}
    registry = a_registry(engines)
    ledger = Ledger()
    job = asyncio.ensure_future(a_dispatcher(registry, ledger).dispatch(KEY, a_job()))
    await _waiting(engines["w1"])

    registry.workers()[0].became_unhealthy("It does not answer.")
    chunks = await all_of(await asyncio.wait_for(job, 5))

    assert len(chunks) == 3
    assert ledger.entries == [("w1", "failed"), ("w2", "succeeded")]
    assert engines["w1"].running == 0
    assert in_flight(registry) == 0


async def test_a_job_that_froze_two_workers_gets_no_third() -> None:
    """It may be what froze them."""
    engines = {f"w{n}": ScriptedEngine([HANG]) for n in range(3)}
    registry = a_registry(engines)
    job = asyncio.ensure_future(a_dispatcher(registry).dispatch(KEY, a_job()))
    for number in range(2):
        await _waiting(engines[f"w{number}"])
        registry.workers()[number].became_unhealthy("It does not answer.")

    with pytest.raises(NoAvailableWorkersError):
        await asyncio.wait_for(job, 5)

    assert [len(engine.jobs) for engine in engines.values()] == [1, 1, 0]
    assert in_flight(registry) == 0


async def test_a_stream_that_has_begun_stays_with_a_worker_that_goes_down() -> None:
    """What was sent cannot be taken back; a worker that is only slow may still finish."""
    registry = a_registry({"w1": ScriptedEngine(HI), "w2": ScriptedEngine(HI)})
    ledger = Ledger()
    async with aclosing(await a_dispatcher(registry, ledger).dispatch(KEY, a_job())) as stream:
        registry.workers()[0].became_unhealthy("It does not answer.")
        chunks = [chunk async for chunk in stream]

    assert len(chunks) == 3
    assert ledger.entries == [("w1", "succeeded")]


def _manifest(*addresses: str) -> str:
    """Return a manifest whose probes notice a silent worker within half a second."""
    document: dict[str, Any] = yaml.safe_load(manifest(*addresses))
    document["spec"] |= {
        "healthCheck": {"interval": "100ms", "timeout": "100ms", "unhealthyThreshold": 3},
        "timeouts": {"streamIdle": "1s"},
    }
    return json.dumps(document)


def _body(word: str, *, stream: bool = False) -> dict[str, Any]:
    messages = [{"role": "user", "content": word}]
    return {"model": "m", "messages": messages, "stream": stream}


async def test_requests_on_a_stopped_process_are_answered_by_another_worker(tmp_path: Path) -> None:
    """SIGSTOP: the kernel still takes what is sent. Six requests, half of them there: six answers."""
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps({"rules": [{"play": {"text": "Yes."}}]}))
    begin = ("--model-name", "m", "--script", str(script))
    async with (
        sim_process(tmp_path, *begin) as frozen,
        sim_process(tmp_path, *begin) as well,
        running_router(tmp_path, _manifest(frozen.address, well.address)) as router,
    ):
        await eventually(lambda: _ready(router.http, 2))
        frozen.send(signal.SIGSTOP)
        posts = [
            router.http.post("/v1/chat/completions", json=_body(f"{number}")) for number in range(6)
        ]
        answers = await asyncio.wait_for(asyncio.gather(*posts), 10)

        assert [answer.status_code for answer in answers] == [200] * 6


async def test_a_stream_on_a_stopped_process_ends_with_an_error_frame(tmp_path: Path) -> None:
    """At the idle deadline, with what was said before it: nothing is said twice."""
    script = tmp_path / "script.yaml"
    script.write_text(
        json.dumps({"rules": [{"play": {"pieces": ["one ", "two"], "delays": ["0s", "600s"]}}]})
    )
    async with (
        sim_process(tmp_path, "--model-name", "m", "--script", str(script)) as frozen,
        running_router(tmp_path, _manifest(frozen.address)) as router,
        router.http.stream("POST", "/v1/chat/completions", json=_body("x", stream=True)) as answer,
    ):
        frames: list[str] = []
        async for line in answer.aiter_lines():
            frames.append(line)
            if "one" in line:
                frozen.send(signal.SIGSTOP)

    said = [json.loads(line[6:]) for line in frames if line.startswith("data: {")]
    text = "".join(
        frame["choices"][0]["delta"].get("content") or "" for frame in said if "choices" in frame
    )
    assert text.strip() == "one"
    assert said[-1]["error"]["code"] == "request_timeout"
    assert [line for line in frames if line][-1] == "data: [DONE]"


async def _ready(http: Any, count: int) -> bool:
    """Return whether *count* workers are ready."""
    lines = (await http.get("/metrics")).text.splitlines()
    return any(
        line.startswith("sglr_workers{")
        and 'state="ready"' in line
        and line.endswith(f" {count}.0")
        for line in lines
    )
