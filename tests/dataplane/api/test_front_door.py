"""What surrounds every request: how it is found, named, refused and told of."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from sglr_dataplane.sim.script import Play
from support.router import RunningRouter, a_worker, manifest, running_router


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/v1/chat/completions", 400, None),
        ("POST", "/v1/chat/completions/", 400, None),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/v1/nothing", 404, "unknown_url"),
        ("DELETE", "/nothing", 404, "unknown_url"),
    ],
)
async def test_every_path_and_method_is_answered_in_the_envelope(
    shared: RunningRouter, method: str, path: str, status: int, code: str | None
) -> None:
    """Found by the table, by the routes or not at all."""
    answer = await shared.http.request(method, path, json={})

    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert code is None or error["code"] == code


async def test_what_is_found_by_the_routes_is_surrounded_by_the_same(
    shared: RunningRouter,
) -> None:
    """Ids and counts are for every path."""
    for path in ("/v1/models", "/v1/tokenize"):
        await shared.http.request("POST", path, json={})
    answer = await shared.http.get("/v1/models", headers={"x-request-id": "mine"})
    metrics = (await shared.http.get("/metrics")).text

    assert answer.headers["x-request-id"] == "mine"
    assert 'sglr_requests_total{outcome="ok",route="/v1/models"} 1.0' in metrics
    assert 'route="/v1/tokenize"' in metrics


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (["mine"], "mine"),
        (["first", "second"], "first"),
        (["x" * 128], "x" * 128),
        (["x" * 129], None),
        (["two words"], None),
        ([], None),
    ],
)
async def test_a_request_has_its_clients_id_or_a_new_one(
    shared: RunningRouter, given: list[str], taken: str | None
) -> None:
    """On errors of every kind; what a log line could be broken with is not taken over."""
    headers = [("x-request-id", each) for each in given]
    for path in ("/v1/chat/completions", "/nothing", "/livez"):
        answer = await shared.http.post(path, headers=headers, json={})

        said = answer.headers["x-request-id"]
        assert said == taken if taken is not None else re.fullmatch("req_[0-9a-f]{24}", said)


async def test_a_post_only_path_says_so_in_its_headers(shared: RunningRouter) -> None:
    """As HTTP has it: 405 names what is allowed."""
    answer = await shared.http.get("/v1/chat/completions")

    assert answer.headers["allow"] == "POST"
    assert "Allowed: POST." in answer.json()["error"]["message"]


async def test_the_key_comes_before_what_else_is_wrong(tmp_path: Path) -> None:
    """Whoever has none learns nothing of paths and models; probes need none."""
    keys = tmp_path / "keys.yaml"
    keys.write_text("keys: [{name: a, key: sk-a}]")
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address), keys=str(keys)) as router,
    ):
        statuses = [
            (await router.http.request(method, path, headers=headers)).status_code
            for headers in ({}, {"authorization": "Bearer sk-a"})
            for method, path in (("GET", "/v1/completions"), ("GET", "/none"), ("GET", "/livez"))
        ]

    assert statuses == [401, 401, 200, 405, 404, 200]


async def test_what_is_no_request_is_counted(shared: RunningRouter) -> None:
    """Refusals of the protocol are in the metrics as those of the application are."""
    host, _, port = shared.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"BREW /coffee HTTP/1.1\r\n\r\n")
    await asyncio.wait_for(reader.read(), 10)
    writer.close()

    metrics = (await shared.http.get("/metrics")).text
    assert 'sglr_requests_total{outcome="invalid_http_request",route="other"} 1.0' in metrics


async def test_a_request_whose_body_cannot_be_read_is_counted_once(shared: RunningRouter) -> None:
    """It was counted when it came: its refusal is not another request."""

    async def counted() -> float:
        lines = (await shared.http.get("/metrics")).text.splitlines()
        ours = [each for each in lines if each.startswith("sglr_requests_total{")]
        return sum(float(each.rpartition(" ")[2]) for each in ours if "/metrics" not in each)

    before = await counted()
    host, _, port = shared.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(head + b"zz\r\n")
    said = await asyncio.wait_for(reader.read(), 10)
    writer.close()

    assert said.startswith(b"HTTP/1.1 400 ")
    assert await counted() == before + 1
