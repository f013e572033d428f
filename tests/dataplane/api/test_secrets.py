"""A42: nobody's key and nobody's words in logs, metrics and answers, whatever goes wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from sglr_dataplane.config import AdminConfig
from sglr_dataplane.log import JsonFormatter
from sglr_dataplane.sim.script import Incident, Play, Rule, Script, Status, StatusCode, When
from support.router import RunningRouter, eventually, manifest, running_router
from support.sim import sim_worker

CALLER, WORKER, WORDS = "sk-SECRET123", "sk-WORKER456", "PROMPT-MARKER"
MARKERS = ("SECRET123", "WORKER456", WORDS)
CODES: tuple[StatusCode, ...] = (
    "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNAVAILABLE",
    "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL", "UNKNOWN", "UNIMPLEMENTED", "UNAUTHENTICATED",
    "PERMISSION_DENIED", "DATA_LOSS",
)  # fmt: skip
_ECHO = f"authorization: Bearer {WORKER} x-caller: {CALLER} prompt: {WORDS}"


def _script() -> Script:
    """Return a worker that echoes all it knows, by every status, before or after a token."""
    rules = [
        Rule(
            when=When(user=f"{code} {after}."),
            play=Play(
                pieces=("one", " two"),
                incidents=(Incident(after=after, status=Status(code=code, message=_ECHO)),),
            ),
        )
        for code in CODES
        for after in (0, 1)
    ]
    return Script(rules=(*rules, Rule(play=Play(text="Hi."))))


@asynccontextmanager
async def a_router(folder: Path) -> AsyncGenerator[RunningRouter]:
    """Run a router with callers' keys, over a worker with a key of its own."""
    (folder / "worker-key").write_text(WORKER)
    (folder / "keys.yaml").write_text(f"keys:\n- {{name: team-a, key: {CALLER}}}\n")
    async with sim_worker(_script(), model_name="m") as worker:
        document: dict[str, Any] = yaml.safe_load(manifest(worker.address))
        document["spec"] |= {
            "workerAuth": {"apiKeyFile": str(folder / "worker-key")},
            "outlierDetection": {"consecutiveFailures": 0, "failurePercent": 0},
        }
        async with running_router(
            folder,
            json.dumps(document),
            keys=str(folder / "keys.yaml"),
            admin=AdminConfig(port=0),
        ) as router:
            yield router


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return every line of the router; the simulated worker's are not its own."""
    return [
        JsonFormatter().format(record)
        for record in caplog.records
        if not record.name.startswith("sglr_dataplane.sim")
    ]


def _told(answer: httpx2.Response) -> str:
    return f"{answer.status_code} {answer.headers} {answer.text}"


def _body(words: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": words}], **fields}


KEY = {"Authorization": f"Bearer {CALLER}"}
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("stream", [False, True])
async def test_a42_a_worker_that_echoes_is_not_quoted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    """A42: every status, before and after the first token, at DEBUG."""
    caplog.set_level(logging.DEBUG, logger="sglr_dataplane")
    said: list[str] = []
    failed = 0
    async with a_router(tmp_path) as router:
        for code in CODES:
            for after in (0, 1):
                words = f"{WORDS} {code} {after}."
                answer = await router.http.post(CHAT, json=_body(words, stream=stream), headers=KEY)
                failed += "error" in answer.text
                said.append(_told(answer))
        said.append(_told(await router.http.get("/metrics")))
        said.append(_told(await router.http.get("/readyz")))
    told = [*said, *_lines(caplog)]

    assert failed == 2 * len(CODES)
    assert [line for line in told if any(marker in line for marker in MARKERS)] == []


async def test_a42_requests_that_are_wrong_are_not_repeated_in_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A42: broken bodies, wrong fields, wrong keys, unknown paths; keys in each of three headers."""
    caplog.set_level(logging.DEBUG, logger="sglr_dataplane")
    keys = [KEY, {"x-api-key": CALLER}, {"api-key": CALLER}]
    wrong: list[Any] = [
        _body(WORDS, temperature=WORDS),
        _body(WORDS, max_tokens=-1),
        _body(WORDS, stop=[WORDS], tools=[{"type": WORDS}]),
        {"model": WORDS, "messages": [{"role": "user", "content": "x"}]},
        {"messages": WORDS},
    ]
    answers: list[httpx2.Response] = []
    async with a_router(tmp_path) as router:
        for headers in keys:
            answers += [await router.http.post(CHAT, json=body, headers=headers) for body in wrong]
            answers += [
                await router.http.post(CHAT, json=_body(WORDS), headers=headers),
                await router.http.post(CHAT, content=f'{{"model": "{WORDS}', headers=headers),
                await router.http.post(
                    "/v1/completions", json={"model": "m", "prompt": WORDS}, headers=headers
                ),
                await router.http.post(f"/v1/{WORDS}", json=_body(WORDS), headers=headers),
            ]
        answers += [
            await router.http.post(CHAT, json=_body(WORDS), headers={"x-api-key": f"{CALLER}-no"}),
            await router.http.post(
                CHAT, json=_body(WORDS), headers={"authorization": f"Basic {CALLER}"}
            ),
        ]
        metrics = (await router.http.get("/metrics")).text
    told = [*_lines(caplog), metrics, *(f"{answer.headers}" for answer in answers)]
    bodies = "\n".join(answer.text for answer in answers)

    assert {answer.status_code for answer in answers} >= {200, 400, 401, 404}
    # The sender may be told its own wrong word; a key nobody is told.
    assert [line for line in told if any(marker in line for marker in MARKERS)] == []
    assert [marker for marker in ("SECRET123", "WORKER456") if marker in bodies] == []


async def test_a42_a_process_at_debug_writes_no_key_and_no_words(tmp_path: Path) -> None:
    """A42: libraries that write down headers at DEBUG are kept from it."""
    (tmp_path / "keys.yaml").write_text(f"keys:\n- {{name: team-a, key: {CALLER}}}\n")
    (tmp_path / "worker-key").write_text(WORKER)
    async with sim_worker(_script(), model_name="m") as worker:
        document: dict[str, Any] = yaml.safe_load(manifest(worker.address))
        document["spec"]["workerAuth"] = {"apiKeyFile": str(tmp_path / "worker-key")}
        (tmp_path / "backends.yaml").write_text(json.dumps(document))
        with (tmp_path / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sglr_dataplane", "serve"),
                *("-f", str(tmp_path / "backends.yaml"), "--port", "0", "--log-level", "DEBUG"),
                *("--keys-file", str(tmp_path / "keys.yaml"), "--drain-settle", "0s"),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
            try:
                assert process.stdout is not None
                async with asyncio.timeout(15):
                    address = json.loads(await process.stdout.readline())["address"]
                async with httpx2.AsyncClient(base_url=f"http://{address}") as http:

                    async def status(words: str) -> int:
                        answer = await http.post(CHAT, json=_body(words), headers=KEY)
                        return answer.status_code

                    async def is_served() -> bool:
                        return await status(WORDS) == 200

                    await eventually(is_served)
                    echoed = await status(f"{WORDS} INVALID_ARGUMENT 0.")
            finally:
                process.terminate()
                async with asyncio.timeout(10):
                    await process.wait()
    lines = (tmp_path / "log").read_text().splitlines()

    assert echoed == 400
    assert any('"level":"DEBUG"' in line for line in lines)
    assert [line for line in lines if any(marker in line for marker in MARKERS)] == []
