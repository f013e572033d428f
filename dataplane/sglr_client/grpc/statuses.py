"""gRPC statuses as the HTTP answers that they would have been; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import grpc
import msgspec
from google.protobuf.message import DecodeError
from google.rpc import (  # type: ignore[import-untyped]  # its stubs have no marker
    error_details_pb2,
    status_pb2,
)

_HTTP: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
_DETAILS: Final = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a server answered instead of what was asked.

    Attributes:
        is_told: Whether the server said so itself; False: the connection failed.
    """

    status: int
    body: bytes
    headers: dict[str, str]
    is_told: bool


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    """Return what *error* would have been over HTTP."""
    trailers = dict(error.trailing_metadata() or ())
    status = _details(trailers.get(_DETAILS))
    told: dict[str, Any] = {
        "message": error.details() or f"The call ended with {error.code().name}.",
        "type": "server_error",
        "param": None,
        "code": error.code().name.lower(),
    }
    headers = {
        name: value for name, value in trailers.items() if isinstance(value, str) and name != "date"
    }
    for detail in status.details if status is not None else ():
        _read(detail, told, headers)
    return Refusal(
        status=_HTTP.get(error.code(), 500),
        body=msgspec.json.encode({"error": told}),
        headers=headers,
        # gRPC's own failures have no details: nobody answered.
        is_told=status is not None or error.code() not in _OWN,
    )


_OWN: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
)


def _details(packed: str | bytes | None) -> Any:
    if not isinstance(packed, bytes):
        return None
    try:
        return status_pb2.Status.FromString(packed)
    except DecodeError:
        return None


def _read(detail: Any, told: dict[str, Any], headers: dict[str, str]) -> None:
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    if detail.Unpack(info):
        told |= {"code": info.reason, **dict(info.metadata)}
    elif detail.Unpack(retry):
        headers["retry-after"] = str(retry.retry_delay.ToTimedelta().total_seconds())
