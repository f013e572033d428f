# ruff: noqa: N802 -- names and signatures of rpcs are the contract's
"""``grpc.health.v1`` as the worker serves it: two names, Watch says one status and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import (
    health_pb2,
    health_pb2_grpc,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sglr_dataplane.sim.faults import Faults

OVERALL = ""
ENGINE = "sglang.grpc.scheduler.SglangScheduler"


class Health:
    """The status of the two service names."""

    def __init__(self, *, is_stuck: Callable[[], bool]) -> None:
        """Start not serving.

        Args:
            is_stuck: Whether the engine has been silent too long with requests pending; the
                engine's name does not serve then, the overall one does.
        """
        self._serving = {OVERALL: False, ENGINE: False}
        self._is_stuck = is_stuck

    def __repr__(self) -> str:
        return f"Health({self._serving})"

    def set_serving(self, serving: bool, service: str | None = None) -> None:  # noqa: FBT001  # the one fact it is about
        """Set the status of *service*; None: of both."""
        for name in self._serving if service is None else (service,):
            self._serving[name] = serving

    def is_serving(self, service: str) -> bool | None:
        """Return the status of *service*; None when there is no such name."""
        if service not in self._serving:
            return None
        return self._serving[service] and not (service == ENGINE and self._is_stuck())


class HealthServicer(health_pb2_grpc.HealthServicer):
    """Answers for one Health."""

    def __init__(self, health: Health, faults: Faults) -> None:
        self._health = health
        self._faults = faults

    async def Check(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[
            health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
        ],
    ) -> health_pb2.HealthCheckResponse:
        """Return the status; NOT_FOUND for a name that is neither of the two."""
        await self._faults.begin("Check", context)
        serving = self._health.is_serving(request.service)
        if serving is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Unknown service: {request.service}")
        return health_pb2.HealthCheckResponse(status=_status(serving))

    async def Watch(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[
            health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
        ],
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Send the status once and end: the real worker does not watch."""
        await self._faults.begin("Watch", context)
        yield health_pb2.HealthCheckResponse(
            status=_status(self._health.is_serving(request.service))
        )


def _status(serving: bool | None) -> Any:  # noqa: FBT001  # three states, one value
    if serving is None:
        return health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    return (
        health_pb2.HealthCheckResponse.SERVING
        if serving
        else health_pb2.HealthCheckResponse.NOT_SERVING
    )
