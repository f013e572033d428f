"""A chat through a router process that knows nothing but its operator."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.kube_api import FakeApi, running_api
from support.kube_objects import NAMESPACE, a_document
from support.kube_wait import until
from support.operators import conditions, operating
from support.router_process import MODEL, answers, status, worker_and_router

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


async def _ready(url: str) -> None:
    async with asyncio.timeout(30):
        while await status(f"{url}/readyz") != 200:  # noqa: ASYNC110  # asks another process
            await asyncio.sleep(0.05)


def _healthy(api: FakeApi) -> int:
    body = api.objects("sglangbackends")[NAMESPACE, "chat"]
    return int(body.get("status", {}).get("workers", {}).get("healthy", 0))
