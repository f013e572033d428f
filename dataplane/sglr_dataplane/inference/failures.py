"""Errors as gRPC statuses: the same sentence, the nearest code, and google.rpc's details."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]  # its stubs have no marker

from sglr_dataplane.errors import RouterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message

DOMAIN: Final = "sglr.dev"

_CODES: Final = {
    HTTPStatus.BAD_REQUEST: code_pb2.INVALID_ARGUMENT,
    HTTPStatus.UNAUTHORIZED: code_pb2.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: code_pb2.PERMISSION_DENIED,
    HTTPStatus.NOT_FOUND: code_pb2.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED: code_pb2.UNIMPLEMENTED,
    HTTPStatus.REQUEST_TIMEOUT: code_pb2.DEADLINE_EXCEEDED,
    HTTPStatus.CONFLICT: code_pb2.ABORTED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: code_pb2.INVALID_ARGUMENT,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: code_pb2.INVALID_ARGUMENT,
    HTTPStatus.UNPROCESSABLE_ENTITY: code_pb2.INVALID_ARGUMENT,
    HTTPStatus.TOO_MANY_REQUESTS: code_pb2.RESOURCE_EXHAUSTED,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: code_pb2.INVALID_ARGUMENT,
    HTTPStatus.INTERNAL_SERVER_ERROR: code_pb2.INTERNAL,
    HTTPStatus.NOT_IMPLEMENTED: code_pb2.UNIMPLEMENTED,
    HTTPStatus.BAD_GATEWAY: code_pb2.UNAVAILABLE,
    HTTPStatus.SERVICE_UNAVAILABLE: code_pb2.UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT: code_pb2.DEADLINE_EXCEEDED,
}
"""A too long request is no RESOURCE_EXHAUSTED here, although gRPC says so of its own messages:
clients try that again."""


class Fault(msgspec.Struct, frozen=True):
    """OpenAI's error object."""

    message: str = "The router gave no reason."
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class _Envelope(msgspec.Struct, frozen=True):
    error: Fault = Fault()


def read_fault(body: bytes) -> Fault:
    """Return the error that *body* holds, as JSON; one without a reason where it holds none."""
    try:
        return msgspec.json.decode(body, type=_Envelope).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Fault()


def status_of(
    fault: Fault, http_status: int | None, *, retry_after: str | None = None
) -> status_pb2.Status:
    """Return *fault* as a gRPC status.

    Args:
        fault: What the client is told.
        http_status: The answer's; None where the answer had begun: the error's code then tells.
        retry_after: Seconds until trying again makes sense, as ``Retry-After`` has it.
    """
    status = http_status if http_status is not None else _http_status_of(fault.code)
    code = _CODES.get(HTTPStatus(status), code_pb2.UNKNOWN)
    details = [_packed(each) for each in _details(fault, retry_after)]
    return status_pb2.Status(code=code, message=fault.message, details=details)


def _details(fault: Fault, retry_after: str | None) -> Iterator[Message]:
    metadata = {"type": fault.type or "", "param": fault.param or ""}
    yield error_details_pb2.ErrorInfo(
        reason=str(fault.code or "unknown"),
        domain=DOMAIN,
        metadata={name: value for name, value in metadata.items() if value},
    )
    if fault.param:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=fault.param, description=fault.message
        )
        yield error_details_pb2.BadRequest(field_violations=[violation])
    if retry_after is not None and retry_after.isdigit():
        info = error_details_pb2.RetryInfo()
        info.retry_delay.FromSeconds(int(retry_after))
        yield info


def _packed(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def _http_status_of(code: str | int | None) -> int:
    """Return the HTTP status that errors with *code* have; 500 for one that is not the router's."""
    return next((each.status for each in _classes(RouterError) if each.code == code), 500)


def _classes(of: type[RouterError]) -> Iterator[type[RouterError]]:
    yield of
    for each in of.__subclasses__():
        yield from _classes(each)
