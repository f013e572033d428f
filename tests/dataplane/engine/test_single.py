"""Jobs that do not generate are streams of one chunk, on either client."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sglr_dataplane.engine import Engine
from sglr_dataplane.engine.lean import lean_engine
from sglr_dataplane.engine.sglang import SGLangEngine
from sglr_dataplane.errors import WorkerError, WorkerUnavailableError
from sglr_dataplane.job import Extras, Job
from sglr_dataplane.sim.script import Script
from support.sim import sim_worker

CLIENTS: list[Callable[[str], Engine]] = [SGLangEngine, lean_engine]
JOB = Job("0" * 32, "m", (5, 6), stream=False, task="embed")


@pytest.mark.parametrize("client", CLIENTS)
async def test_an_embedding_is_one_chunk(client: Callable[[str], Engine]) -> None:
    """The vector, the prompt's tokens and a finish; then the stream is over."""
    async with sim_worker(Script(model_info={"is_generation": False})) as worker:
        engine = client(worker.address)
        chunks = [chunk async for chunk in engine.embed(JOB)]
        facts = await engine.facts()
        await engine.aclose()

    assert [chunk.extras for chunk in chunks] == [Extras(embedding=(2.0, 11.0, 2.5, -3.0))]
    assert chunks[0].usage.prompt_tokens == 2
    assert chunks[0].finish is not None
    assert not facts.is_generation


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_failed_embedding_raises_as_streams_do(client: Callable[[str], Engine]) -> None:
    """A generative model's INTERNAL is a worker's error; nobody there is unavailable."""
    async with sim_worker() as worker:
        engine = client(worker.address)
        with pytest.raises(WorkerError):
            await anext(aiter(engine.embed(JOB)))
        await engine.aclose()
    gone = client(worker.address)
    with pytest.raises(WorkerUnavailableError):
        await anext(aiter(gone.embed(JOB)))
    await gone.aclose()


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_closed_stream_asks_nothing(client: Callable[[str], Engine]) -> None:
    """Closed before it was read, it is over."""
    engine = client("127.0.0.1:1")
    stream = engine.embed(JOB)
    await stream.aclose()

    assert [chunk async for chunk in stream] == []
    await engine.aclose()
