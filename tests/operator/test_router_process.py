"""A chat through a router process that knows nothing but its operator."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from support.kube_api import FakeApi, running_api
from support.kube_objects import NAMESPACE, a_document
from support.kube_wait import until
from support.operators import conditions, operating, private
from support.router_process import MODEL, answers, chat, status, worker_and_router

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


async def test_a_chat_walks_through_a_router_that_an_operator_feeds(tmp_path: Path) -> None:
    """Ready without workers, then a chat; the operator learns of the worker's health.

    The router goes on answering after the operator is gone.
    """
    async with running_api() as api, operating(api, tmp_path) as running:
        port = await running.serves()
        async with worker_and_router(port, tmp_path, "qwen") as (worker, url):
            await _ready(url)
            document = a_document(
                {"static": {"endpoints": [{"host": "127.0.0.1", "port": worker}]}},
                tokenizer={"path": str(MODEL)},
            )
            api.put("sglangbackends", document)
            found = await answers(url, "qwen")
            assert found["choices"][0]["message"]["role"] == "assistant"
            await until(lambda: _healthy(api) == 1, what="the worker's health is told", within=30)
            assert conditions(api, "chat")["Ready"]["status"] == "True"
            await running.end()

            await answers(url, "qwen")
            assert await status(f"{url}/readyz") == 200


async def test_what_a_router_cannot_use_is_said_in_the_status(tmp_path: Path) -> None:
    """A worker of another model, and a tokenizer's folder that no router has: both with their words."""
    async with running_api() as api, operating(api, tmp_path) as running:
        port = await running.serves()
        async with worker_and_router(port, tmp_path, "qwen") as (worker, _):
            at_worker = {"static": {"endpoints": [{"host": "127.0.0.1", "port": worker}]}}
            gone = {"name": "gone", "tokenizer": {"path": "/models/gone"}}
            llama = {"name": "other", "model": {"name": "llama"}, "tokenizer": {"path": str(MODEL)}}
            for changes in (gone, llama):
                api.put("sglangbackends", a_document(at_worker, **changes))

            await until(
                lambda: (
                    _ready_reason(api, "gone") == "RoutersNotPrepared"
                    and _ready_reason(api, "other") == "NoUsableEndpoints"
                ),
                what="both are not ready",
                within=30,
            )
            assert "is not there" in conditions(api, "gone")["Programmed"]["message"]
            said = conditions(api, "other")["EndpointsAvailable"]["message"]
            assert f"127.0.0.1:{worker}: The worker serves 'qwen'" in said


async def test_a_callers_key_opens_a_backend_and_the_newest_template_is_used(
    tmp_path: Path,
) -> None:
    """From a Secret and a ConfigMap to answers: with the key 200, without it the model is not there.

    A rotated key counts, and the one before it no more; neither is in any file of the router.
    """
    async with running_api() as api, operating(api, tmp_path, private(tmp_path)) as running:
        api.served["/api/v1"].append("secrets")
        port = await running.serves()
        shown = (
            *("--operator-ca", str(tmp_path / "ca.crt")),
            *("--operator-certificate", str(tmp_path / "router.crt")),
            *("--operator-key", str(tmp_path / "router.key")),
        )
        async with worker_and_router(port, tmp_path, "qwen", *shown) as (worker, url):
            template = {"configMapKeyRef": {"name": "templates", "key": "chat"}}
            document = a_document(
                {"static": {"endpoints": [{"host": "127.0.0.1", "port": worker}]}},
                tokenizer={"path": str(MODEL), "chatTemplate": template},
                auth={"keySecretRefs": [{"name": "callers"}]},
            )
            api.put("sglangbackends", document)
            text = "{% for each in messages %}{{ each.content }}{% endfor %}"
            put_labelled(api, "configmaps", "templates", {"chat": text})
            put_labelled(api, "secrets", "callers", {"alice": encoded("sk-first")})
            await answers(url, "qwen", key="sk-first")
            assert [(await chat(url, "qwen", key))[0] for key in ("", "sk-other")] == [404, 404]
            put_labelled(api, "secrets", "callers", {"alice": encoded("sk-second")})
            await answers(url, "qwen", key="sk-second")

            assert (await chat(url, "qwen", "sk-first"))[0] == 404
            assert not {b"sk-first", b"sk-second"} & words_in(tmp_path)


def words_in(folder: Path) -> set[bytes]:
    """Return every string in quotes of every file below *folder*."""
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return {word for content in files for word in content.split(b'"')}


def encoded(text: str) -> str:
    """Return *text* as a Secret has it."""
    return base64.b64encode(text.encode()).decode()


def put_labelled(api: FakeApi, plural: str, name: str, data: dict[str, str]) -> None:
    """Create or change an object that the operator may read."""
    labels = {"sglr.dev/for-routers": "true"}
    meta = {"name": name, "namespace": NAMESPACE, "labels": labels}
    api.put(plural, {"metadata": meta, "data": data})


async def _ready(url: str) -> None:
    async with asyncio.timeout(30):
        while await status(f"{url}/readyz") != 200:  # noqa: ASYNC110  # asks another process
            await asyncio.sleep(0.05)


def _ready_reason(api: FakeApi, name: str) -> str:
    return str(conditions(api, name).get("Ready", {}).get("reason"))


def _healthy(api: FakeApi) -> int:
    body = api.objects("sglangbackends")[NAMESPACE, "chat"]
    return int(body.get("status", {}).get("workers", {}).get("healthy", 0))
