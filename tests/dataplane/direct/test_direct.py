"""The client's interface in process, straight to simulated workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sglr_client import InvalidRequestError, NotFoundError
from sglr_dataplane.config import RouterConfig
from sglr_dataplane.direct import direct_async_client, direct_client
from sglr_dataplane.sim.script import Incident, Play, Status
from sglr_dataplane.sim.worker import SimWorker
from sglr_proto.backend import ManifestError
from support.examples import run_example
from support.router import a_worker, eventually, manifest

HELLO = [{"role": "user", "content": "Hello"}]
CONFIG = RouterConfig(reload_interval=0.05)


@asynccontextmanager
async def two_workers(folder: Path, first: Play, second: Play) -> AsyncIterator[list[SimWorker]]:
    """Run two workers and write a manifest of both to *folder*."""
    async with a_worker(first) as one, a_worker(second) as other:
        (folder / "backends.yaml").write_text(manifest(one.address, other.address))
        yield [one, other]


async def test_asyncio_programs_ask_workers_directly(tmp_path: Path) -> None:
    """Chats, streams and models as over HTTP, and the workers see ordinary jobs."""
    play = Play(text="It is 12 °C.", chunk_size=1)
    async with (
        two_workers(tmp_path, play, play) as workers,
        direct_async_client(tmp_path / "backends.yaml", CONFIG) as client,
    ):
        await client.wait_for_model("m", 15, interval=0.05)
        whole = await client.chat("m", HELLO)
        async with client.chat_stream("m", HELLO) as stream:
            told = "".join([chunk.text async for chunk in stream])
        models = [model.id for model in (await client.models()).data]

    assert whole.text == told == "It is 12 °C."
    assert "m" in models
    assert sum(len(worker.requests) for worker in workers) == 2


async def test_blocking_programs_do_too(tmp_path: Path) -> None:
    """The same from a thread without a loop."""

    def ask() -> tuple[str, str]:
        with direct_client(tmp_path / "backends.yaml", CONFIG) as client:
            client.wait_for_model("m", 15, interval=0.05)
            with client.chat_stream("m", HELLO) as stream:
                told = "".join(chunk.text for chunk in stream)
            return client.chat("m", HELLO).text, told

    play = Play(text="Hi there.", chunk_size=1)
    async with two_workers(tmp_path, play, play):
        answers = await asyncio.wait_for(asyncio.to_thread(ask), 15)

    assert answers == ("Hi there.", "Hi there.")


async def test_a_worker_that_fails_is_replaced_by_another(tmp_path: Path) -> None:
    """The router's own retries hold: the program sees one answer."""
    broken = Play(text="x", incidents=(Incident(status=Status(code="UNAVAILABLE")),))
    async with (
        two_workers(tmp_path, broken, Play(text="Hi.")) as workers,
        direct_async_client(tmp_path / "backends.yaml", CONFIG) as client,
    ):
        await client.wait_for_model("m", 15, interval=0.05)
        answers = [(await client.chat("m", HELLO)).text for _ in range(2)]

    assert answers == ["Hi.", "Hi."]
    assert workers[0].requests


async def test_errors_have_their_classes(tmp_path: Path) -> None:
    """A wrong parameter and an unknown model are errors of the request."""
    async with (
        two_workers(tmp_path, Play(text="Hi."), Play(text="Hi.")),
        direct_async_client(tmp_path / "backends.yaml", CONFIG) as client,
    ):
        await client.wait_for_model("m", 15, interval=0.05)
        with pytest.raises(InvalidRequestError, match="temperature"):
            await client.chat("m", HELLO, temperature=9)
        with pytest.raises(NotFoundError):
            await client.chat("other", HELLO)


async def test_leaving_a_stream_frees_the_worker(tmp_path: Path) -> None:
    """Nothing goes on being generated for nobody."""
    slow = Play(text="x" * 400, chunk_size=1, delay="50ms")
    async with (
        two_workers(tmp_path, slow, slow) as workers,
        direct_async_client(tmp_path / "backends.yaml", CONFIG) as client,
    ):
        await client.wait_for_model("m", 15, interval=0.05)
        async with client.chat_stream("m", HELLO) as stream:
            await anext(aiter(stream))
        await eventually(lambda: any(worker.cancelled for worker in workers))


async def test_a_manifest_that_cannot_be_read_is_told_at_once(tmp_path: Path) -> None:
    """By both clients, and nothing stays behind."""

    def blocking() -> Any:
        with direct_client(tmp_path / "nothing.yaml") as client:
            return client

    with pytest.raises(ManifestError):
        async with direct_async_client(tmp_path / "nothing.yaml"):
            pass
    with pytest.raises(ManifestError):
        await asyncio.to_thread(blocking)


@pytest.mark.processes
async def test_the_example_runs(tmp_path: Path) -> None:
    """As the client's page shows it."""
    async with two_workers(tmp_path, Play(text="Hi there."), Play(text="Hi there.")):
        printed = await run_example("direct.py", str(tmp_path / "backends.yaml"), "m")

    assert printed == "Hi there.\n"
