"""A plain grpcio client of a simulated worker, and requests for it. Every call has a limit."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import grpc
import pytest
from grpc_health.v1 import (
    health_pb2,
    health_pb2_grpc,
)

from sglr_proto.sglang import scheduler_pb2 as pb
from sglr_proto.sglang import scheduler_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

LIMIT = 8.0
"""Seconds any call of a test may take."""
ENGINE: Final = "sglang.grpc.scheduler.SglangScheduler"


class SimClient:
    """The worker's services over one connection."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        """Speak over *channel*."""
        self.channel = channel
        self.stub = scheduler_pb2_grpc.SglangSchedulerStub(channel)
        self._health = health_pb2_grpc.HealthStub(channel)

    async def generate(self, request: pb.GenerateRequest) -> list[pb.GenerateResponse]:
        """Return all messages of *request*."""
        return [message async for message in self.stub.Generate(request, timeout=LIMIT)]

    async def partial(
        self, request: pb.GenerateRequest, limit: float = LIMIT
    ) -> tuple[list[pb.GenerateResponse], grpc.aio.AioRpcError]:
        """Return the messages of a call that fails, and how; *limit* makes a hang a failure."""
        messages: list[pb.GenerateResponse] = []
        try:
            async for message in self.stub.Generate(request, timeout=limit):
                messages.append(message)  # noqa: PERF401  # what came before the failure counts
        except grpc.aio.AioRpcError as error:
            return messages, error
        pytest.fail(f"The call ended well, after {len(messages)} messages.")

    async def hangs(self, request: pb.GenerateRequest, limit: float = 0.3) -> bool:
        """Return whether *request* got nothing but our own deadline of *limit* seconds."""
        messages, error = await self.partial(request, limit)
        return not messages and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    async def is_serving(self, service: str = ENGINE) -> bool:
        """Return whether health says SERVING for *service*."""
        answer = await self._health.Check(  # type: ignore[attr-defined]  # the stubs leave the methods out
            health_pb2.HealthCheckRequest(service=service), timeout=LIMIT
        )
        serving: bool = answer.status == health_pb2.HealthCheckResponse.SERVING
        return serving

    async def watch(self, service: str = ENGINE) -> list[int]:
        """Return every status a Watch sends until it ends."""
        asked = health_pb2.HealthCheckRequest(service=service)
        call = self._health.Watch(asked, timeout=LIMIT)  # type: ignore[attr-defined]  # same
        return [answer.status async for answer in call]


@asynccontextmanager
async def connected(address: str, *options: tuple[str, int]) -> AsyncIterator[SimClient]:
    """Return a client of the worker at *address*, with its own connection."""
    own = ("grpc.use_local_subchannel_pool", 1)
    async with grpc.aio.insecure_channel(address, options=(own, *options)) as channel:
        yield SimClient(channel)


def a_request(
    rid: str = "r" * 32,
    ids: Sequence[int] = (11, 12, 13),
    *,
    stream: bool = True,
    fields: dict[str, Any] | None = None,
    **sampling: Any,
) -> pb.GenerateRequest:
    """Return a Generate request; *fields* are its own, *sampling* are SamplingParams'."""
    return pb.GenerateRequest(
        request_id=rid,
        stream=stream,
        tokenized=pb.TokenizedInput(input_ids=ids),
        sampling_params=pb.SamplingParams(**{"n": 1, **sampling}),
        **(fields or {}),
    )


def chunks_of(messages: Sequence[pb.GenerateResponse], index: int = 0) -> list[list[int]]:
    """Return the ids of each chunk of choice *index*."""
    return [
        list(m.chunk.token_ids) for m in messages if m.HasField("chunk") and m.chunk.index == index
    ]


def completes_of(messages: Sequence[pb.GenerateResponse]) -> list[pb.GenerateComplete]:
    """Return the complete messages, in order."""
    return [m.complete for m in messages if m.HasField("complete")]


async def failure_of(call: Any) -> grpc.aio.AioRpcError:
    """Return how a unary *call*, or the first read of a streamed one, fails."""
    try:
        async with asyncio.timeout(LIMIT):
            await (call.read() if isinstance(call, grpc.aio.UnaryStreamCall) else call)
    except grpc.aio.AioRpcError as error:
        return error
    pytest.fail("The call ended well.")
