"""The short way to what is posted to changes nothing but the cost."""

from __future__ import annotations

import asyncio

import pytest

from support.router import RunningRouter


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


async def test_what_is_found_by_the_routes_passes_the_same_middlewares(
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


async def test_what_is_no_request_is_counted(shared: RunningRouter) -> None:
    """Refusals of the protocol are in the metrics as those of the application are."""
    host, _, port = shared.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"BREW /coffee HTTP/1.1\r\n\r\n")
    await asyncio.wait_for(reader.read(), 10)
    writer.close()

    metrics = (await shared.http.get("/metrics")).text
    assert 'sglr_requests_total{outcome="invalid_http_request",route="other"} 1.0' in metrics
