"""The grpcio client's connection, health checks and questions, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from contextlib import aclosing

import pytest

from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.sglang import SGLangEngine
from sglr_dataplane.errors import (
    DeadlineExceededError,
    WorkerError,
    WorkerUnavailableError,
)
from sglr_dataplane.job import Chunk
from sglr_dataplane.sim.script import Play, RpcFault, Script, Status
from sglr_dataplane.sim.settings import WorkerSettings
from sglr_dataplane.sim.worker import SimWorker
from support.pairs import a_job, a_pair, all_of, ids, plays


async def test_a_refused_connection_is_unavailable_and_not_lost() -> None:
    """Nobody listens: the job was never seen, so it cannot be to blame."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with aclosing(SGLangEngine(f"127.0.0.1:{port}")) as engine:
        with pytest.raises(WorkerUnavailableError) as failure:
            await all_of(engine, a_job())
        with pytest.raises(WorkerUnavailableError):
            await engine.is_serving()
        with pytest.raises(WorkerUnavailableError):
            await engine.facts()

    assert type(failure.value) is WorkerUnavailableError
    assert "127.0.0.1" not in failure.value.message


async def test_a_peer_that_never_speaks_is_given_up_within_the_connect_deadline() -> None:
    """A connection without HTTP/2 behind it ends at the connect deadline, not at the first token's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        engine = SGLangEngine(f"127.0.0.1:{port}", deadlines=Deadlines(connect=0.2))
        async with aclosing(engine), asyncio.timeout(5):
            with pytest.raises(WorkerUnavailableError):
                await all_of(engine, a_job())


async def test_a_worker_that_comes_back_is_used_again() -> None:
    """The same engine answers after the worker was gone for a while."""
    async with SimWorker(script=plays(Play(ids=(1,)))) as worker:
        port = int(worker.address.rpartition(":")[2])
        engine = SGLangEngine(worker.address)
        assert ids(await all_of(engine, a_job())) == (1,)
    async with aclosing(engine), asyncio.timeout(10):
        with pytest.raises(WorkerUnavailableError):
            await all_of(engine, a_job())
        async with SimWorker(WorkerSettings(port=port), plays(Play(ids=(2,)))):
            chunks: list[Chunk] = []
            while not chunks:
                with contextlib.suppress(WorkerUnavailableError):
                    chunks = await all_of(engine, a_job())
                await asyncio.sleep(0.01)

    assert ids(chunks) == (2,)


async def test_health_needs_both_names() -> None:
    """A process that is up with a scheduler that is stuck is not serving."""
    async with a_pair(Script()) as (worker, engine):
        assert await engine.is_serving()
        worker.set_serving(False, "sglang.grpc.scheduler.SglangScheduler")
        assert not await engine.is_serving()
        worker.set_serving(True)
        worker.set_serving(False, "")
        assert not await engine.is_serving()


async def test_a_health_check_has_its_own_deadline() -> None:
    """A probe that hangs ends at the probe's deadline."""
    script = Script(rpcs={"Check": RpcFault(hang=True)})
    async with a_pair(script, deadlines=Deadlines(probe=0.1)) as (_, engine):
        with pytest.raises(DeadlineExceededError):
            await engine.is_serving()


async def test_facts_are_the_trustworthy_ones() -> None:
    """Name, limits and version as the worker was started; none of its wrong defaults."""
    settings = WorkerSettings(model_name="qwen", context_length=8192)
    async with a_pair(Script(), settings=settings) as (_, engine):
        facts = await engine.facts()

    assert facts.served_model_name == "qwen"
    assert facts.max_req_input_len == 8186
    assert facts.context_length == 8192
    assert facts.max_running_requests == 32
    assert facts.version


async def test_facts_do_without_the_optional_rpc() -> None:
    """UNIMPLEMENTED on GetServerInfo is a missing capability, not a failure."""
    missing = RpcFault(status=Status(code="UNIMPLEMENTED", message="Method not implemented!"))
    async with a_pair(Script(rpcs={"GetServerInfo": missing})) as (_, engine):
        facts = await engine.facts()

    assert facts.max_req_input_len == 8186
    assert facts.context_length == 8192  # six more than the longest prompt
    assert facts.version == ""


async def test_facts_that_fail_are_an_error() -> None:
    """What the model is must be known: a failing GetModelInfo is told."""
    broken = RpcFault(status=Status(code="INTERNAL", message="not yet"))
    async with a_pair(Script(rpcs={"GetModelInfo": broken})) as (_, engine):
        with pytest.raises(WorkerError):
            await engine.facts()


async def test_closing_the_engine_ends_its_streams() -> None:
    """Running streams hear that the worker left; they are not cancelled tasks."""
    async with a_pair(plays(Play(ids=(1, 2), delay="10s"))) as (_, engine):
        stream = engine.generate(a_job())
        async with aclosing(stream):
            await anext(stream)
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
            await engine.aclose()
            with pytest.raises(WorkerUnavailableError):
                await waiting
        with pytest.raises(WorkerUnavailableError):
            await all_of(engine, a_job())


async def test_a50_a_request_above_four_mebibytes_is_sent() -> None:
    """A50: grpc's 4 MiB default is not ours, in either direction."""
    many = tuple([70_000] * 1_500_000)
    settings = WorkerSettings(context_length=2_000_000, vocab_size=100_000)
    async with a_pair(plays(Play(ids=many, chunk_size=0)), settings=settings) as (_, engine):
        chunks = await all_of(engine, a_job(ids=many, stream=False))

    assert sum(len(chunk.token_ids) for chunk in chunks) == 1_500_000
