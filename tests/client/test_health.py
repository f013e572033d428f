"""Alive, ready, and waiting for it."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import httpx2
import pytest

from sglr_client import AsyncClient, Client, Health, ModelNotReadyError, UnhealthyError
from sglr_client.testing import Drop, Hang, MockServer
from support.client_doors import HI, Door, eventually, failure_of


async def test_health_is_told_as_found(door: Door, mock_server: MockServer) -> None:
    """200 is up, 503 is loading: a value, not an exception."""
    up = await door.ask("health")
    mock_server.health_status = 503
    loading = await door.ask("health")

    assert up == Health(is_up=True, status=200)
    assert (loading.is_up, loading.status) == (False, 503)
    assert "503" in loading.reason


async def test_a_host_that_is_gone_is_down(open_door: Any, mock_server: MockServer) -> None:
    """Also a value."""
    mock_server.stop()

    health = await open_door().ask("health", 1.0)

    assert (health.is_up, health.status) == (False, None)


async def test_alive_is_not_ready(door: Door, mock_server: MockServer) -> None:
    """The model must be listed, and the server up."""
    mock_server.models = ["other"]
    unlisted = await door.ask("is_model_ready", "m")
    mock_server.models = ["other", "m"]
    listed = await door.ask("is_model_ready", "m")
    mock_server.health_status = 503
    loading = await door.ask("is_model_ready", "m")

    assert (unlisted, listed, loading) == (False, True, False)


def test_a_broken_list_of_models_is_not_ready() -> None:
    """And it is told why."""

    def answered(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200 if request.url.path == "/health" else 500)

    with Client("http://elsewhere.test", http=httpx2.MockTransport(answered)) as client:
        ready = client.is_model_ready("m")
        with pytest.raises(ModelNotReadyError, match="/v1/models failed: The server answered 500"):
            client.wait_for_model("m", 0.1, interval=0.2)

    assert not ready


async def test_a_model_is_waited_for(door: Door, mock_server: MockServer) -> None:
    """Until it is listed."""
    waiting = asyncio.create_task(door.ask("wait_for_model", "m", 10.0, interval=0.02))
    await eventually(lambda: len(mock_server.requests) >= 4)
    early = waiting.done()
    mock_server.models.append("m")
    await asyncio.wait_for(waiting, 10.0)

    assert not early


async def test_waiting_has_an_end(door: Door, mock_server: MockServer) -> None:
    """The error says what was found last."""
    began = time.monotonic()

    with pytest.raises(ModelNotReadyError, match=r"'m' is not ready: .*\['mock-model'\]"):
        await door.ask("wait_for_model", "m", 0.2, interval=0.05)

    assert 0.2 <= time.monotonic() - began < 9.0


async def test_readiness_asks_past_an_open_breaker(door: Door, mock_server: MockServer) -> None:
    """Questions about the host do not depend on what calls made of it."""
    mock_server.default = Drop()
    for _ in range(2):
        await failure_of(door)
    refused = await failure_of(door)

    assert refused.kind == "breaker_open"
    assert await door.ask("is_model_ready", "mock-model")


async def test_calls_consult_the_background_checker(mock_server: MockServer) -> None:
    """While the host is down they raise at once; up again, they go; without it they always go."""
    mock_server.health_status = 503
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(AsyncClient(mock_server.url))
        async with client.checking_health(every=0.02):
            await eventually(lambda: client.rules.health.newest)
            with pytest.raises(UnhealthyError, match="503"):
                await client.chat("m", HI)
            mock_server.health_status = 200
            await eventually(lambda: client.rules.health.newest == Health(True, 200))
            assert (await client.chat("m", HI)).text == "Hello!"
        mock_server.health_status = 503
        assert (await client.chat("m", HI)).text == "Hello!"


def test_blocking_calls_consult_it_too(mock_server: MockServer) -> None:
    """From a thread that ends with the block."""
    mock_server.health_status = 503
    with ExitStack() as stack:
        client = stack.enter_context(Client(mock_server.url))
        with client.checking_health(every=0.02):
            asyncio.run(eventually(lambda: client.rules.health.newest))
            with pytest.raises(UnhealthyError, match="503"):
                client.chat("m", HI)
        assert client.chat("m", HI).text == "Hello!"


async def test_a_finding_grows_old(mock_server: MockServer) -> None:
    """A record that nobody refreshes is not believed for ever."""
    async with AsyncClient(mock_server.url) as client:
        client.rules.health.note(Health(is_up=False, status=503), until=client.rules.clock() - 1)

        assert (await client.chat("m", HI)).text == "Hello!"


async def test_a_health_check_has_its_own_time(door: Door, mock_server: MockServer) -> None:
    """A chat that hangs does not delay it, nor is it held by one."""
    mock_server.play(Hang())
    hanging = asyncio.create_task(failure_of(door, timeout=1.0))
    await eventually(lambda: mock_server.in_flight == 1)

    assert (await door.ask("health", 0.5)).is_up
    await hanging
