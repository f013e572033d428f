"""Who may ask, how much, and from where; and that nobody's key or words are written down."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from sglr_dataplane.log import JsonFormatter
from sglr_dataplane.sim.script import Incident, Play, Status
from support.router import RunningRouter, a_worker, eventually, manifest, running_router

PATH = "/v1/chat/completions"
REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
KEYS = """\
keys:
- {name: team-a, key: sk-SECRET123, requestsPerMinute: 3}
- {name: team-b, key: sk-OTHER, models: [org/alias]}
"""
ORIGIN = "https://pages.example"


def a_keys_file(folder: Path) -> str:
    """Return the path of a file with two keys."""
    path = folder / "keys.yaml"
    path.write_text(KEYS)
    return str(path)


def bearer(key: str) -> dict[str, str]:
    """Return the header that carries *key*."""
    return {"Authorization": f"Bearer {key}"}


async def post(router: RunningRouter, key: str = "", **fields: Any) -> httpx2.Response:
    """Return the answer to a chat request with *key*."""
    headers = bearer(key) if key else {}
    return await router.http.post(PATH, json={**REQUEST, **fields}, headers=headers)


async def test_requests_need_a_key_and_probes_do_not(tmp_path: Path) -> None:
    """401 in OpenAI's shape without a key or with a wrong one; probes and scrapes are free."""
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address), keys=a_keys_file(tmp_path)) as router,
    ):
        answers = [
            await post(router),
            await post(router, "sk-SECRET12"),
            await router.http.get("/v1/models"),
            await router.http.get("/nothing/here"),
        ]
        good = await post(router, "sk-SECRET123")
        anthropic = await router.http.post(
            PATH, json=REQUEST, headers={"x-api-key": "sk-SECRET123"}
        )
        free = [await router.http.get(path) for path in ("/livez", "/readyz", "/metrics")]

    assert [answer.status_code for answer in answers] == [401] * 4
    assert all(a.json()["error"]["code"] == "invalid_api_key" for a in answers)
    assert all(answer.headers["www-authenticate"] == "Bearer" for answer in answers)
    assert (good.status_code, anthropic.status_code) == (200, 200)
    assert [answer.status_code for answer in free] == [200] * 3
    assert len(worker.requests) == 2


async def test_refusals_of_callers_have_anthropics_shape_where_its_clients_ask(
    tmp_path: Path,
) -> None:
    """No key, and more than the rate allows: /v1/messages says both as Anthropic does."""
    body = {**REQUEST, "max_tokens": 5}
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address), keys=a_keys_file(tmp_path)) as router,
    ):
        answers = [
            await router.http.post("/v1/messages", json=body, headers=headers)
            for headers in ({}, *[{"x-api-key": "sk-SECRET123"}] * 4)
        ]

    first, *_, last = (answer.json() for answer in answers)
    assert [answer.status_code for answer in answers] == [401, 200, 200, 200, 429]
    assert (first["type"], first["error"]["type"]) == ("error", "authentication_error")
    assert (last["type"], last["error"]["type"]) == ("error", "rate_limit_error")
    assert int(answers[-1].headers["retry-after"]) >= 1


async def test_a_key_says_which_models_it_may_use(tmp_path: Path) -> None:
    """Another model is 404, as if it were not there, and is not listed either."""
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address), keys=a_keys_file(tmp_path)) as router,
    ):
        refused = await post(router, "sk-OTHER")
        allowed = await post(router, "sk-OTHER", model="org/alias")
        listed = await router.http.get("/v1/models", headers=bearer("sk-OTHER"))

    assert (refused.status_code, allowed.status_code) == (404, 200)
    assert refused.json()["error"]["code"] == "model_not_found"
    assert [card["id"] for card in listed.json()["data"]] == ["org/alias"]


async def test_a_keys_rate_is_told_and_held(tmp_path: Path) -> None:
    """Three a minute: the fourth is 429 with Retry-After, and each answer says what is left."""
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address), keys=a_keys_file(tmp_path)) as router,
    ):
        answers = [await post(router, "sk-SECRET123") for _ in range(4)]
        other = await post(router, "sk-OTHER", model="org/alias")

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    left = [answer.headers["x-ratelimit-remaining-requests"] for answer in answers]
    assert left == ["2", "1", "0", "0"]
    assert answers[3].json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(answers[3].headers["retry-after"]) <= 20
    assert "x-ratelimit-limit-requests" not in other.headers


async def test_a37_browsers_may_call_from_configured_origins(tmp_path: Path) -> None:
    """A37: a preflight needs no key and is given what it asks for; errors are readable, too."""
    preflight = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
    }
    origin = {"Origin": ORIGIN}
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(
            tmp_path,
            manifest(worker.address),
            keys=a_keys_file(tmp_path),
            cors_origins=(ORIGIN,),
        ) as router,
    ):
        asked = await router.http.options(PATH, headers=preflight)
        refused = await router.http.post(PATH, json=REQUEST, headers=origin)
        stream = await router.http.post(
            PATH, json={**REQUEST, "stream": True}, headers=origin | bearer("sk-SECRET123")
        )
        stranger = await router.http.options(PATH, headers={**preflight, "Origin": "https://a.b"})

    assert asked.status_code in {200, 204}
    assert asked.headers["access-control-allow-origin"] == ORIGIN
    allowed = asked.headers["access-control-allow-headers"].lower()
    assert all(name in allowed for name in ("authorization", "content-type", "x-stainless-os"))
    assert refused.status_code == 401
    for answer in (refused, stream):
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "x-request-id" in answer.headers["access-control-expose-headers"].lower()
        assert "access-control-allow-credentials" not in answer.headers
    assert "access-control-allow-origin" not in stranger.headers


async def test_a37_off_unless_configured_and_never_with_credentials(tmp_path: Path) -> None:
    """A37: without origins no page may call; with * no cookie goes along."""
    origin = {"Origin": ORIGIN}
    async with a_worker(Play(text="Hi.")) as worker:
        async with running_router(tmp_path, manifest(worker.address)) as router:
            closed = await router.http.post(PATH, json=REQUEST, headers=origin)
        async with running_router(
            tmp_path, manifest(worker.address), cors_origins=("*",)
        ) as router:
            open_to_all = await router.http.post(
                PATH, json=REQUEST, headers=origin | {"Cookie": "a=b"}
            )

    assert "access-control-allow-origin" not in closed.headers
    assert open_to_all.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in open_to_all.headers


def with_admission(text: str, **admission: object) -> str:
    """Return the manifest *text* with these limits."""
    document = yaml.safe_load(text)
    document["spec"]["admission"] = admission
    return yaml.safe_dump(document)


async def test_a40_slots_are_held_until_bodies_end(tmp_path: Path) -> None:
    """A40: two stream, one waits, the fourth is 429 at once; closing one lets the waiting one in."""
    text = " ".join(["word"] * 40)
    slow = Play(text=text, delay="100ms")
    body = {**REQUEST, "stream": True}
    async with (
        a_worker(slow, slow, Play(text="Hi.")) as worker,
        running_router(
            tmp_path,
            with_admission(
                manifest(worker.address), maxInflight=2, maxQueueDepth=1, maxQueueWait="10s"
            ),
        ) as router,
        router.http.stream("POST", PATH, json=body) as first,
        router.http.stream("POST", PATH, json=body) as second,
    ):
        third = asyncio.ensure_future(post(router))
        await eventually(lambda: is_waiting(router))
        fourth = await post(router)
        ready = await router.http.get("/readyz")
        early = third.done()
        await first.aclose()
        admitted = await third
        await second.aclose()
        await eventually(lambda: in_flight_is(router, 0))

    assert (second.status_code, ready.status_code, early) == (200, 200, False)
    assert fourth.status_code == 429
    assert fourth.json()["error"]["code"] == "queue_full"
    assert int(fourth.headers["retry-after"]) >= 1
    assert admitted.status_code == 200


async def is_waiting(router: RunningRouter) -> bool:
    """Return whether a request waits in the queue."""
    return "sglr_queue_waiting{" in (text := (await router.http.get("/metrics")).text) and any(
        line.startswith("sglr_queue_waiting{") and line.endswith(" 1.0")
        for line in text.splitlines()
    )


async def in_flight_is(router: RunningRouter, count: int) -> bool:
    """Return whether so many requests are being answered."""
    text = (await router.http.get("/metrics")).text
    return f"sglr_requests_in_flight {count}.0" in text.splitlines()


async def test_a42_neither_keys_nor_words_are_written_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A42: at DEBUG, with errors that echo, no log line, metric or answer has key or prompt."""
    caplog.set_level(logging.DEBUG, logger="sglr_dataplane")
    echo = Status(code="INTERNAL", message="authorization: Bearer sk-SECRET123 PROMPT-MARKER")
    message = [{"role": "user", "content": "PROMPT-MARKER"}]
    async with (
        a_worker(Play(text="Hi."), Play(incidents=(Incident(status=echo),))) as worker,
        running_router(tmp_path, manifest(worker.address), keys=a_keys_file(tmp_path)) as router,
    ):
        answers = [
            await post(router, "sk-SECRET123", messages=message),
            await post(router, "sk-SECRET123", messages=message),
            await post(router, "sk-SECRET123-wrong", messages=message),
            await router.http.get("/metrics"),
        ]
    lines = [
        JsonFormatter().format(record)
        for record in caplog.records
        if record.name.startswith("sglr_dataplane.") and ".sim" not in record.name
    ]
    said = "\n".join([*lines, *(f"{a.headers} {a.text}" for a in answers)])

    assert [answer.status_code for answer in answers] == [200, 502, 401, 200]
    assert any(json.loads(line)["message"] == "request" for line in lines)
    assert "SECRET123" not in said
    assert "PROMPT-MARKER" not in said


async def test_a44_callers_make_no_series(tmp_path: Path) -> None:
    """A44: two hundred models nobody serves make no series, and are counted as not found."""
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        await post(router, model="unknown")
        await router.http.post("/v1/none", json={})
        await router.http.get("/metrics")
        before = series((await router.http.get("/metrics")).text)
        for tens in range(20):
            numbers = range(tens * 10, tens * 10 + 10)
            await asyncio.gather(*(router.http.get(f"/v1/{number}") for number in numbers))
            await asyncio.gather(*(post(router, model=f"unknown-{number}") for number in numbers))
        text = (await router.http.get("/metrics")).text

    assert series(text) == before
    assert 'outcome="model_not_found",route="/v1/chat/completions"} 201.0' in text


async def test_a44_the_series_of_a_backend_that_is_gone_are_gone(tmp_path: Path) -> None:
    """A44: nothing of it, its workers or its models is scraped any more."""
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        await post(router)
        before = (await router.http.get("/metrics")).text
        other = manifest(worker.address, model="other").replace("name: backend", "name: next")
        router.manifest.write_text(other.replace("org/alias", "org/other").replace("/leading", "x"))
        await eventually(lambda: is_gone(router))

    assert 'backend="default/backend"' in before
    assert 'model="m"' in before


async def is_gone(router: RunningRouter) -> bool:
    """Return whether nothing of the first backend is scraped any more."""
    text = (await router.http.get("/metrics")).text
    assert 'outcome="ok",route="/v1/chat/completions"' in text
    return 'backend="default/backend"' not in text and 'model="m"' not in text


def series(text: str) -> set[str]:
    """Return the names and labels in *text*."""
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}
