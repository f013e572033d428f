"""Both clients over gRPC: to a real router, and to a scripted server that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from sglr_client import (
    AuthenticationError,
    BreakerOpenError,
    BreakerPolicy,
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    DeadlineError,
    InvalidRequestError,
    NotFoundError,
    RateLimitedError,
    RetryPolicy,
    ServerError,
    Timeouts,
)
from sglr_client.grpc import AsyncGrpcTransport, GrpcTransport
from sglr_dataplane.config import GrpcConfig
from sglr_dataplane.inference.failures import Fault, status_of
from sglr_dataplane.sim.script import Play
from sglr_proto.inference import inference_pb2 as pb
from sglr_proto.inference import inference_pb2_grpc
from support.client_doors import QUICK, AsyncDoor, BlockingDoor, Door, eventually, failure_of
from support.examples import run_example
from support.router import a_worker, manifest, running_router

KEYS = "keys:\n- {name: team-a, key: sk-SECRET123}\n"
Script = Callable[[int, Any], AsyncIterator[pb.ChatResponseChunk]]
HELLO = [
    pb.ChatResponseChunk(content="Hel", id="c", model="m", index=0),
    pb.ChatResponseChunk(content="lo", index=0),
    pb.ChatResponseChunk(finish_reason="stop", index=0, usage=pb.Usage(prompt_tokens=1)),
]


@pytest.fixture(params=["blocking", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which client."""
    name: str = request.param
    return name


@asynccontextmanager
async def a_door(kind: str, target: str, **settings: Any) -> AsyncIterator[Door]:
    """Open a client of *kind* to *target*."""
    settings = {"retry": QUICK, **settings}
    door: Any
    if kind == "blocking":
        door = BlockingDoor(f"http://{target}", http=GrpcTransport(target), **settings)
    else:
        door = AsyncDoor(f"http://{target}", http=AsyncGrpcTransport(target), **settings)
    try:
        yield door
    finally:
        await door.aclose()


class Scripted(inference_pb2_grpc.InferenceServiceServicer):
    """Plays a script: what the nth call, from 1, answers."""

    def __init__(self, script: Script) -> None:
        """Play *script*."""
        self.calls = 0
        self.gone = 0
        self._script = script

    async def ChatStream(  # noqa: N802  # the service's name
        self, _request: pb.ChatRequest, context: Any
    ) -> AsyncIterator[pb.ChatResponseChunk]:
        """Play the next answer."""
        self.calls += 1
        try:
            async for chunk in self._script(self.calls, context):
                yield chunk
        except asyncio.CancelledError:
            self.gone += 1
            raise

    async def Chat(  # noqa: N802  # the service's name
        self, _request: pb.ChatRequest, context: Any
    ) -> pb.ChatResponse:
        """Play the next answer, in one piece."""
        self.calls += 1
        told = [chunk async for chunk in self._script(self.calls, context)]
        text = "".join(chunk.content for chunk in told)
        return pb.ChatResponse(choices=[pb.ChatMessage(role="assistant", content=text)])

    async def ListModels(  # noqa: N802  # the service's name
        self, _request: pb.ListModelsRequest, _context: Any
    ) -> pb.ListModelsResponse:
        """Have none."""
        return pb.ListModelsResponse()


@asynccontextmanager
async def a_server(script: Script) -> AsyncIterator[tuple[str, Scripted]]:
    """Serve *script*; yields where, and what was called."""
    server = grpc.aio.server()
    scripted = Scripted(script)
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(scripted, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", scripted
    finally:
        await server.stop(None)


async def hello() -> AsyncIterator[pb.ChatResponseChunk]:
    """Say "Hello"."""
    for chunk in HELLO:
        yield chunk


def refusing(times: int, code: grpc.StatusCode, status: Any = None) -> Script:
    """Return a script that ends the first *times* calls with *code*, and then says "Hello"."""

    async def script(call: int, context: Any) -> AsyncIterator[pb.ChatResponseChunk]:
        if call <= times:
            details = (("grpc-status-details-bin", status.SerializeToString()),) if status else ()
            await context.abort(code, "Not now.", details)
        async for chunk in hello():
            yield chunk

    return script


@asynccontextmanager
async def a_router(
    folder: Path, caplog: pytest.LogCaptureFixture, play: Play, **fields: Any
) -> AsyncIterator[tuple[str, Any]]:
    """Run a router with a gRPC port over one worker; yields where, and the worker."""
    caplog.set_level(logging.INFO, "sglr_dataplane.inference")
    async with (
        a_worker(play) as worker,
        running_router(folder, manifest(worker.address), grpc=GrpcConfig("127.0.0.1", 0), **fields),
    ):
        (port,) = (r for r in caplog.records if r.getMessage() == "listening for grpc")
        yield vars(port)["address"], worker


async def test_a_router_answers_as_over_http(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Chats, streams, models and health have the results that HTTP gives."""
    async with (
        a_router(tmp_path, caplog, Play(text="It is 12 °C.", chunk_size=1)) as (target, _),
        a_door(kind, target) as door,
    ):
        whole = await door.chat(temperature=0)
        told = await door.stream()
        models = await door.ask("models")
        health = await door.ask("health")
        ready = [await door.ask("is_model_ready", name) for name in ("m", "other")]

    assert whole.text == told.text == "It is 12 °C."
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage is not None
    assert told.usage is not None
    assert told.usage.completion_tokens == whole.usage.completion_tokens > 0
    assert "m" in [model.id for model in models.data]
    assert health.is_up
    assert ready == [True, False]


async def test_a_routers_errors_have_their_classes(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An unknown model, a wrong parameter and a missing key are what they are over HTTP."""
    keys = tmp_path / "keys.yaml"
    keys.write_text(KEYS)
    async with (
        a_router(tmp_path, caplog, Play(text="Hi."), keys=str(keys)) as (target, worker),
        a_door(kind, target, api_key="sk-SECRET123") as door,
        a_door(kind, target) as nobody,
    ):
        hot = await failure_of(door, temperature=9)
        unknown = await failure_of(door, extra_body={"model": "other"})
        refused = await failure_of(nobody)
        streamed = await nobody.stream()
        await door.chat()

    assert isinstance(hot, InvalidRequestError)
    assert (hot.status, hot.param) == (400, "temperature")
    assert isinstance(unknown, NotFoundError)
    assert unknown.code == "model_not_found"
    assert isinstance(refused, AuthenticationError)
    assert isinstance(streamed.error, AuthenticationError)
    assert len(worker.requests) == 1


@pytest.mark.parametrize("way", ["chat", "stream"])
async def test_what_may_pass_is_tried_again(kind: str, way: str) -> None:
    """Two refusals of a busy server and then the answer: one call for the caller."""
    busy = status_of(Fault("Busy.", "rate_limit_error", None, "queue_full"), 429)
    async with (
        a_server(refusing(2, grpc.StatusCode.RESOURCE_EXHAUSTED, busy)) as (target, scripted),
        a_door(kind, target) as door,
    ):
        if way == "chat":
            text = (await door.chat()).text
        else:
            told = await door.stream()
            text = told.text
            assert told.error is None

    assert (text, scripted.calls) == ("Hello", 3)


async def test_a_pause_that_the_server_asks_for_is_kept(kind: str) -> None:
    """RetryInfo is Retry-After: the call is not repeated when there is no time to wait."""
    busy = status_of(Fault("Busy.", None, None, "queue_full"), 429, retry_after="30")
    async with (
        a_server(refusing(9, grpc.StatusCode.RESOURCE_EXHAUSTED, busy)) as (target, scripted),
        a_door(kind, target, timeout=5.0) as door,
    ):
        error = await failure_of(door)

    assert isinstance(error, RateLimitedError)
    assert (error.retry_after, error.code, scripted.calls) == (30.0, "queue_full", 1)


async def test_what_cannot_pass_is_not_tried_again(kind: str) -> None:
    """A request that is wrong stays wrong."""
    async with (
        a_server(refusing(9, grpc.StatusCode.INVALID_ARGUMENT)) as (target, scripted),
        a_door(kind, target) as door,
    ):
        error = await failure_of(door)

    assert isinstance(error, InvalidRequestError)
    assert str(error) == "Not now."
    assert scripted.calls == 1


async def test_a_stream_that_breaks_after_content_is_not_repeated(kind: str) -> None:
    """What was said stays said, and the error says that it is not all."""

    async def script(_call: int, context: Any) -> AsyncIterator[pb.ChatResponseChunk]:
        yield HELLO[0]
        status = status_of(Fault("Lost.", "server_error", None, "worker_error"), 502)
        trailers = (("grpc-status-details-bin", status.SerializeToString()),)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "Lost.", trailers)

    async with a_server(script) as (target, scripted), a_door(kind, target) as door:
        told = await door.stream()

    assert told.text == "Hel"
    assert isinstance(told.error, ServerError)
    assert scripted.calls == 1


async def test_a_stream_without_an_end_is_truncated(kind: str) -> None:
    """OK from the server is no finish of the answer."""

    async def script(_call: int, _context: Any) -> AsyncIterator[pb.ChatResponseChunk]:
        yield HELLO[0]

    async with a_server(script) as (target, _), a_door(kind, target) as door:
        told = await door.stream()

    assert told.text == "Hel"
    assert told.error is not None
    assert told.error.kind == "truncated"


async def test_nobody_there_opens_the_breaker(kind: str) -> None:
    """A refused connection is the network's fault; after some the host is left alone."""
    async with a_server(refusing(0, grpc.StatusCode.OK)) as (target, _):
        pass  # its port is free now
    async with a_door(
        kind,
        target,
        retry=RetryPolicy(attempts=1),
        breaker=BreakerPolicy(threshold=2),
    ) as door:
        errors = [await failure_of(door) for _ in range(3)]

    assert [type(error) for error in errors[:2]] == [ConnectFailedError] * 2
    assert isinstance(errors[2], BreakerOpenError)


@pytest.mark.parametrize("phase", ["total", "idle"])
async def test_waits_end(kind: str, phase: str) -> None:
    """A server that says nothing more costs the caller the time it gave, and learns that it left."""
    limits = {
        "total": Timeouts(total=0.3, headers=None, idle=None),
        "idle": Timeouts(idle=0.3),
    }[phase]

    async def script(_call: int, _context: Any) -> AsyncIterator[pb.ChatResponseChunk]:
        if phase == "idle":
            yield HELLO[0]
        await asyncio.Event().wait()
        yield HELLO[1]

    async with (
        a_server(script) as (target, scripted),
        a_door(kind, target, timeout=limits, retry=RetryPolicy(attempts=1)) as door,
    ):
        told = await door.stream()
        await eventually(lambda: scripted.gone)

    assert isinstance(told.error, DeadlineError)
    assert told.error.phase == phase


async def test_leaving_a_stream_ends_the_servers_call(kind: str) -> None:
    """Nothing goes on being generated for nobody."""

    async def script(_call: int, _context: Any) -> AsyncIterator[pb.ChatResponseChunk]:
        yield HELLO[0]
        await asyncio.Event().wait()

    async with a_server(script) as (target, scripted), a_door(kind, target) as door:
        told = await door.stream(stop_after=1)
        await eventually(lambda: scripted.gone)

    assert told.text == "Hel"


async def test_what_the_service_has_no_call_for_says_so(kind: str) -> None:
    """Completions are asked for over HTTP; parts without a place are not dropped."""
    async with (
        a_server(refusing(0, grpc.StatusCode.OK)) as (target, scripted),
        a_door(kind, target) as door,
    ):
        with pytest.raises(ServerError, match="no call for POST /v1/completions"):
            await door.ask("completions", "m", "Hello", timeout=5.0)
        with pytest.raises(ClientError, match="logprobs is not told over gRPC"):
            await door.chat(logprobs=True)

    assert scripted.calls == 0


async def test_a_connection_that_breaks_is_a_lost_connection(kind: str) -> None:
    """A server that ends under a stream is no answer of the server."""
    begun = asyncio.Event()

    async def script(_call: int, _context: Any) -> AsyncIterator[pb.ChatResponseChunk]:
        yield HELLO[0]
        begun.set()
        await asyncio.Event().wait()

    async with AsyncExitStack() as stack:
        target, _ = await stack.enter_async_context(a_server(script))
        async with a_door(kind, target) as door:
            streaming = asyncio.create_task(door.stream())
            await asyncio.wait_for(begun.wait(), 10)
            await stack.aclose()
            told = await asyncio.wait_for(streaming, 10)

    assert isinstance(told.error, ConnectionLostError)


@pytest.mark.processes
async def test_the_example_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As the client's page shows it."""
    async with a_router(tmp_path, caplog, Play(text="Hi there.", chunk_size=1)) as (target, _):
        printed = await run_example("over_grpc.py", target, "m")

    assert printed == "Hi there.\n"
