"""``grpc.health.v1`` of the router: serving exactly while ``/readyz`` says ready."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Literal

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sglr_dataplane.api.bridge import AsgiCall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp

    Context = grpc.aio.ServicerContext[Any, Any]
    Response = health_pb2.HealthCheckResponse

SERVICES: Final = frozenset({"", "inference.v1.InferenceService"})
_LOOK_SECONDS: Final = 1.0
"""Between two looks for somebody who watches; a router that drains settles for longer."""


class HealthServicer(health_pb2_grpc.HealthServicer):
    """Answers Check and Watch by asking *app* whether it is ready."""

    def __init__(self, app: ASGIApp, *, look: float = _LOOK_SECONDS) -> None:
        """Ask *app*, every *look* seconds for those who watch."""
        self._app = app
        self._look = look

    async def Check(  # noqa: N802  # the service's name
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> Response:
        """Return the state now; NOT_FOUND for a service that is not served here."""
        if request.service not in SERVICES:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"No service {request.service!r} is served here."
            )
        return health_pb2.HealthCheckResponse(status=_word(is_ready=await self._is_ready()))

    async def Watch(  # noqa: N802  # the service's name
        self,
        request: health_pb2.HealthCheckRequest,
        context: Context,  # noqa: ARG002  # the service's
    ) -> AsyncIterator[Response]:
        """Yield the state now and whenever it changes, until the client leaves."""
        if request.service not in SERVICES:
            unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
            yield health_pb2.HealthCheckResponse(status=unknown)
            await asyncio.Event().wait()  # it may be served some day, by another version
        was_ready: bool | None = None
        while True:
            is_ready = await self._is_ready()
            if is_ready is not was_ready:
                yield health_pb2.HealthCheckResponse(status=_word(is_ready=is_ready))
                was_ready = is_ready
            await asyncio.sleep(self._look)

    async def _is_ready(self) -> bool:
        async with AsgiCall(
            self._app, method="GET", path="/readyz", headers=[], protocol="grpc"
        ) as call:
            head = await call.head()
            async for _ in call.parts():
                pass
        return head.status == HTTPStatus.OK


def _word(*, is_ready: bool) -> Literal[1, 2]:
    known = health_pb2.HealthCheckResponse
    return known.SERVING if is_ready else known.NOT_SERVING
