"""Field failures about limits and the end of a router, with HTTP workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sglr_client.testing import Fail, Hang, MockServer, Raw, Say, Then
from sglr_dataplane.config import DrainSettings, Limits
from support.http_workers import MODEL, a_chat, an_http_backend
from support.router import RunningRouter, eventually, running_router

PATH = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
FIRST_WORD = b'data: {"choices":[{"index":0,"delta":{"content":"one"},"finish_reason":null}]}\n\n'
ENDLESS = Raw([FIRST_WORD], then=Then.HANG)


async def is_counted(router: RunningRouter, name: str, value: float) -> bool:
    """Return whether a series *name* of the router's metrics has *value*."""
    lines = (await router.http.get("/metrics")).text.splitlines()
    pairs = (line.rpartition(" ")[::2] for line in lines if not line.startswith("#"))
    return any(series.partition("{")[0] == name and float(at) == value for series, at in pairs)


async def is_draining(router: RunningRouter) -> bool:
    """Return whether the router says that it drains."""
    return bool((await router.http.get("/readyz")).json()["status"] == "draining")


@pytest.mark.parametrize(
    "limits",
    [
        {"max_tokens": 5},
        {"max_completion_tokens": 5},
        {"max_tokens": 9, "max_completion_tokens": 5},
        {},
        {"max_tokens": None, "response_format": None, "tools": None, "stop": None},
    ],
    ids=["older", "newer", "both", "neither", "nulls"],
)
async def test_a36_a_worker_gets_the_length_limits_that_were_sent(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    """A36: nothing is dropped, added or turned into a default on the way through."""
    with MockServer([MODEL]) as worker:
        async with running_router(tmp_path, an_http_backend(worker)) as router:
            answer = await router.http.post(PATH, json=a_chat(**limits))

    assert answer.status_code == 200
    assert [request.body for request in worker.generations] == [a_chat(**limits)]


@pytest.mark.parametrize("value", [0, -1, "5"])
async def test_a36_a_wrong_length_limit_is_refused_once(tmp_path: Path, value: object) -> None:
    """A36: 400 in the worker's words, which only one worker is asked for."""
    refusal = Fail(400, "max_tokens must be at least 1.")
    with MockServer([MODEL]) as one, MockServer([MODEL]) as other:
        one.default = other.default = refusal
        async with running_router(tmp_path, an_http_backend(one, other)) as router:
            answer = await router.http.post(PATH, json=a_chat(max_tokens=value))

    seen = [request.body for request in (*one.generations, *other.generations)]
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, refusal.message)
    assert seen == [a_chat(max_tokens=value)]


def with_an_image(size: int) -> dict[str, Any]:
    """Return a chat with an image of *size* bytes, inline."""
    url = "data:image/png;base64," + "A" * size
    image = {"type": "image_url", "image_url": {"url": url}}
    return {"model": MODEL, "messages": [{"role": "user", "content": [image]}]}


@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
@pytest.mark.parametrize(
    ("size", "limit", "status"),
    [
        (8 * 2**20, None, 200),
        (40 * 2**20, None, 413),
        (40 * 2**20, 64 * 2**20, 200),
        (2**20, 2**20, 413),
    ],
    ids=["8 MiB", "40 MiB", "40 MiB, raised", "just above"],
)
async def test_a39_one_limit_decides_what_is_passed_on(
    tmp_path: Path, chunked: bool, size: int, limit: int | None, status: int
) -> None:
    """A39: up to it the image arrives whole, above it is 413 and the worker hears nothing."""
    sent = with_an_image(size)
    body = json.dumps(sent).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 2**18):
            yield body[at : at + 2**18]

    limits = Limits() if limit is None else Limits(max_body_bytes=limit)
    with MockServer([MODEL]) as worker:
        async with running_router(tmp_path, an_http_backend(worker), limits=limits) as router:
            content = pieces() if chunked else body
            answer = await router.http.post(PATH, content=content, headers=JSON)
            after = await router.http.post(PATH, json=a_chat())

    bodies = [request.body for request in worker.generations]
    assert (answer.status_code, after.status_code) == (status, 200)
    assert bodies == ([sent, a_chat()] if status == 200 else [a_chat()])
    if status == 413:
        assert answer.json()["error"]["code"] == "request_too_large"
        assert str(limits.max_body_bytes) in answer.json()["error"]["message"]


async def test_a40_slots_are_held_until_bodies_end(tmp_path: Path) -> None:
    """A40: two stream, one waits, the fourth is 429 at once; closing one lets the waiting one in."""
    admission = {"maxInflight": 2, "maxQueueDepth": 1, "maxQueueWait": "10s"}
    body = a_chat(stream=True)
    with MockServer([MODEL]) as worker:
        worker.play(ENDLESS, ENDLESS, Say("Hi."))
        async with (
            running_router(tmp_path, an_http_backend(worker, admission=admission)) as router,
            router.http.stream("POST", PATH, json=body) as first,
            router.http.stream("POST", PATH, json=body) as second,
        ):
            third = asyncio.ensure_future(router.http.post(PATH, json=a_chat()))
            await eventually(lambda: is_counted(router, "sglr_queue_waiting", 1))
            fourth = await router.http.post(PATH, json=a_chat())
            ready = await router.http.get("/readyz")
            early = third.done(), len(worker.generations)
            await first.aclose()
            admitted = await third
            await second.aclose()
            await eventually(lambda: is_counted(router, "sglr_requests_in_flight", 0))

    assert (second.status_code, ready.status_code, early) == (200, 200, (False, 2))
    assert (fourth.status_code, fourth.json()["error"]["code"]) == (429, "queue_full")
    assert int(fourth.headers["retry-after"]) >= 1
    assert admitted.json()["choices"][0]["message"]["content"] == "Hi."


@pytest.mark.parametrize("how", ["refused", "left"])
async def test_a40_a_slot_comes_back_when_there_is_no_answer(tmp_path: Path, how: str) -> None:
    """A40: an error before the headers frees the place, and so does a client that leaves."""
    admission = {"maxInflight": 1, "maxQueueDepth": 1}
    with MockServer([MODEL]) as worker:
        worker.play(Fail(400, "No.") if how == "refused" else Hang(), Say("Hi."))
        async with running_router(tmp_path, an_http_backend(worker, admission=admission)) as router:
            first = asyncio.ensure_future(router.http.post(PATH, json=a_chat()))
            await eventually(lambda: worker.generations)
            if how == "left":
                first.cancel()
            await asyncio.wait({first})
            second = await router.http.post(PATH, json=a_chat())

    assert first.cancelled() if how == "left" else first.result().status_code == 400
    assert second.json()["choices"][0]["message"]["content"] == "Hi."


async def test_a40_who_waits_too_long_is_refused_at_its_own_deadline(tmp_path: Path) -> None:
    """A40: the queue's time is up though nothing moves, and the worker never hears of it."""
    admission = {"maxInflight": 1, "maxQueueDepth": 1, "maxQueueWait": "200ms"}
    with MockServer([MODEL]) as worker:
        worker.play(ENDLESS)
        async with (
            running_router(tmp_path, an_http_backend(worker, admission=admission)) as router,
            router.http.stream("POST", PATH, json=a_chat(stream=True)),
        ):
            waited = await router.http.post(PATH, json=a_chat())

    assert (waited.status_code, waited.json()["error"]["code"]) == (429, "queue_timeout")
    assert len(worker.generations) == 1


async def test_a46_readiness_fails_first_and_requests_are_still_served(tmp_path: Path) -> None:
    """A46: while it settles, /readyz is 503 and a request is answered on a connection that ends."""
    drain = DrainSettings(settle=0.8, deadline=5)
    with MockServer([MODEL]) as worker:
        async with running_router(tmp_path, an_http_backend(worker), drain=drain) as router:
            os.kill(os.getpid(), signal.SIGTERM)
            await eventually(lambda: is_draining(router))
            ready = await router.http.get("/readyz")
            answer = await router.http.post(PATH, json=a_chat())

    assert (ready.status_code, answer.status_code) == (503, 200)
    assert answer.headers["connection"] == "close"


async def test_a46_short_streams_finish_long_ones_are_told_new_ones_refused(tmp_path: Path) -> None:
    """A46: at the deadline what still runs has an error frame and [DONE]; its worker is left."""
    drain = DrainSettings(settle=0, deadline=1.5)
    body = a_chat(stream=True)
    with MockServer([MODEL]) as worker:
        worker.play(Say("one two three four", gap=0.1), ENDLESS)
        async with (
            running_router(tmp_path, an_http_backend(worker), drain=drain) as router,
            router.http.stream("POST", PATH, json=body) as short,
            router.http.stream("POST", PATH, json=body) as endless,
        ):
            os.kill(os.getpid(), signal.SIGTERM)
            await eventually(lambda: is_draining(router))
            refused = await router.http.post(PATH, json=body)
            complete, cut = (await short.aread()).decode(), (await endless.aread()).decode()
            await eventually(worker.generations[1].left.is_set)

    assert '"finish_reason":"stop"' in complete.replace(" ", "")
    assert complete.endswith("data: [DONE]\n\n")
    *_, error, done = [frame for frame in cut.split("\n\n") if frame]
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "router_draining"
    assert done == "data: [DONE]"
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "router_draining")
    assert refused.headers["connection"] == "close"


@pytest.mark.parametrize("stream", [True, False])
async def test_a46_a_request_without_an_answer_at_the_deadline_is_503(
    tmp_path: Path, stream: bool
) -> None:
    """A46: before the status is sent there is a better word than a cut connection."""
    drain = DrainSettings(settle=0, deadline=0.3)
    with MockServer([MODEL]) as worker:
        worker.play(Hang())
        async with running_router(tmp_path, an_http_backend(worker), drain=drain) as router:
            waiting = asyncio.ensure_future(router.http.post(PATH, json=a_chat(stream=stream)))
            await eventually(lambda: worker.generations)
            os.kill(os.getpid(), signal.SIGTERM)
            answer = await waiting

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "router_draining")
