"""What carries a client's calls over gRPC: httpx transports that speak inference.v1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final, TypeVar

import grpc
import httpx2
import msgspec
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sglr_client.blocking import Blocking
from sglr_client.grpc.bodies import (
    DONE,
    Frames,
    NotCarriedError,
    chat_request,
    completion_of,
    models_of,
)
from sglr_client.grpc.statuses import refusal_of
from sglr_proto.inference import inference_pb2 as pb
from sglr_proto.inference import inference_pb2_grpc

T = TypeVar("T")

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)
"""A host that was away is tried again within seconds: how often is the retry policy's business."""
_UNSENT: Final = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host",
     "transfer-encoding", "user-agent"}
)  # fmt: skip
_JSON: Final = {"content-type": "application/json"}
_SSE: Final = {"content-type": "text/event-stream"}


class AsyncGrpcTransport(httpx2.AsyncBaseTransport):
    """Carries the calls of an ``AsyncClient`` to a server of inference.v1."""

    def __init__(self, target: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        """Speak to *target*, ``host:port``; nothing is sent yet.

        Args:
            target: Where the server is.
            credentials: Of TLS, such as ``grpc.ssl_channel_credentials()``; None: plain text.
        """
        self._target = target
        self._credentials = credentials
        self._opened: grpc.aio.Channel | None = None

    def __repr__(self) -> str:
        return f"<AsyncGrpcTransport {self._target}>"

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the answer to *request*, as HTTP would have it.

        Raises:
            httpx2.TransportError: There was none, or *request* cannot be carried.
        """
        waited = _within(request, self._answer(request))
        try:
            return await waited
        except grpc.aio.AioRpcError as error:
            return _refused(error)

    async def aclose(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            await self._opened.close()

    def _channel(self) -> grpc.aio.Channel:
        """Return the connection; made where it is used: it belongs to the running loop."""
        if self._opened is None:
            self._opened = (
                grpc.aio.insecure_channel(self._target, _OPTIONS)
                if self._credentials is None
                else grpc.aio.secure_channel(self._target, self._credentials, _OPTIONS)
            )
        return self._opened

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        match request.method, request.url.path:
            case "POST", "/v1/chat/completions":
                return await self._chat(request)
            case "GET", "/v1/models":
                call: Any = self._service().ListModels(
                    pb.ListModelsRequest(), metadata=_metadata(request)
                )
                return _json(200, models_of(await call))
            case "GET", "/health":
                return await self._health()
            case method, path:
                return _not_served(method, path)

    def _service(self) -> Any:
        return inference_pb2_grpc.InferenceServiceStub(self._channel())

    async def _chat(self, request: httpx2.Request) -> httpx2.Response:
        try:
            asked = chat_request(request.content)
        except NotCarriedError as error:
            raise httpx2.LocalProtocolError(str(error)) from error
        metadata = _metadata(request)
        if not msgspec.json.decode(request.content).get("stream"):
            call: Any = self._service().Chat(asked, metadata=metadata)
            response = await call
            return _json(200, completion_of(response), await _headers(call))
        stream: Any = self._service().ChatStream(asked, metadata=metadata)
        try:
            headers = await _headers(stream)
            # A stream may begin before its first chunk, an error has no beginning of its own.
            first = None if headers else await stream.read()
        except BaseException:
            stream.cancel()
            raise
        events = _Events(stream, request, first)
        return httpx2.Response(200, headers={**_SSE, **headers}, stream=events)

    async def _health(self) -> httpx2.Response:
        health: Any = health_pb2_grpc.HealthStub(self._channel())  # type: ignore[no-untyped-call,arg-type,unused-ignore]  # its stubs know blocking channels
        found = await health.Check(health_pb2.HealthCheckRequest())
        is_up = found.status == health_pb2.HealthCheckResponse.SERVING
        return _json(200 if is_up else 503, b"{}")


class _Events(httpx2.AsyncByteStream):
    """The chunks of one call as the frames of an event stream."""

    def __init__(self, call: Any, request: httpx2.Request, first: Any) -> None:
        self._call = call
        self._request = request
        self._first = first

    async def __aiter__(self) -> AsyncIterator[bytes]:
        frames = Frames()
        while True:
            try:
                chunk, self._first = self._first, None
                if chunk is None:
                    chunk = await _within(self._request, self._call.read())
            except grpc.aio.AioRpcError as error:
                refusal = refusal_of(error)
                if not refusal.is_told:
                    raise httpx2.ReadError(error.details() or error.code().name) from error
                yield b"data: " + refusal.body + b"\n\n"
                return
            if chunk is grpc.aio.EOF:
                if frames.finished:
                    yield DONE
                return  # without a finish the answer is cut off, whatever the status says
            yield frames.of(chunk)

    async def aclose(self) -> None:
        self._call.cancel()


class GrpcTransport(Blocking):
    """Carries the calls of a ``Client``: an `AsyncGrpcTransport` in a thread of its own."""

    def __init__(self, target: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        """Speak to *target*; see `AsyncGrpcTransport`."""
        super().__init__(AsyncGrpcTransport(target, credentials), name=target)


async def _within(request: httpx2.Request, work: Awaitable[T]) -> T:
    """Return what *work* gives, within the time that *request* has for the next piece."""
    try:
        async with asyncio.timeout(request.extensions.get("timeout", {}).get("read")):
            return await work
    except TimeoutError as error:
        raise httpx2.ReadTimeout("The wait was too long.") from error


async def _headers(call: Any) -> dict[str, str]:
    metadata = await call.initial_metadata()
    return {name: value for name, value in metadata or () if isinstance(value, str)}


def _metadata(request: httpx2.Request) -> tuple[tuple[str, str], ...]:
    return tuple((n, v) for n, v in request.headers.items() if n not in _UNSENT)


def _json(status: int, body: bytes, headers: dict[str, str] | None = None) -> httpx2.Response:
    return httpx2.Response(status, headers={**_JSON, **(headers or {})}, content=body)


def _refused(error: grpc.aio.AioRpcError) -> httpx2.Response:
    """Return *error* as an answer.

    Raises:
        httpx2.TransportError: Nobody answered.
    """
    refusal = refusal_of(error)
    if not refusal.is_told:
        raise httpx2.ConnectError(error.details() or error.code().name) from error
    return _json(refusal.status, refusal.body, refusal.headers)


def _not_served(method: str, path: str) -> httpx2.Response:
    told = {
        "message": f"inference.v1 has no call for {method} {path}: ask over HTTP.",
        "type": "invalid_request_error",
        "param": None,
        "code": "not_served",
    }
    return _json(501, msgspec.json.encode({"error": told}))
