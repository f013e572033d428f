"""What can go wrong with a call, as classes; each knows its kind for metrics and its status."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from sglr_client.json_values import is_object


class ClientError(Exception):
    """A call did not give its result."""

    kind: ClassVar[str] = "client"
    """A word for metrics, from a bounded set."""


class ClientClosedError(ClientError):
    """The client was closed before the call began."""

    kind = "closed"


class BreakerOpenError(ClientError):
    """The host failed too often lately; nothing was sent."""

    kind = "breaker_open"

    def __init__(self, host: str, seconds: float) -> None:
        """Say which *host*, and in how many *seconds* it is tried again."""
        super().__init__(
            f"Host {host!r} failed too often, the breaker is open: it is tried again in"
            f" {seconds:.1f} s."
        )
        self.seconds = seconds


class UnhealthyError(ClientError):
    """The background health check found the host down; nothing was sent."""

    kind = "unhealthy"


class NetworkError(ClientError):
    """The network failed: no answer, or not a whole one."""

    kind = "network"


class ConnectFailedError(NetworkError):
    """No connection came about."""

    kind = "connect"


class ConnectionLostError(NetworkError):
    """The connection ended before the answer was complete."""

    kind = "connection_lost"


class TlsError(ClientError):
    """The peer's certificate, or ours, was refused: repeating does not help."""

    kind = "tls"


class DeadlineError(ClientError, TimeoutError):
    """A limit of time passed.

    Attributes:
        phase: ``pool``, ``connect``, ``headers``, ``idle`` or ``total``.
    """

    kind = "timeout"

    def __init__(self, phase: str, message: str) -> None:
        """Say which *phase* took too long."""
        super().__init__(message)
        self.phase = phase


class ModelNotReadyError(ClientError, TimeoutError):
    """A model did not become ready in the time it was given."""

    kind = "not_ready"


class InvalidAnswerError(ClientError):
    """A complete answer is not what the API promises."""

    kind = "invalid_answer"


class StreamError(ClientError):
    """A stream broke its rules or reported an error."""

    kind = "stream"


class TruncatedStreamError(StreamError, NetworkError):
    """The stream ended before a finish reason: the answer is not complete."""

    kind = "truncated"


class LineTooLongError(StreamError):
    """A line, or the data of one event, is longer than the configured cap."""

    kind = "line_too_long"


class InvalidChunkError(StreamError):
    """An event's data is not a chunk.

    Attributes:
        number: The event's place in the stream, from 1.
        offset: The byte of the body at which the event begins, from 0.
        data: The event's data.
    """

    kind = "invalid_chunk"

    def __init__(self, number: int, offset: int, data: bytes, reason: str) -> None:
        """Say which event it is and why it is none."""
        super().__init__(
            f"Event {number} at byte {offset} is not a chunk: {reason} It begins with {data[:60]!r}."
        )
        self.number = number
        self.offset = offset
        self.data = data


class RefusedError(ClientError):
    """The server answered with an error, as a status or inside a stream.

    Attributes:
        status: The HTTP status; for an error inside a stream the one its type stands for.
        type: OpenAI's error type, such as ``invalid_request_error``; None when not told.
        code: OpenAI's error code, such as ``model_not_found``; None when not told.
        param: The parameter at fault; None when not told.
        request_id: The answer's ``x-request-id``; None when there was none.
        retry_after: Seconds the server asked to wait; None when it did not.
        may_retry: False when the server said ``x-should-retry: false``.
        body: The answer's body, or the event's data.
    """

    def __init__(
        self,
        status: int,
        body: bytes,
        *,
        request_id: str | None = None,
        retry_after: float | None = None,
        may_retry: bool = True,
    ) -> None:
        """Read what *body* tells in OpenAI's shape, nested or flat; else keep its beginning."""
        told = _fields(body)
        message = told.get("message")
        super().__init__(message if isinstance(message, str) else _sentence(status, body))
        self.status = status
        self.type = _text(told.get("type"))
        self.code = _text(told.get("code"))
        self.param = _text(told.get("param"))
        self.request_id = request_id
        self.retry_after = retry_after
        self.may_retry = may_retry
        self.body = body

    kind = "refused"


# What an error inside a stream would have had as its status, by its type; parts of SGLang's own
# types are in the list too.
_STATUS_BY_TYPE: Final = {
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "notfounderror": 404,
    "rate_limit_error": 429,
    "tokens": 429,
    "service_unavailable": 503,
    "overloaded_error": 503,
    "timeout": 504,
}


class InvalidRequestError(RefusedError):
    """4xx: the request is at fault, whoever answers it."""

    kind = "invalid_request"


class AuthenticationError(InvalidRequestError):
    """401 or 403: the key is missing, wrong, or not enough."""

    kind = "authentication"


class NotFoundError(InvalidRequestError):
    """404: no such model or path."""

    kind = "not_found"


class RateLimitedError(RefusedError):
    """429: too many requests."""

    kind = "rate_limited"


class ServerError(RefusedError):
    """5xx: the server is at fault."""

    kind = "server"


class OverloadedError(ServerError):
    """503: the server has no room at the moment."""

    kind = "overloaded"


_BY_STATUS: Final[dict[int, type[RefusedError]]] = {
    401: AuthenticationError,
    403: AuthenticationError,
    404: NotFoundError,
    429: RateLimitedError,
    503: OverloadedError,
}


def refused_class(status: int) -> type[RefusedError]:
    """Return the class of an answer with *status*."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:  # noqa: PLR2004  # 5xx
        return ServerError
    return InvalidRequestError if status >= 400 else RefusedError  # noqa: PLR2004  # 4xx


def refused_in_band(body: bytes, *, request_id: str | None = None) -> RefusedError:
    """Return the error that *body*, answered under status 200, tells."""
    told = _fields(body)
    code = told.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else None  # noqa: PLR2004  # HTTP
    if status is None:
        status = _STATUS_BY_TYPE.get(str(told.get("type")).lower(), 500)
    return refused_class(status)(status, body, request_id=request_id)


def _fields(body: bytes) -> dict[str, Any]:
    try:
        told: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    # OpenAI nests the fields under "error"; SGLang's own server writes them flat.
    if is_object(told) and "error" in told:
        told = told["error"]
    if isinstance(told, str):
        return {"message": told}
    return told if is_object(told) else {}


def _text(value: object) -> str | None:
    """Return *value* as text; SGLang sends numbers as codes."""
    return None if value is None else str(value)


def _sentence(status: int, body: bytes) -> str:
    shown = body[:200].decode("utf-8", "replace").strip()
    return f"The server answered {status}" + (f": {shown}" if shown else " without a body.")
