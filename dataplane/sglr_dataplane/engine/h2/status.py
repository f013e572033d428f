"""What a call's answer says of its success: response fields → gRPC status."""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

from sglr_dataplane.engine.h2.codes import ErrorCode
from sglr_dataplane.engine.h2.errors import (
    BrokenConnectionError,
    BrokenStreamError,
    CancelledStreamError,
    H2Error,
    LostConnectionError,
    ResetStreamError,
    UnprocessedStreamError,
)
from sglr_dataplane.engine.h2.headers import Fields
from sglr_dataplane.engine.h2.stream import Stream

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
DEADLINE_EXCEEDED: Final = 4
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16

# gRPC over HTTP/2, "HTTP2 Transport Mapping": all others are INTERNAL.
_OF_RESET: Final[dict[int, int]] = {
    ErrorCode.REFUSED_STREAM: UNAVAILABLE,
    ErrorCode.CANCEL: CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: RESOURCE_EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: PERMISSION_DENIED,
}
# gRPC, "HTTP to gRPC Status Code Mapping": all others are UNKNOWN.
_OF_HTTP: Final = {
    b"400": INTERNAL,
    b"401": UNAUTHENTICATED,
    b"403": PERMISSION_DENIED,
    b"404": UNIMPLEMENTED,
    b"429": UNAVAILABLE,
    b"502": UNAVAILABLE,
    b"503": UNAVAILABLE,
    b"504": UNAVAILABLE,
}


class CallError(Exception):
    """A call ended with a status other than OK, by the worker's word or by the transport's."""

    def __init__(
        self, code: int, details: str, *, sent: bool = True, trailers: Fields = ()
    ) -> None:
        """Keep the status.

        Args:
            code: The gRPC status code.
            details: ``grpc-message``, decoded, or a sentence of the transport.
            sent: False when the worker certainly did nothing with the request.
            trailers: The answer's last fields.
        """
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details
        self.sent = sent
        self.trailers = trailers


def read_end(stream: Stream) -> CallError | None:
    """Return why the call on *stream*, which is over, failed; None for status OK."""
    if stream.failure is not None:
        return error_of_failure(stream.failure)
    fields = dict(stream.trailers)
    status = fields.get(b"grpc-status")
    if status is None:
        if stream.head is not None and not speaks_grpc(stream.head):
            return refusal_of(stream.head)
        return CallError(UNKNOWN, "The answer ended without a gRPC status.")
    if status == b"0":
        return None
    details = unquote_to_bytes(fields.get(b"grpc-message", b"")).decode(errors="replace")
    if not status.isdigit() or len(status) > _STATUS_DIGITS:
        return CallError(
            UNKNOWN, f"Field grpc-status is {status!r}. {details}", trailers=stream.trailers
        )
    return CallError(int(status), details, trailers=stream.trailers)


_STATUS_DIGITS: Final = 9


def refusal_of(head: Fields) -> CallError:
    """Return why an answer that starts with *head*, which is none of gRPC's, is refused."""
    fields = dict(head)
    status = fields[b":status"]
    if status != b"200":
        code = _OF_HTTP.get(status, UNKNOWN)
        return CallError(code, f"The answer has HTTP status {status.decode()}.")
    kind = fields.get(b"content-type", b"").decode(errors="replace")
    return CallError(UNKNOWN, f"The answer has content type {kind!r}.")


@lru_cache(32)
def speaks_grpc(head: Fields) -> bool:
    """Return whether an answer that starts with *head* is one of gRPC's."""
    fields = dict(head)
    kind = fields.get(b"content-type", b"").lower()
    return fields[b":status"] == b"200" and kind.startswith(b"application/grpc")


def error_of_failure(failure: H2Error) -> CallError:
    """Return the status of a call whose stream ended by *failure*."""
    match failure:
        case UnprocessedStreamError():
            return CallError(UNAVAILABLE, failure.reason, sent=False)
        case LostConnectionError():
            return CallError(UNAVAILABLE, failure.reason)
        case CancelledStreamError():
            return CallError(CANCELLED, failure.reason)
        case ResetStreamError():
            return CallError(_OF_RESET.get(failure.code, INTERNAL), str(failure))
        case BrokenConnectionError() | BrokenStreamError():
            return CallError(INTERNAL, str(failure))
        case _:
            return CallError(UNKNOWN, str(failure))
