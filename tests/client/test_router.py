"""The client against this project's own router, with a simulated worker behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sglr_client import AsyncClient, Client, InvalidRequestError, NotFoundError
from sglr_dataplane.sim.script import Play, Rule, Script
from support.client_doors import HI
from support.router import RunningRouter, manifest, running_router
from support.sim import sim_worker

TEXT = "Schöne Grüße from a worker, 你好."


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[RunningRouter]:
    """A router over one simulated worker, ready."""
    async with (
        sim_worker(Script(rules=(Rule(play=(Play(text=TEXT),)),)), model_name="m") as worker,
        running_router(tmp_path, manifest(worker.address)) as running,
    ):
        yield running


async def test_the_router_answers_chats_and_streams(router: RunningRouter) -> None:
    """The same text either way, with the usage that was asked for."""
    async with AsyncClient(router.url) as client:
        whole = await client.chat("m", HI, temperature=0.0)
        stream = client.chat_stream(
            "m", HI, temperature=0.0, stream_options={"include_usage": True}
        )
        streamed = "".join([chunk.text async for chunk in stream])

    assert streamed == whole.text == TEXT
    assert stream.usage is not None
    assert whole.usage is not None
    assert stream.usage.completion_tokens == whole.usage.completion_tokens > 0


async def test_the_routers_refusals_have_their_classes(router: RunningRouter) -> None:
    """Its codes arrive as they are, its request id too."""
    async with AsyncClient(router.url) as client:
        with pytest.raises(NotFoundError) as unknown:
            await client.chat("nobody", HI)
        with pytest.raises(InvalidRequestError) as invalid:
            await client.chat("m", HI, temperature=-1.0)

    assert unknown.value.code == "model_not_found"
    assert unknown.value.request_id
    assert invalid.value.param == "temperature"


async def test_the_router_is_healthy_and_its_model_ready(router: RunningRouter) -> None:
    """By the blocking client, in a thread."""

    def look() -> tuple[bool, bool, bool]:
        with Client(f"{router.url}/v1") as client:
            client.wait_for_model("m", 10.0)
            return (
                client.health().is_up,
                client.is_model_ready("m"),
                client.is_model_ready("nobody"),
            )

    assert await asyncio.to_thread(look) == (True, True, False)
