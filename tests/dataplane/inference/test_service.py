"""inference.v1 over real gRPC to a router, and from there to simulated workers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.rpc import (  # type: ignore[import-untyped]  # its stubs have no marker
    error_details_pb2,
    status_pb2,
)
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from sglr_dataplane.config import GrpcConfig, Limits
from sglr_dataplane.sim.script import Incident, Play
from sglr_proto.inference import inference_pb2 as pb
from sglr_proto.inference import inference_pb2_grpc
from support.router import RunningRouter, a_worker, eventually, manifest, running_router

SECONDS = 15.0
HELLO = pb.ChatRequest(model="m", messages=[pb.ChatMessage(role="user", content="Hello")])
KEYS = "keys:\n- {name: team-a, key: sk-SECRET123, requestsPerMinute: 1}\n"


@asynccontextmanager
async def grpc_router(
    folder: Path, text: str, caplog: pytest.LogCaptureFixture, **fields: Any
) -> AsyncIterator[tuple[RunningRouter, grpc.aio.Channel]]:
    """Run a router with a gRPC port, and a channel to that."""
    caplog.set_level(logging.INFO, "sglr_dataplane.inference")
    async with running_router(folder, text, grpc=GrpcConfig("127.0.0.1", 0), **fields) as router:
        (port,) = (r for r in caplog.records if r.getMessage() == "listening for grpc")
        async with grpc.aio.insecure_channel(vars(port)["address"]) as channel:
            yield router, channel


def chat(channel: grpc.aio.Channel) -> Any:
    """Return the service on *channel*."""
    return inference_pb2_grpc.InferenceServiceStub(channel)


async def read_into(told: list[str], stream: AsyncIterable[pb.ChatResponseChunk]) -> None:
    """Add the text of each chunk of *stream* to *told*, as far as it comes."""
    async for each in stream:
        told.append(each.content)  # noqa: PERF401  # what came before a failure counts


def status_in(error: grpc.aio.AioRpcError) -> Any:
    """Return the google.rpc.Status in the trailers of *error*."""
    trailers = dict(error.trailing_metadata() or ())
    return status_pb2.Status.FromString(trailers["grpc-status-details-bin"])


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Return the machine's word for *error*."""
    info = error_details_pb2.ErrorInfo()
    assert status_in(error).details[0].Unpack(info)
    return str(info.reason)


async def test_an_answer_in_one_piece(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Chat returns what the worker said, with its usage and the request's id."""
    async with (
        a_worker(Play(text="It is 12 °C — 你好.")) as worker,
        grpc_router(tmp_path, manifest(worker.address), caplog) as (_, channel),
    ):
        call = chat(channel).Chat(HELLO, timeout=SECONDS, metadata=(("x-request-id", "r-1"),))
        response = await call
        initial = dict(await call.initial_metadata())

    assert [each.content for each in response.choices] == ["It is 12 °C — 你好."]
    assert list(response.finish_reasons) == ["stop"]
    assert response.usage.completion_tokens > 0
    assert response.usage.prompt_tokens == len(worker.requests[0].tokenized.input_ids)
    assert initial["x-request-id"] == "r-1"


async def test_a_stream_is_the_same_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """ChatStream's pieces are the text; the last has the finish reason and the usage."""
    async with (
        a_worker(Play(text="It is 12 °C — 你好.", chunk_size=1)) as worker,
        grpc_router(tmp_path, manifest(worker.address), caplog) as (_, channel),
    ):
        told = [each async for each in chat(channel).ChatStream(HELLO, timeout=SECONDS)]

    assert "".join(each.content for each in told) == "It is 12 °C — 你好."
    assert len(told) > 3
    assert [each.finish_reason for each in told] == [""] * (len(told) - 1) + ["stop"]
    assert [each.HasField("usage") for each in told] == [False] * (len(told) - 1) + [True]
    assert [each.HasField("id") for each in told] == [True] + [False] * (len(told) - 1)


async def test_a_client_that_knows_only_the_old_fields_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its numbers and types, written down here, are those on the wire."""
    messages = old_messages()
    request = messages["ChatRequest"](
        model="m",
        messages=[messages["ChatMessage"](role="user", content="Hello")],
        temperature=0.5,
        max_tokens=64,
        stream=True,
    )
    async with (
        a_worker(Play(text="Hi there.")) as worker,
        grpc_router(tmp_path, manifest(worker.address), caplog) as (_, channel),
    ):
        stream: Any = channel.unary_stream(
            "/inference.v1.InferenceService/ChatStream",
            request_serializer=lambda each: each.SerializeToString(),
            response_deserializer=messages["ChatResponseChunk"].FromString,
        )
        whole: Any = channel.unary_unary(
            "/inference.v1.InferenceService/Chat",
            request_serializer=lambda each: each.SerializeToString(),
            response_deserializer=messages["ChatResponse"].FromString,
        )
        told = [each async for each in stream(request, timeout=SECONDS)]
        answer = await whole(request, timeout=SECONDS)

    assert "".join(each.content for each in told) == "Hi there."
    assert (told[-1].finish_reason, told[-1].usage.completion_tokens > 0) == ("stop", True)
    assert (answer.choices[0].role, answer.choices[0].content) == ("assistant", "Hi there.")
    assert answer.usage.prompt_tokens == told[-1].usage.prompt_tokens > 0
    assert worker.requests[0].sampling_params.temperature == 0.5
    assert worker.requests[0].sampling_params.max_new_tokens == 64


def old_messages() -> dict[str, Any]:
    """Return the messages of the service as clients had them before this router."""
    kinds = {"s": 9, "f": 2, "i": 5, "b": 8}
    declared = {
        "ChatMessage": "role s 1, content s 2",
        "Usage": "prompt_tokens i 1, completion_tokens i 2",
        "ChatRequest": "model s 1, messages *ChatMessage 2, temperature f 3, max_tokens i 4, "
        "stream b 5",
        "ChatResponseChunk": "content s 1, finish_reason s 2, usage Usage 3",
        "ChatResponse": "choices *ChatMessage 1, usage Usage 2",
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="old.proto", package="inference.v1", syntax="proto3"
    )
    for name, fields in declared.items():
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            called, kind, number = field.split()
            added = message.field.add(name=called, number=int(number))
            added.label = added.LABEL_REPEATED if kind[0] == "*" else added.LABEL_OPTIONAL
            if kind in kinds:
                added.type = kinds[kind]  # type: ignore[assignment]  # protobuf's numbers of types
            else:
                added.type = added.TYPE_MESSAGE
                added.type_name = f".inference.v1.{kind.lstrip('*')}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.v1.{name}"))
        for name in declared
    }


async def test_errors_are_statuses_with_details(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same sentence and code as over HTTP, before a stream begins and in one piece."""
    hot = pb.ChatRequest()
    hot.CopyFrom(HELLO)
    hot.temperature = 9
    other = pb.ChatRequest(model="other", messages=HELLO.messages)
    async with (
        a_worker(Play(text="Hi.")) as worker,
        grpc_router(tmp_path, manifest(worker.address), caplog) as (router, channel),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as too_hot:
            await chat(channel).Chat(hot, timeout=SECONDS)
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            async for _ in chat(channel).ChatStream(other, timeout=SECONDS):
                pass
        over_http = await router.http.post(
            "/v1/chat/completions",
            json={
                "model": "m",
                "temperature": 9,
                "messages": [{"role": "user", "content": "Hello"}],
            },
        )

    assert too_hot.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert too_hot.value.details() == over_http.json()["error"]["message"]
    assert reason_of(too_hot.value) == over_http.json()["error"]["code"]
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
    assert reason_of(unknown.value) == "model_not_found"
    assert worker.requests == []


async def test_a_failure_in_a_stream_ends_it_with_a_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was said stays said; then the rpc fails, and does not end as if it were complete."""
    play = Play(
        text="one two three four", chunk_size=1, incidents=(Incident(after=2, die="reset"),)
    )
    async with (
        a_worker(play) as worker,
        grpc_router(tmp_path, manifest(worker.address), caplog) as (_, channel),
    ):
        told: list[str] = []
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read_into(told, chat(channel).ChatStream(HELLO, timeout=SECONDS))

    assert "".join(told)
    assert "one two three four".startswith("".join(told))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_keys_and_rates_hold_as_over_http(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No key is UNAUTHENTICATED; one over its rate is RESOURCE_EXHAUSTED and is told when to retry."""
    keys = tmp_path / "keys.yaml"
    keys.write_text(KEYS)
    key = (("authorization", "Bearer sk-SECRET123"),)
    async with (
        a_worker(Play(text="Hi.")) as worker,
        grpc_router(tmp_path, manifest(worker.address), caplog, keys=str(keys)) as (_, channel),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as nobody:
            await chat(channel).Chat(HELLO, timeout=SECONDS)
        first = chat(channel).Chat(HELLO, timeout=SECONDS, metadata=key)
        await first
        limits = dict(await first.initial_metadata())
        with pytest.raises(grpc.aio.AioRpcError) as hasty:
            await chat(channel).Chat(HELLO, timeout=SECONDS, metadata=key)

    retry = error_details_pb2.RetryInfo()
    assert nobody.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert limits["x-ratelimit-limit-requests"] == "1"
    assert hasty.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert status_in(hasty.value).details[-1].Unpack(retry)
    assert 0 < retry.retry_delay.seconds <= 60
    assert len(worker.requests) == 1


@pytest.mark.parametrize("ending", ["cancel", "deadline"])
async def test_a_client_that_leaves_frees_the_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ending: str
) -> None:
    """A cancelled call, and one past its own deadline, end the worker's call too."""
    async with (
        a_worker(Play(text="x" * 400, chunk_size=1, delay="50ms")) as worker,
        grpc_router(tmp_path, manifest(worker.address), caplog) as (_, channel),
    ):
        seconds = 0.5 if ending == "deadline" else SECONDS
        stream = chat(channel).ChatStream(HELLO, timeout=seconds)
        await anext(aiter(stream))
        if ending == "cancel":
            stream.cancel()
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in stream:
                    pass
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await eventually(lambda: worker.cancelled)

    assert len(worker.cancelled) == 1


async def test_tools_and_thoughts_travel(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A call that the model makes arrives as a call, whole and in pieces."""
    text = '<tool_call>\n{"name": "now", "arguments": {"zone": "CET"}}\n</tool_call>'
    request = pb.ChatRequest(
        model="m",
        messages=HELLO.messages,
        tools=[pb.Tool(name="now", parameters='{"type":"object","properties":{"zone":{}}}')],
    )
    async with (
        a_worker(Play(text=text)) as worker,
        grpc_router(tmp_path, manifest(worker.address), caplog) as (_, channel),
    ):
        whole = await chat(channel).Chat(request, timeout=SECONDS)
        told = [each async for each in chat(channel).ChatStream(request, timeout=SECONDS)]

    pieces = [call for each in told for call in each.tool_calls]
    (call,) = whole.choices[0].tool_calls
    assert (call.name, call.arguments) == ("now", '{"zone": "CET"}')
    assert (pieces[0].name, pieces[0].index) == ("now", 0)
    assert "".join(piece.arguments for piece in pieces) == call.arguments
    assert list(whole.finish_reasons) == ["tool_calls"] == [told[-1].finish_reason]


async def test_health_follows_readiness(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SERVING with a worker, NOT_SERVING without; Watch tells the change; others are unknown."""
    async with a_worker(Play(text="Hi.")) as worker:
        text = manifest(worker.address)
        async with grpc_router(tmp_path, text, caplog) as (router, channel):
            health: Any = health_pb2_grpc.HealthStub(channel)
            service = "inference.v1.InferenceService"
            asked = health_pb2.HealthCheckRequest(service=service)
            watch = health.Watch(asked, timeout=SECONDS)
            answers = aiter(watch)
            first = await anext(answers)
            with pytest.raises(grpc.aio.AioRpcError) as unknown:
                await health.Check(health_pb2.HealthCheckRequest(service="x"), timeout=SECONDS)
            router.manifest.write_text(text.replace(worker.address.rpartition(":")[2], "1"))
            second = await anext(answers)
            now = await health.Check(health_pb2.HealthCheckRequest(), timeout=SECONDS)
            watch.cancel()

    known = health_pb2.HealthCheckResponse
    assert (first.status, second.status) == (known.SERVING, known.NOT_SERVING)
    assert now.status == known.NOT_SERVING
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_tool_such_as_grpcurl_finds_the_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reflection lists the services and hands out the file that describes the messages."""
    ask = reflection_pb2.ServerReflectionRequest
    requests = [
        ask(list_services=""),
        ask(file_containing_symbol="inference.v1.InferenceService"),
    ]
    async with (
        a_worker(Play(text="Hi.")) as worker,
        grpc_router(tmp_path, manifest(worker.address), caplog) as (_, channel),
    ):
        any_channel: Any = channel  # the stubs know blocking channels only
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(any_channel)
        listed, described = [
            each async for each in stub.ServerReflectionInfo(iter(requests), timeout=SECONDS)
        ]

    names = {each.name for each in listed.list_services_response.service}
    file = descriptor_pb2.FileDescriptorProto.FromString(
        described.file_descriptor_response.file_descriptor_proto[0]
    )
    assert {"inference.v1.InferenceService", "grpc.health.v1.Health"} <= names
    assert [method.name for method in file.service[0].method] == [
        "ChatStream",
        "Chat",
        "ListModels",
    ]


async def test_a_request_over_the_limit_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit of HTTP bodies holds for messages too, and the router lives on."""
    long = pb.ChatRequest(model="m", messages=[pb.ChatMessage(role="user", content="a" * 9000)])
    async with (
        a_worker(Play(text="Hi.")) as worker,
        grpc_router(
            tmp_path, manifest(worker.address), caplog, limits=Limits(max_body_bytes=8192)
        ) as (_, channel),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await chat(channel).Chat(long, timeout=SECONDS)
        answer = await asyncio.wait_for(chat(channel).Chat(HELLO), SECONDS)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert answer.choices[0].content == "Hi."
