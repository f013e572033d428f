"""The client of one SGLang worker on the plain grpcio stack.

The reference: the lean transport behind the same protocol is held against it. Nothing here may
retry, and nothing sends ``Abort``: cancelling the call is the only way to end a generation that
neither leaves its stream hanging nor ends other people's (the engine matches ids by prefix).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2

from sglr_dataplane.engine.answers import Answers
from sglr_dataplane.engine.bundles import BundleReader, bundle_error
from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.facts import engine_facts
from sglr_dataplane.engine.messages import generate_request, take
from sglr_dataplane.engine.single import SingleChunk, embed_request, embedding_chunk
from sglr_dataplane.engine.statuses import error_from_status, name_of
from sglr_dataplane.engine.telling import cache_batch, cache_request, life_of, load_of
from sglr_dataplane.errors import (
    DeadlineExceededError,
    RouterError,
    WorkerError,
    WorkerUnavailableError,
)
from sglr_proto.sglang import common_pb2, scheduler_pb2, scheduler_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sglr_dataplane.engine import EngineFacts, TokenizerBundle
    from sglr_dataplane.engine.telling import CacheBatch, EngineLoad
    from sglr_dataplane.job import Chunk, Job

    _Call = aio.UnaryStreamCall[scheduler_pb2.GenerateRequest, scheduler_pb2.GenerateResponse]

logger = logging.getLogger(__name__)

HEALTH_NAMES: Final = ("", "sglang.grpc.scheduler.SglangScheduler")
"""The names a worker reports health under: the process, and the scheduler behind it."""

LARGEST_MESSAGE: Final = 256 * 2**20
"""Bytes, both ways: what the worker's own server takes. grpc's default of 4 MiB is one long chat
with images."""

KEEPALIVE: Final = 310.0
"""Seconds between pings on a silent connection: a server with grpc's defaults closes one that
pings more often than every 300 s. Health checks notice a dead peer long before."""

_KEEPALIVE_TIMEOUT: Final = 10.0
_LONGEST_RECONNECT: Final = 1.0


class SGLangEngine:
    """One worker, over one connection that is made at first use, in the loop that uses it."""

    def __init__(
        self, address: str, *, deadlines: Deadlines | None = None, keepalive: float = KEEPALIVE
    ) -> None:
        """Remember where the worker is; nothing is sent yet.

        Args:
            address: ``host:port``; IPv6 hosts in brackets.
            deadlines: The time limits of every call.
            keepalive: Seconds between pings on a silent connection; below the worker's own limit
                (10 s for SGLang, 300 s for grpc's default) it closes the connection.
        """
        self._address = address
        self._deadlines = deadlines or Deadlines()
        self._options = _channel_options(self._deadlines.connect, keepalive)
        self._channel: aio.Channel | None = None
        self._closed = False
        self.on_lost: Callable[[], None] = _unheard
        """Never called: grpc's channel keeps the state of its connections to itself."""

    def __repr__(self) -> str:
        state = "closed" if self._closed else "idle" if self._channel is None else "connected"
        return f"<SGLangEngine {self._address} {state}>"

    def generate(self, job: Job) -> GenerateCall:
        """Start *job*; nothing is sent before the first ``__anext__``."""
        return GenerateCall(self._open_generate, job, self._deadlines)

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
        stub = scheduler_pb2_grpc.SglangSchedulerStub(self._connection())
        limit = self._deadlines.generation
        try:
            answer = await stub.HealthCheck(scheduler_pb2.HealthCheckRequest(), timeout=limit)
        except aio.AioRpcError as failure:
            raise _translated(failure) from failure
        return bool(answer.healthy)

    async def load(self) -> EngineLoad | None:
        """Return how busy the worker says it is; None from one that does not tell."""
        stub = scheduler_pb2_grpc.SglangSchedulerStub(self._connection())
        request = scheduler_pb2.GetLoadsRequest(include=["core"])
        try:
            return load_of(await stub.GetLoads(request, timeout=self._deadlines.probe))
        except aio.AioRpcError as failure:
            if failure.code() is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise _translated(failure) from failure

    async def life(self) -> str:
        """Return when the worker's process began; ``""`` from one that hides it."""
        stub = scheduler_pb2_grpc.SglangSchedulerStub(self._connection())
        request = scheduler_pb2.GetServerInfoRequest()
        try:
            return life_of(await stub.GetServerInfo(request, timeout=self._deadlines.facts))
        except aio.AioRpcError as failure:
            if failure.code() is grpc.StatusCode.UNIMPLEMENTED:
                return ""
            raise _translated(failure) from failure

    async def follow_cache(self, start: int, take: Callable[[CacheBatch], bool]) -> bool:
        """Give *take* what the worker tells of its cache until it says False."""
        stub = scheduler_pb2_grpc.SglangSchedulerStub(self._connection())
        call = stub.SubscribeKvEvents(cache_request(start), timeout=self._deadlines.news)
        try:
            async for message in call:
                if not take(cache_batch(message)):
                    break
        except aio.AioRpcError as failure:
            if failure.code() is grpc.StatusCode.UNIMPLEMENTED:
                return False
            raise _translated(failure) from failure
        finally:
            call.cancel()
        return True

    async def facts(self) -> EngineFacts:
        """Return what the worker says of itself; without GetServerInfo what the model says."""
        stub = scheduler_pb2_grpc.SglangSchedulerStub(self._connection())
        limit = self._deadlines.facts
        try:
            model = await stub.GetModelInfo(scheduler_pb2.GetModelInfoRequest(), timeout=limit)
        except aio.AioRpcError as failure:
            raise _translated(failure) from failure
        try:
            server = await stub.GetServerInfo(scheduler_pb2.GetServerInfoRequest(), timeout=limit)
        except aio.AioRpcError as failure:
            if failure.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise _translated(failure) from failure
            return engine_facts(model, None)
        try:
            adapters = await stub.ListLoadedLoRAAdapters(
                scheduler_pb2.ListLoadedLoRAAdaptersRequest(), timeout=limit
            )
        except aio.AioRpcError as failure:
            if failure.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise _translated(failure) from failure
            return engine_facts(model, server)
        return engine_facts(model, server, adapters)

    async def tokenizer_bundle(self) -> TokenizerBundle:
        """Return the worker's tokenizer."""
        stub = scheduler_pb2_grpc.SglangSchedulerStub(self._connection())
        limit = self._deadlines.bundle
        call = stub.GetTokenizer(common_pb2.GetTokenizerRequest(), timeout=limit)
        reader = BundleReader()
        try:
            async for chunk in call:
                reader.add(chunk)
        except aio.AioRpcError as failure:
            raise bundle_error(failure.code().value[0], failure.details() or "") from failure
        finally:
            call.cancel()
        return reader.bundle()

    async def aclose(self) -> None:
        """Close the connection; running streams end with WorkerUnavailableError."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    async def _embed(self, job: Job) -> Chunk:
        stub = scheduler_pb2_grpc.SglangSchedulerStub(self._connection())
        try:
            limit = self._deadlines.first_token
            answer = await stub.Embed(embed_request(job), timeout=limit, metadata=job.trace)
        except aio.AioRpcError as failure:
            raise _translated(failure) from failure
        return embedding_chunk(answer)

    async def _serves(self, name: str) -> bool:
        check = self._connection().unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        request = health_pb2.HealthCheckRequest(service=name)
        try:
            answer = await check(request)
        except aio.AioRpcError as failure:
            if failure.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED):
                return False
            raise _translated(failure) from failure
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def _open_generate(self, job: Job) -> _Call:
        stub = scheduler_pb2_grpc.SglangSchedulerStub(self._connection())
        # The limit travels with the call: the worker gives up by itself when this router is gone.
        return stub.Generate(
            generate_request(job), timeout=self._deadlines.total, metadata=job.trace
        )

    def _connection(self) -> aio.Channel:
        if self._closed:
            raise WorkerUnavailableError("The worker has left.")
        if self._channel is None:
            self._channel = aio.insecure_channel(self._address, options=self._options)
        return self._channel


class GenerateCall:
    """The chunks of one job, from one ``Generate`` call."""

    def __init__(self, start: Callable[[Job], _Call], job: Job, deadlines: Deadlines) -> None:
        """Hold what the call needs; *start* makes it at the first ``__anext__``."""
        self._start = start
        self._job = job
        self._deadlines = deadlines
        self._answers = Answers(job)
        self._call: _Call | None = None
        self._messages: AsyncIterator[scheduler_pb2.GenerateResponse] | None = None
        self._ends_at = 0.0
        self._received = False
        self._over = False

    def __repr__(self) -> str:
        return f"<GenerateCall {self._job.id} {self._answers!r}{' over' if self._over else ''}>"

    def __aiter__(self) -> GenerateCall:
        return self

    async def __anext__(self) -> Chunk:
        """Return the next chunk; whatever ends the stream ends the worker's call at once."""
        if self._over:
            raise StopAsyncIteration
        try:
            while not self._answers.finished:
                chunk = take(self._answers, await self._next_message())
                if chunk is not None:
                    return chunk
            await self._linger()
        except BaseException:
            self._cancel()
            raise
        self._cancel()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel the worker's call if it still runs, without awaiting it."""
        self._cancel()

    def _cancel(self) -> None:
        self._over = True
        if self._call is not None and not self._call.done():
            self._call.cancel()

    async def _next_message(self) -> scheduler_pb2.GenerateResponse:
        messages = self._open()
        limit = self._limit()
        try:
            async with asyncio.timeout(limit):
                message = await anext(messages)
        except StopAsyncIteration:
            self._answers.end()
            raise WorkerError("The worker ended the stream twice.") from None
        except TimeoutError as failure:
            raise self._too_late(limit) from failure
        except aio.AioRpcError as failure:
            raise _translated(failure) from failure
        except asyncio.CancelledError as failure:
            raise self._cancellation(failure) from failure
        self._received = True
        return message

    def _open(self) -> AsyncIterator[scheduler_pb2.GenerateResponse]:
        if self._messages is None:
            self._ends_at = asyncio.get_running_loop().time() + self._deadlines.total
            self._call = self._start(self._job)
            # Not call.read(): it drops messages that wait behind a status that came already.
            self._messages = aiter(self._call)
        return self._messages

    def _limit(self) -> float:
        """Return how many seconds the next message may take."""
        left = max(self._ends_at - asyncio.get_running_loop().time(), 0.0)
        if not self._job.stream:
            # All comes in one message, after the whole generation.
            return left
        return min(left, self._deadlines.idle if self._received else self._deadlines.first_token)

    def _too_late(self, limit: float) -> DeadlineExceededError:
        what = "another token" if self._received else "a first token"
        return DeadlineExceededError(f"The worker did not send {what} within {limit:g} s.")

    def _cancellation(self, failure: asyncio.CancelledError) -> BaseException:
        """Return *failure* if this task is cancelled, an error if only the connection closed."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return failure
        return WorkerUnavailableError("The worker left before its answer was complete.")

    async def _linger(self) -> None:
        """Let the call end by itself, so that the worker sees no cancellation of what is done."""
        if self._messages is None:
            return
        try:
            async with asyncio.timeout(self._deadlines.linger):
                async for _ in self._messages:
                    logger.warning("worker spoke after its last finish")
        except (TimeoutError, aio.AioRpcError) as failure:
            logger.debug("call did not end cleanly", extra={"error": repr(failure)})


def _translated(failure: aio.AioRpcError) -> RouterError:
    code = failure.code().value[0]
    details = failure.details() or ""
    # Never the details: a worker may echo headers and prompts in them.
    logger.debug("call failed", extra={"status": name_of(code)})
    return error_from_status(code, details, failure.trailing_metadata() or ())


def _channel_options(connect: float, keepalive: float) -> list[tuple[str, int]]:
    return [
        ("grpc.max_send_message_length", LARGEST_MESSAGE),
        ("grpc.max_receive_message_length", LARGEST_MESSAGE),
        ("grpc.keepalive_time_ms", round(keepalive * 1000)),
        ("grpc.keepalive_timeout_ms", round(_KEEPALIVE_TIMEOUT * 1000)),
        # The name says backoff; it is also how long one attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", round(connect * 1000)),
        ("grpc.initial_reconnect_backoff_ms", 200),
        # grpc's default is two minutes: far too long for a worker that came back.
        ("grpc.max_reconnect_backoff_ms", round(_LONGEST_RECONNECT * 1000)),
        # The dispatcher retries, and knows what may be tried again.
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        # Workers are inside the cluster; a proxy from the environment is not for them.
        ("grpc.enable_http_proxy", 0),
        # A connection of its own: another engine's to the same address may be going away.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def _unheard() -> None:
    """Be the listener when there is none."""
