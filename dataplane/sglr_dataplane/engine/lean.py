"""The client of one SGLang worker on the lean transport.

The same contract as ``engine.sglang``, which runs on grpcio and which this one is held against, at
a tenth of its cost. Nothing here sends ``Abort``: a call is ended by resetting its stream.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from ssl import SSLContext
from typing import Final

from google.protobuf.message import DecodeError, Message
from grpc_health.v1 import health_pb2

from sglr_dataplane.engine import EngineFacts, TokenizerBundle
from sglr_dataplane.engine.bundles import BundleReader, bundle_error
from sglr_dataplane.engine.channel import Channel
from sglr_dataplane.engine.channel_options import ChannelOptions
from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.facts import engine_facts
from sglr_dataplane.engine.h2.status import CallError
from sglr_dataplane.engine.lean_stream import LeanStream, translated
from sglr_dataplane.engine.single import SingleChunk, embed_request, embedding_chunk
from sglr_dataplane.engine.statuses import NOT_FOUND, UNIMPLEMENTED
from sglr_dataplane.engine.telling import (
    CacheBatch,
    EngineLoad,
    cache_batch,
    cache_request,
    life_of,
    load_of,
)
from sglr_dataplane.errors import DeadlineExceededError, WorkerError
from sglr_dataplane.job import Chunk, Job
from sglr_proto.sglang import common_pb2, scheduler_pb2

HEALTH_NAMES: Final = ("", "sglang.grpc.scheduler.SglangScheduler")
"""The names a worker reports health under: the process, and the scheduler behind it."""
_Fields = tuple[tuple[str, str], ...]
_SERVICE: Final = "/sglang.grpc.scheduler.SglangScheduler/"


class LeanEngine:
    """One worker."""

    def __init__(self, channel: Channel, *, deadlines: Deadlines | None = None) -> None:
        """Call the worker over *channel*, which is closed with the engine."""
        self.channel = channel
        self.on_lost: Callable[[], None] = _unheard
        """Called when the last connection is lost, not when the engine is closed."""
        channel.on_lost = self._tell
        self._deadlines = deadlines or Deadlines()

    def __repr__(self) -> str:
        return f"<LeanEngine {self.channel!r}>"

    def _tell(self) -> None:
        self.on_lost()  # as it is by then

    def generate(self, job: Job) -> LeanStream:
        """Start *job*; nothing is sent before the first ``__anext__`` or ``start``."""
        return LeanStream(self.channel, job, self._deadlines)

    def embed(self, job: Job) -> SingleChunk:
        """Start *job*, whose task is to embed; nothing is sent before the first ``__anext__``."""
        return SingleChunk(partial(self._embed, job))

    async def is_serving(self) -> bool:
        """Return whether the worker reports SERVING under both of its names.

        A name it does not know, or no health service at all, is not serving.

        Raises:
            WorkerUnavailableError: It cannot be reached.
            DeadlineExceededError: It does not answer within the probe's deadline.
        """
        limit = self._deadlines.probe
        try:
            async with asyncio.timeout(limit):
                for name in HEALTH_NAMES:
                    if not await self._serves(name):
                        return False
        except TimeoutError as failure:
            raise DeadlineExceededError(
                f"The worker did not answer a health check within {limit:g} s."
            ) from failure
        return True

    async def generates(self) -> bool:
        """Return whether the worker generates a token when asked to."""
        answer = scheduler_pb2.HealthCheckResponse()
        try:
            await self._ask(f"{_SERVICE}HealthCheck", b"", answer, self._deadlines.generation)
        except CallError as failure:
            raise translated(failure) from failure
        return answer.healthy

    async def load(self) -> EngineLoad | None:
        """Return how busy the worker says it is; None from one that does not tell."""
        request = scheduler_pb2.GetLoadsRequest(include=["core"]).SerializeToString()
        answer = scheduler_pb2.GetLoadsResponse()
        try:
            await self._ask(f"{_SERVICE}GetLoads", request, answer, self._deadlines.probe)
        except CallError as failure:
            if failure.code == UNIMPLEMENTED:
                return None
            raise translated(failure) from failure
        return load_of(answer)

    async def life(self) -> str:
        """Return when the worker's process began; ``""`` from one that hides it."""
        answer = scheduler_pb2.GetServerInfoResponse()
        try:
            await self._ask(f"{_SERVICE}GetServerInfo", b"", answer, self._deadlines.facts)
        except CallError as failure:
            if failure.code == UNIMPLEMENTED:
                return ""
            raise translated(failure) from failure
        return life_of(answer)

    async def follow_cache(self, start: int, take: Callable[[CacheBatch], bool]) -> bool:
        """Give *take* what the worker tells of its cache until it says False."""
        request = cache_request(start).SerializeToString()

        def hear(message: bytes) -> None:
            if not take(cache_batch(common_pb2.KvEventBatch.FromString(message))):
                raise _EnoughHeard

        path = f"{_SERVICE}SubscribeKvEvents"
        try:
            await self.channel.receive(path, request, limit=self._deadlines.news, take=hear)
        except _EnoughHeard:
            return True
        except CallError as failure:
            if failure.code == UNIMPLEMENTED:
                return False
            raise translated(failure) from failure
        except DecodeError as failure:
            raise WorkerError("The worker's answer is no message of its contract.") from failure
        return True

    async def facts(self) -> EngineFacts:
        """Return what the worker says of itself; without GetServerInfo what the model says."""
        model = scheduler_pb2.GetModelInfoResponse()
        server = scheduler_pb2.GetServerInfoResponse()
        limit = self._deadlines.facts
        try:
            await self._ask(f"{_SERVICE}GetModelInfo", b"", model, limit)
        except CallError as failure:
            raise translated(failure) from failure
        try:
            await self._ask(f"{_SERVICE}GetServerInfo", b"", server, limit)
        except CallError as failure:
            if failure.code != UNIMPLEMENTED:
                raise translated(failure) from failure
            return engine_facts(model, None)
        return engine_facts(model, server, await self._adapters())

    async def _adapters(self) -> scheduler_pb2.ListLoadedLoRAAdaptersResponse | None:
        """Return the worker's list of adapters; None from one that has no such list."""
        listed = scheduler_pb2.ListLoadedLoRAAdaptersResponse()
        try:
            await self._ask(f"{_SERVICE}ListLoadedLoRAAdapters", b"", listed, self._deadlines.facts)
        except CallError as failure:
            if failure.code != UNIMPLEMENTED:
                raise translated(failure) from failure
            return None
        return listed

    async def tokenizer_bundle(self) -> TokenizerBundle:
        """Return the worker's tokenizer."""
        reader = BundleReader()

        def take(message: bytes) -> None:
            reader.add(common_pb2.GetTokenizerChunk.FromString(message))

        limit = self._deadlines.bundle
        try:
            await self.channel.receive(f"{_SERVICE}GetTokenizer", b"", limit=limit, take=take)
        except CallError as failure:
            raise bundle_error(failure.code, failure.details) from failure
        except DecodeError as failure:
            raise WorkerError("The worker's answer is no message of its contract.") from failure
        return reader.bundle()

    async def aclose(self) -> None:
        """Close the connection; running streams end with WorkerUnavailableError."""
        await self.channel.aclose()

    async def _embed(self, job: Job) -> Chunk:
        answer = scheduler_pb2.EmbedResponse()
        request = embed_request(job).SerializeToString()
        try:
            limit = self._deadlines.first_token
            await self._ask(f"{_SERVICE}Embed", request, answer, limit, job.trace)
        except CallError as failure:
            raise translated(failure) from failure
        return embedding_chunk(answer)

    async def _serves(self, name: str) -> bool:
        request = health_pb2.HealthCheckRequest(service=name).SerializeToString()
        answer = health_pb2.HealthCheckResponse()
        try:
            await self._ask("/grpc.health.v1.Health/Check", request, answer, self._deadlines.probe)
        except CallError as failure:
            if failure.code in {NOT_FOUND, UNIMPLEMENTED}:
                return False
            raise translated(failure) from failure
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def _ask(
        self, path: str, request: bytes, answer: Message, limit: float, fields: _Fields = ()
    ) -> None:
        """Fill *answer* with the one message that answers *request*."""
        message = await self.channel.unary(path, request, limit=limit, fields=fields)
        try:
            answer.MergeFromString(message)
        except DecodeError as failure:
            raise WorkerError("The worker's answer is no message of its contract.") from failure


class _EnoughHeard(Exception):  # noqa: N818  # no error: how a callback ends its call
    """Whoever hears a worker's news wants no more."""


def lean_engine(
    address: str,
    *,
    deadlines: Deadlines | None = None,
    options: ChannelOptions | None = None,
    tls: SSLContext | None = None,
    server_name: str | None = None,
    metadata: Iterable[tuple[str, str]] = (),
) -> LeanEngine:
    """Return the client of the worker at *address*; nothing is sent yet.

    Args:
        address: ``host:port``; IPv6 hosts in brackets.
        deadlines: The time limits of every call.
        options: How the worker is called; its connect timeout is the deadlines'.
        tls: None for plain text.
        server_name: What the worker's certificate must name, if not the address's host.
        metadata: Fields of every call, such as authorization.
    """
    host, _, port = address.rpartition(":")
    limits = deadlines or Deadlines()
    channel = Channel(
        host.strip("[]"),
        int(port),
        replace(options or ChannelOptions(), connect_timeout=limits.connect),
        chance=random.random,
        tls=tls,
        server_name=server_name,
        metadata=metadata,
    )
    return LeanEngine(channel, deadlines=limits)


def _unheard() -> None:
    """Be the listener when there is none."""
