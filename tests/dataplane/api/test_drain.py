"""A46: a router ends without anybody's answer being cut."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from sglr_dataplane.api.drain import Drain, DrainPhase
from sglr_dataplane.config import DrainSettings
from sglr_dataplane.sim.script import Incident, Play
from support.router import SECONDS, a_worker, eventually, manifest, running_router

PATH = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hello"}],
    "stream": True,
}
WORDS = Play(text="one two three four five", delay="100ms")
ENDLESS = Play(text="one two", incidents=(Incident(after=2, hang=True),))
SILENT = Play(text="one", first_delay="20s")


@asynccontextmanager
async def streaming(http: httpx2.AsyncClient) -> AsyncGenerator[httpx2.Response]:
    """Start a chat stream and return its answer when the headers are there."""
    async with http.stream("POST", PATH, json=BODY) as answer:
        assert answer.status_code == 200
        yield answer


async def test_a46_readiness_fails_first_and_requests_are_still_served(tmp_path: Path) -> None:
    """While it settles, /readyz is 503 and a new request is answered on a connection that ends."""
    drain = DrainSettings(settle=0.8, deadline=5)
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address), drain=drain) as router,
    ):
        os.kill(os.getpid(), signal.SIGTERM)
        await eventually(lambda: is_draining(router.http))
        ready = await router.http.get("/readyz")
        alive = await router.http.get("/livez")
        answer = await router.http.post(PATH, json={**BODY, "stream": False})

    assert ready.status_code == 503
    assert ready.json()["status"] == "draining"
    assert alive.status_code == 200
    assert answer.status_code == 200
    assert answer.headers["connection"] == "close"


async def test_a46_short_streams_finish_long_ones_are_told_new_ones_refused(tmp_path: Path) -> None:
    """At the deadline a stream that still runs has an error frame and [DONE], nothing is cut."""
    drain = DrainSettings(settle=0, deadline=1.5)
    async with (
        a_worker(WORDS, ENDLESS) as worker,
        running_router(tmp_path, manifest(worker.address), drain=drain) as router,
        streaming(router.http) as short,
        streaming(router.http) as endless,
    ):
        os.kill(os.getpid(), signal.SIGTERM)
        await eventually(lambda: is_draining(router.http))
        refused = await router.http.post(PATH, json=BODY)
        complete, cut = (await short.aread()).decode(), (await endless.aread()).decode()
        await eventually(lambda: worker.cancelled)

    assert complete.endswith("data: [DONE]\n\n")
    assert '"finish_reason":"stop"' in complete
    *_, error, done = [frame for frame in cut.split("\n\n") if frame]
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "router_draining"
    assert done == "data: [DONE]"
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "router_draining"
    assert refused.headers["connection"] == "close"
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("path", "fields", "name"),
    [
        ("/v1/messages", {"messages": BODY["messages"], "max_tokens": 9}, "overloaded_error"),
        ("/v1/responses", {"input": "Hi"}, "router_draining"),
        ("/v1/completions", {"prompt": "Hi"}, "router_draining"),
    ],
)
async def test_a46_the_last_frame_is_in_the_words_of_its_api(
    tmp_path: Path, path: str, fields: dict[str, Any], name: str
) -> None:
    """Events where the API has events, before the stream and within it."""
    drain = DrainSettings(settle=0, deadline=0.7)
    body = {"model": "m", "stream": True, **fields}
    async with (
        a_worker(ENDLESS) as worker,
        running_router(tmp_path, manifest(worker.address), drain=drain) as router,
        router.http.stream("POST", path, json=body) as answer,
    ):
        os.kill(os.getpid(), signal.SIGTERM)
        await eventually(lambda: is_draining(router.http))
        refused = (await router.http.post(path, json=body)).json()
        *_, last = [frame for frame in (await answer.aread()).decode().split("\n\n") if frame]

    if path == "/v1/completions":
        assert last == "data: [DONE]"
        assert refused["error"]["code"] == name
        return
    event, data = last.split("\n")
    told = json.loads(data.removeprefix("data: "))
    assert event == "event: error"
    assert told["type"] == "error"
    if path == "/v1/messages":
        assert told["error"]["type"] == name
        assert refused["error"]["type"] == name
    else:
        assert told["code"] == name
        assert refused["error"]["code"] == name


@pytest.mark.parametrize("stream", [True, False])
async def test_a46_a_request_without_an_answer_at_the_deadline_is_503(
    tmp_path: Path, stream: bool
) -> None:
    """Before the status is sent there is a better word than a cut connection."""
    drain = DrainSettings(settle=0, deadline=0.3)
    async with (
        a_worker(SILENT) as worker,
        running_router(tmp_path, manifest(worker.address), drain=drain) as router,
    ):
        waiting = asyncio.ensure_future(router.http.post(PATH, json={**BODY, "stream": stream}))
        await eventually(lambda: worker.requests)
        os.kill(os.getpid(), signal.SIGTERM)
        answer = await waiting

    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "router_draining"


async def test_a_drain_ends_at_once_when_nobody_is_served() -> None:
    """Nothing to wait for is not waited for."""
    drain = Drain(DrainSettings(settle=0, deadline=60))

    await asyncio.wait_for(drain.run(), 2)

    assert drain.phase is DrainPhase.EXPIRED
    assert drain.active == 0


@pytest.mark.processes
@pytest.mark.parametrize("signals", [1, 2])
async def test_a46_the_process_exits_with_0_and_at_once_at_a_second_signal(
    tmp_path: Path, signals: int
) -> None:
    """One SIGTERM waits for the settle time, a second one for nothing."""
    async with a_worker(Play(text="Hi.")) as worker:
        path = tmp_path / "backends.yaml"
        path.write_text(manifest(worker.address))
        settle = "300ms" if signals == 1 else "60s"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "sglr_dataplane", "serve", "-f", str(path), "--port", "0"),
            *("--drain-settle", settle, "--drain-deadline", "60s"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(SECONDS):
                address = json.loads(await process.stdout.readline())["address"]
                process.send_signal(signal.SIGTERM)
                if signals > 1:
                    async with httpx2.AsyncClient(base_url=f"http://{address}") as http:
                        await eventually(lambda: is_draining(http))
                    process.send_signal(signal.SIGTERM)
                _, log = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    assert process.returncode == 0, log.decode()
    assert "Traceback" not in log.decode()


async def is_draining(http: httpx2.AsyncClient) -> bool:
    """Return whether the router behind *http* says that it drains."""
    answer = await http.get("/readyz")
    return bool(answer.json()["status"] == "draining")
