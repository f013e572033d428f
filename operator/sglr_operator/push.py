"""The push server: moves the publisher's bytes to routers, and their answers back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final, Protocol

import grpc.aio

from sglr_operator import messages
from sglr_operator.config import PushConfig
from sglr_operator.metrics import Metrics
from sglr_operator.publish import Publisher, Subscription
from sglr_proto.discovery import push_pb2 as pb
from sglr_proto.snapshot import Epoch

logger = logging.getLogger(__name__)

SERVICE: Final = "sglr.discovery.v1alpha1.EndpointPush"

Context = grpc.aio.ServicerContext[pb.RequestBatch, bytes]
Requests = AsyncIterator[pb.RequestBatch]

_BATCH: Final = 256 * 1024
"""Bytes after which a batch is sent: few messages, and a large one delays no answer for long."""


class Authenticate(Protocol):
    """Decides who may subscribe."""

    async def __call__(self, token: str) -> str | None:
        """Return why the bearer *token* is refused; None when it is good."""
        ...


class PushService:
    """The ``EndpointPush`` service in front of one publisher."""

    def __init__(
        self,
        publisher: Publisher,
        *,
        server: str,
        config: PushConfig,
        metrics: Metrics,
        clock: Callable[[], float],
        outranked: Callable[[Epoch], None],
        may_speak: Callable[[], bool],
        authenticate: Authenticate | None = None,
    ) -> None:
        """Serve *publisher*.

        Args:
            publisher: What is said, and who hears it.
            server: This replica's name, for routers' logs.
            config: Heartbeats, deadlines and limits.
            metrics: Where refusals are counted.
            clock: Monotonic seconds.
            outranked: Called with an epoch that a router has seen and that is above our own.
            may_speak: Whether this replica leads at this very moment: asked before each message.
            authenticate: Judges bearer tokens; None lets in whom the transport lets in.
        """
        self._publisher = publisher
        self._server = server
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._outranked = outranked
        self._may_speak = may_speak
        self._authenticate = authenticate
        self._next_turn = 0.0

    async def subscribe(self, requests: Requests, context: Context) -> AsyncGenerator[bytes]:
        """Serve one router until it leaves or is sent away."""
        await self._wait_for_turn()
        await self._check_token(context)
        hello = await self._hello(requests, context)
        router = self._publisher.join(hello)
        logger.info("router subscribed", extra={"router": router.router, "pod": router.pod})
        listening = asyncio.ensure_future(self._listen(router, requests))
        try:
            welcome = messages.welcome(self._publisher.epoch, self._server, self._config.heartbeat)
            yield messages.batch([welcome])
            async with aclosing(self._speak(router, listening)) as due:
                async for message in due:
                    yield message
        finally:
            listening.cancel()
            self._publisher.leave(router)
            logger.info("router left", extra={"router": router.router, "reason": router.ending})

    async def _wait_for_turn(self) -> None:
        """Spread a rush of routers over time: each first gets every backend."""
        now = self._clock()
        turn = max(self._next_turn, now)
        self._next_turn = turn + 1.0 / self._config.accepts_per_second
        await asyncio.sleep(turn - now)

    async def _check_token(self, context: Context) -> None:
        if self._authenticate is None:
            return
        sent = dict(context.invocation_metadata() or ()).get("authorization", "")
        scheme, _, token = str(sent).partition(" ")
        problem: str | None = "A bearer token is expected in the metadata."
        if scheme.lower() == "bearer" and token:
            problem = await self._authenticate(token)
        if problem is not None:
            self._metrics.refusals.labels("unauthenticated").inc()
            logger.warning("router refused", extra={"peer": context.peer(), "problem": problem})
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, problem)

    async def _hello(self, requests: Requests, context: Context) -> pb.Hello:
        """Return the stream's first request, if it is one that we can serve."""
        try:
            async with asyncio.timeout(self._config.ack_deadline):
                (first, *_) = (await anext(requests)).requests
        except (StopAsyncIteration, TimeoutError, ValueError):
            first = pb.SubscribeRequest()
        hello = first.hello
        if first.WhichOneof("message") != "hello":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The first request is a Hello.")
        if messages.PROTOCOL not in hello.protocol_versions:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"This operator speaks protocol {messages.PROTOCOL}, the router"
                f" {list(hello.protocol_versions)!r}.",
            )
        seen: Epoch = (hello.last_epoch.created, hello.last_epoch.transitions)
        if hello.HasField("last_epoch") and seen > self._publisher.epoch:
            self._metrics.refusals.labels("outranked").inc()
            self._outranked(seen)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "The router knows a later epoch.")
        return hello

    async def _speak(
        self, router: Subscription, listening: asyncio.Future[None]
    ) -> AsyncGenerator[bytes]:
        """Yield what is due, and heartbeats when nothing is, until the stream is to end."""
        while not router.ending and not listening.done():
            if not self._may_speak():
                # A leader that was frozen for a while must not push what it knew then.
                router.ending = "this replica does not lead any more"
                break
            due = self._due(router)
            if due:
                yield messages.batch(due)
                continue
            is_idle = await self._rest(router, listening)
            self._publisher.cut_if_silent(router)
            if is_idle:
                self._metrics.pushes.labels("heartbeat").inc()
                yield messages.batch([messages.heartbeat(self._publisher.epoch)])
        if router.ending:
            self._metrics.pushes.labels("go away").inc()
            yield messages.batch([messages.go_away(router.ending)])

    def _due(self, router: Subscription) -> list[bytes]:
        """Return what is due, up to a batch's size."""
        due: list[bytes] = []
        size = 0
        while size < _BATCH and (message := self._publisher.due(router)) is not None:
            due.append(message)
            size += len(message)
        return due

    async def _rest(self, router: Subscription, listening: asyncio.Future[None]) -> bool:
        """Wait until something happens; return whether nothing did for a heartbeat's time."""
        waking = asyncio.ensure_future(router.wake.wait())
        futures: set[asyncio.Future[Any]] = {waking, listening}
        try:
            await asyncio.wait(
                futures,
                timeout=self._config.heartbeat,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            is_idle = not waking.done() and not listening.done()
            waking.cancel()
        router.wake.clear()
        return is_idle

    async def _listen(self, router: Subscription, requests: Requests) -> None:
        """Note the router's answers until it hangs up."""
        async for batch in requests:
            for request in batch.requests:
                self._publisher.hear(router, request)


def new_server(
    service: PushService, config: PushConfig, credentials: grpc.ServerCredentials | None
) -> tuple[grpc.aio.Server, int]:
    """Return a server that is not started yet, and the port it is bound to.

    Raises:
        OSError: The address is taken.
    """
    server = grpc.aio.server(
        options=[
            # Two operators must never share a port in silence.
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
            ("grpc.max_receive_message_length", config.max_message),
            ("grpc.max_send_message_length", config.max_message),
        ]
    )
    handler = grpc.stream_stream_rpc_method_handler(
        service.subscribe,
        request_deserializer=pb.RequestBatch.FromString,
        # Messages are bytes already: serialised once for all routers.
        response_serializer=bytes,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Subscribe": handler}),)
    )
    address = str(config.address)
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise OSError(f"The push server cannot listen on {address!r}: {error}") from error
    return server, port
