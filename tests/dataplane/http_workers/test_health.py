"""HTTP workers that load, serve another model, or want a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sglr_client.testing import MockServer
from support.http_workers import MODEL, a_chat, an_http_backend
from support.router import RunningRouter, eventually, running_router

PATH = "/v1/chat/completions"


async def problem(router: RunningRouter) -> str | None:
    """Return what /readyz says is wrong with the backend."""
    facts: dict[str, Any] = (await router.http.get("/readyz")).json()["backends"]["default/http"]
    found: str | None = facts["problem"]
    return found


async def test_a_worker_that_loads_gets_nothing_and_is_used_when_it_is_up(tmp_path: Path) -> None:
    """/health says 503 while it loads: alive is not ready, and slow is not broken."""
    with MockServer([MODEL]) as worker:
        worker.health_status = 503
        async with running_router(tmp_path, an_http_backend(worker), ready=False) as router:
            await eventually(lambda: [r for r in worker.requests if r.path == "/health"][1:])
            early = await router.http.post(PATH, json=a_chat())
            worker.health_status = 200
            await router.until_ready()
            late = await router.http.post(PATH, json=a_chat())

    assert (early.status_code, late.status_code) == (503, 200)
    assert early.json()["error"]["code"] == "no_available_workers"
    assert len(worker.generations) == 1


async def test_a_worker_without_the_model_is_not_used(tmp_path: Path) -> None:
    """200 on /health is not enough: /v1/models must list what the backend is for."""
    with MockServer(["other"]) as worker:
        async with running_router(tmp_path, an_http_backend(worker), ready=False) as router:

            async def is_refused() -> bool:
                return "serves 'other'" in str(await problem(router))

            await eventually(is_refused)
            answer = await router.http.post(PATH, json=a_chat())
            worker.models = [MODEL]
            await router.until_ready()

    assert answer.status_code == 503
    assert not worker.generations


async def test_a_list_without_models_is_told_as_such(tmp_path: Path) -> None:
    """An empty list is a worker that is not ready yet."""
    with MockServer([]) as worker:
        async with running_router(tmp_path, an_http_backend(worker), ready=False) as router:

            async def is_told() -> bool:
                return "lists no model" in str(await problem(router))

            await eventually(is_told)


async def test_a43_the_worker_s_key_is_on_every_call_and_follows_its_file(tmp_path: Path) -> None:
    """A43: probes have it, requests have it, callers' keys never go with it; a new one is read."""
    key = tmp_path / "key"
    key.write_text("worker-key\n")
    keys = tmp_path / "keys.yaml"
    keys.write_text("keys:\n- {name: me, key: caller-key-0123456789abcdef}\n")
    with MockServer([MODEL]) as worker:
        backend = an_http_backend(worker, workerAuth={"apiKeyFile": str(key)})
        async with running_router(tmp_path, backend, keys=str(keys)) as router:
            told = {"authorization": "Bearer caller-key-0123456789abcdef", "cookie": "a=b"}
            answer = await router.http.post(PATH, json=a_chat(), headers=told)
            seen = list(worker.requests)
            key.write_text("newer-key\n")
            await eventually(
                lambda: worker.requests[-1].headers.get("authorization") == "Bearer newer-key"
            )

    assert answer.status_code == 200
    assert {request.path for request in seen} >= {"/health", "/v1/models", PATH}
    assert {request.headers.get("authorization") for request in seen} == {"Bearer worker-key"}
    assert not any(
        "cookie" in request.headers or "x-api-key" in request.headers for request in seen
    )


async def test_a43_without_a_key_there_is_no_header(tmp_path: Path) -> None:
    """A43: never ``Bearer None``."""
    with MockServer([MODEL]) as worker:
        async with running_router(tmp_path, an_http_backend(worker)) as router:
            await router.http.post(PATH, json=a_chat(), headers={"authorization": "Bearer mine"})

    assert not any("authorization" in request.headers for request in worker.requests)


@pytest.mark.parametrize("status", [401, 403])
async def test_a43_a_worker_that_refuses_the_key_is_told_as_unauthorised(
    tmp_path: Path, status: int
) -> None:
    """A43: the state says why, and it passes when the key does."""
    with MockServer([MODEL]) as worker:
        worker.health_status = status
        async with running_router(tmp_path, an_http_backend(worker), ready=False) as router:

            async def is_told() -> bool:
                return "unauthorised" in str(await problem(router))

            await eventually(is_told)
            worker.health_status = 200
            await router.until_ready()


async def test_a_server_without_a_health_path_is_asked_for_its_models(tmp_path: Path) -> None:
    """404 on /health is another kind of server, no sick one."""
    with MockServer([MODEL]) as worker:
        worker.health_status = 404
        async with running_router(tmp_path, an_http_backend(worker)) as router:
            answer = await router.http.post(PATH, json=a_chat())

    assert answer.status_code == 200


async def test_a_worker_is_never_asked_to_generate_for_a_probe(tmp_path: Path) -> None:
    """That interval is for gRPC workers: here /health and /v1/models are all that is asked."""
    with MockServer([MODEL]) as worker:
        backend = an_http_backend(worker, healthCheck={"generateInterval": "1s"})
        async with running_router(tmp_path, backend):
            await eventually(lambda: [r for r in worker.requests if r.path == "/health"][3:])

    assert {request.path for request in worker.requests} == {"/health", "/v1/models"}


async def test_a_sick_worker_does_not_break_the_list_of_models(tmp_path: Path) -> None:
    """A14: /v1/models is answered from memory."""
    with MockServer([MODEL]) as gone:
        gone.stop()
        async with running_router(tmp_path, an_http_backend(gone), ready=False) as router:
            answer = await router.http.get("/v1/models")

    assert [card["id"] for card in answer.json()["data"]] == [MODEL, "alias"]
