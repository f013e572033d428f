"""Field failures of fleets, over a whole router and simulated workers."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sglr_dataplane.sim.script import Incident, Play, Rule, Script, Status, StatusCode, When
from sglr_dataplane.sim.worker import SimWorker
from support.router import RunningRouter, eventually, manifest, running_router
from support.sim import sim_worker

PATH = "/v1/chat/completions"
WORKERS = 3


@dataclass(frozen=True)
class Told:
    """What came of one request that every worker answers with one status."""

    status: int
    """What the client hears."""
    code: str
    asked: int
    """How many workers were asked."""
    outcomes: frozenset[str]
    """What their breakers heard."""
    retry_after: bool
    """Whether the client hears when to come back."""


FAILED, NOTHING = frozenset({"failed"}), frozenset({"abandoned"})
BROKEN = Told(502, "worker_error", 2, FAILED, retry_after=False)
REFUSED = Told(400, "invalid_request", 1, NOTHING, retry_after=False)
BUSY = Told(503, "worker_busy", WORKERS, NOTHING, retry_after=True)

TABLE: dict[tuple[StatusCode, str], Told] = {
    ("INVALID_ARGUMENT", "top_p is wrong"): REFUSED,
    ("NOT_FOUND", "no such adapter"): REFUSED,
    ("FAILED_PRECONDITION", "grammar dead end"): REFUSED,
    ("RESOURCE_EXHAUSTED", "too many"): BUSY,
    ("UNAVAILABLE", "The request queue is full."): BUSY,
    ("UNAVAILABLE", "Socket closed"): Told(
        503, "no_available_workers", 2, FAILED, retry_after=True
    ),
    ("INTERNAL", "Server shutting down"): Told(
        503, "no_available_workers", WORKERS, FAILED, retry_after=True
    ),
    ("DEADLINE_EXCEEDED", "too late"): Told(504, "request_timeout", 1, FAILED, retry_after=False),
    ("INTERNAL", "CUDA error"): BROKEN,
    ("CANCELLED", "cancelled"): BROKEN,
    ("UNKNOWN", "?"): BROKEN,
    ("ABORTED", "aborted"): BROKEN,
    ("OUT_OF_RANGE", "too far"): BROKEN,
    ("ALREADY_EXISTS", "twice"): BROKEN,
    ("DATA_LOSS", "gone"): BROKEN,
    ("UNIMPLEMENTED", "Method not found!"): BROKEN,
    ("PERMISSION_DENIED", "no"): BROKEN,
    ("UNAUTHENTICATED", "who?"): BROKEN,
}


def _script() -> Script:
    """Return a script by which a prompt names the status it is answered with, and when."""
    rules: list[Rule] = []
    for number, (code, message) in enumerate(TABLE):
        for word, after in (("before", 0), ("after", 1)):
            ends = Incident(after=after, status=Status(code=code, message=message))
            play = Play(pieces=("one", " two"), incidents=(ends,))
            rules.append(Rule(when=When(user=f"{word}-{number}."), play=play))
    return Script(rules=(*rules, Rule(play=Play(text="Yes."))))


@asynccontextmanager
async def a_fleet(
    folder: Path, script: Script, count: int = WORKERS, **spec: Any
) -> AsyncGenerator[tuple[RunningRouter, list[SimWorker]]]:
    """Run a router over *count* workers that play *script*; nothing but the table is in the way."""
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(sim_worker(script, model_name="m"))
            for _ in range(count)
        ]
        document = yaml.safe_load(manifest(*(worker.address for worker in workers)))
        document["spec"] |= {
            "retry": {"budgetMinimum": 10_000, "initialBackoff": "0s"},
            "outlierDetection": {"consecutiveFailures": 0, "failurePercent": 0},
            **spec,
        }
        yield (
            await stack.enter_async_context(running_router(folder, json.dumps(document))),
            workers,
        )


def _body(words: str, *, stream: bool = False) -> dict[str, Any]:
    message = {"role": "user", "content": words}
    return {"model": "m", "messages": [message], "stream": stream, "max_tokens": 50}


async def _outcomes(router: RunningRouter) -> dict[str, float]:
    """Return how often which outcome was counted."""
    text = (await router.http.get("/metrics")).text
    found = re.findall(
        r'^sglr_worker_attempts_total\{.*outcome="(\w+)".*\} (\S+)$', text, re.MULTILINE
    )
    return {outcome: float(count) for outcome, count in found}


async def test_a11_every_status_before_the_first_token_has_its_answer(tmp_path: Path) -> None:
    """A11: who is asked how often, what the client hears, and what the breaker does."""
    found: dict[tuple[StatusCode, str], Told] = {}
    async with a_fleet(tmp_path, _script()) as (router, workers):
        for number, key in enumerate(TABLE):
            asked = sum(len(worker.received) for worker in workers)
            before = await _outcomes(router)
            answer = await router.http.post(PATH, json=_body(f"before-{number}."))
            after = await _outcomes(router)
            found[key] = Told(
                answer.status_code,
                answer.json()["error"]["code"],
                sum(len(worker.received) for worker in workers) - asked,
                frozenset(name for name in after if after[name] > before.get(name, 0)),
                retry_after=int(answer.headers.get("retry-after", "0")) >= 1,
            )
            await eventually(lambda: _all_ready(router))

    assert found == TABLE


async def _all_ready(router: RunningRouter) -> bool:
    """Return whether every worker is usable again: a lost connection is looked into first."""
    (facts,) = (await router.http.get("/readyz")).json()["backends"].values()
    return bool(facts["ready_workers"] == WORKERS)


async def test_a11_no_status_after_the_first_token_is_tried_again(tmp_path: Path) -> None:
    """A11: one worker is asked, what it said stays, one error frame and [DONE] end it."""
    asked: list[int] = []
    said: list[str] = []
    ends: list[tuple[bool, str]] = []
    async with a_fleet(tmp_path, _script()) as (router, workers):
        for number in range(len(TABLE)):
            before = sum(len(worker.received) for worker in workers)
            answer = await router.http.post(PATH, json=_body(f"after-{number}.", stream=True))
            asked.append(sum(len(worker.received) for worker in workers) - before)
            lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
            frames = [json.loads(line) for line in lines[:-1]]
            said.append(
                "".join(
                    frame["choices"][0]["delta"].get("content") or ""
                    for frame in frames
                    if frame.get("choices")
                )
            )
            ends.append(("error" in frames[-1], lines[-1]))
            await eventually(lambda: _all_ready(router))

    assert asked == [1] * len(TABLE)
    assert said == ["one"] * len(TABLE)
    assert ends == [(True, "[DONE]")] * len(TABLE)


async def test_a10_a_worker_that_refuses_connections_costs_its_sticky_request_nothing(
    tmp_path: Path,
) -> None:
    """A10: session affinity prefers a dead worker; the second attempt goes to the other one."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"  # bound, and never listened on
        async with sim_worker(
            Script(rules=(Rule(play=Play(text="Yes.")),)), model_name="m"
        ) as well:
            document = yaml.safe_load(manifest(well.address, nobody))
            document["spec"]["routing"] = {
                "policy": "ConsistentHash",
                "consistentHash": {"header": "x-session"},
            }
            async with running_router(tmp_path, json.dumps(document)) as router:
                answers = [
                    await router.http.post(PATH, json=_body("hi"), headers={"x-session": f"{n}"})
                    for n in range(12)
                ]

    assert [answer.status_code for answer in answers] == [200] * 12


async def test_a08_a_client_that_leaves_ends_a_generation_that_is_not_streamed(
    tmp_path: Path,
) -> None:
    """A08: the worker's call is cancelled within a second, nothing stays, and nobody failed."""
    endless = Script(rules=(Rule(play=Play(pieces=("one ", *["more "] * 4000), delay="20ms")),))
    async with a_fleet(tmp_path, endless, count=1) as (router, (worker,)):
        request = asyncio.ensure_future(
            router.http.post(PATH, json=_body("hi") | {"max_tokens": 4000})
        )
        await eventually(lambda: worker.scheduler.running)
        request.cancel()
        await asyncio.wait({request})
        async with asyncio.timeout(5):
            await eventually(lambda: worker.cancelled)
            await eventually(lambda: not worker.scheduler.running)
        ids = [received.request.request_id for received in worker.received]
        outcomes = await _outcomes(router)
        lines = (await router.http.get("/metrics")).text.splitlines()

        assert worker.cancelled == ids
        assert worker.aborted == []  # cancelling the call is enough, and ends nobody else's
        assert outcomes.get("failed", 0) == 0
        assert "sglr_requests_in_flight 0.0" in lines


SHARP = {"outlierDetection": {"consecutiveFailures": 3, "baseEjection": "300s"}}


async def test_a12_refused_requests_take_no_worker_away(tmp_path: Path) -> None:
    """A12: threshold three, ten refusals of each kind, then a good request is served."""
    numbers = [number for number, told in enumerate(TABLE.values()) if told == REFUSED]
    async with a_fleet(tmp_path, _script(), count=1, **SHARP) as (router, _):
        for number in numbers:
            for _ in range(10):
                refused = await router.http.post(PATH, json=_body(f"before-{number}."))
                assert refused.status_code == 400
        good = await router.http.post(PATH, json=_body("hi"))
        metrics = (await router.http.get("/metrics")).text

    assert len(numbers) == 3
    assert good.status_code == 200
    assert _breaker(metrics) == {0.0}


async def test_a13_a_full_worker_is_back_at_once(tmp_path: Path) -> None:
    """A13: twenty full queues of either kind, then the only worker has room: no cool-down."""
    numbers = [number for number, told in enumerate(TABLE.values()) if told == BUSY]
    async with a_fleet(tmp_path, _script(), count=1, **SHARP) as (router, _):
        for number in numbers:
            for _ in range(20):
                busy = await router.http.post(PATH, json=_body(f"before-{number}."))
                assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
        good = await router.http.post(PATH, json=_body("hi"))
        metrics = (await router.http.get("/metrics")).text

    assert len(numbers) == 2
    assert good.status_code == 200
    assert _breaker(metrics) == {0.0}


def _breaker(metrics: str) -> set[float]:
    """Return the states of the workers' breakers; 0 is closed."""
    found = re.findall(r"^sglr_worker_breaker_state\{.*\} (\S+)$", metrics, re.MULTILINE)
    return {float(state) for state in found}


async def test_a45_requests_that_end_in_every_way_leave_nothing_in_flight(tmp_path: Path) -> None:
    """A45: answered, refused, failed before and within the stream, and clients that leave."""
    async with a_fleet(tmp_path, _script()) as (router, workers):

        async def one(number: int) -> None:
            word = ("hi", f"before-{number % len(TABLE)}.", f"after-{number % len(TABLE)}.")[
                number % 3
            ]
            body = _body(word, stream=number % 2 == 0)
            if number % 5:
                await router.http.post(PATH, json=body)
                return
            async with router.http.stream("POST", PATH, json=body | {"stream": True}) as answer:
                async for _ in answer.aiter_bytes():
                    return

        for first in range(0, 150, 10):
            await asyncio.gather(*(one(number) for number in range(first, first + 10)))
        await eventually(lambda: _none_in_flight(router))

        assert all(not worker.scheduler.running for worker in workers)


async def _none_in_flight(router: RunningRouter) -> bool:
    lines = (await router.http.get("/metrics")).text.splitlines()
    counted = [line for line in lines if line.startswith("sglr_worker_in_flight{")]
    return (
        len(counted) == WORKERS
        and all(line.endswith(" 0.0") for line in counted)
        and "sglr_requests_in_flight 0.0" in lines
    )
