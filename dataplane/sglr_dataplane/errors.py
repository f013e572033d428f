"""Everything a request can fail with.

Each class carries what a client is told: HTTP status, OpenAI error type and code. Only
:mod:`sglr_dataplane.api.faults` turns them into bytes. ``str(error)`` is a sentence a client may
read: it never holds an address, a key or a traceback.
"""

from __future__ import annotations

from typing import ClassVar


class RouterError(Exception):
    """Something went wrong that a client must hear about."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str | None] = "internal_error"

    def __init__(
        self, message: str, *, param: str | None = None, retry_after: int | None = None
    ) -> None:
        """Keep what the client is told.

        Args:
            message: A full sentence: what was wrong and what was expected.
            param: The request field it is about, as a path such as ``messages[0].role``.
            retry_after: Seconds until trying again makes sense; at least 1.
        """
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after


class InvalidRequestError(RouterError):
    """The request itself is wrong; sending it again cannot help."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_value"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        """Keep *message*; *code* replaces the class's code where OpenAI has a sharper one."""
        super().__init__(message, param=param)
        if code is not None:
            self.code = code  # type: ignore[misc]  # one instance may be sharper than its class


class InvalidJsonError(InvalidRequestError):
    """The body is not JSON."""

    code = "invalid_json"


class TemplateRefusalError(InvalidRequestError):
    """The model's chat template does not accept these messages."""

    code = "invalid_value"


class ContextLengthExceededError(InvalidRequestError):
    """Prompt, or prompt and completion, do not fit the model's context."""

    code = "context_length_exceeded"


class WorkerRefusedError(InvalidRequestError):
    """The worker says that the request is invalid; another worker would say the same."""

    code = "invalid_request"


class RelayedRefusalError(WorkerRefusedError):
    """A worker of the client's own protocol refused the request, in its own words and status."""

    def __init__(
        self, message: str, *, status: int, param: str | None = None, code: str | None = None
    ) -> None:
        """Keep *message* and what the worker gave as *status*, *param* and *code*."""
        super().__init__(message, param=param, code=code)
        self.status = status  # type: ignore[misc]  # one instance may be sharper than its class


class UnknownModelError(RouterError):
    """No backend serves the named model."""

    status = 404
    type = "invalid_request_error"
    code = "model_not_found"


class InvalidKeyError(RouterError):
    """The request came without a key, or with one that nobody has."""

    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"


class UnknownUrlError(RouterError):
    """No such path."""

    status = 404
    type = "invalid_request_error"
    code = "unknown_url"


class MethodNotAllowedError(RouterError):
    """The path exists, the method does not."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class RequestTooLargeError(RouterError):
    """The body is larger than this router reads."""

    status = 413
    type = "invalid_request_error"
    code = "request_too_large"


class HeadersTooLargeError(RouterError):
    """The headers are larger than this router reads."""

    status = 431
    type = "invalid_request_error"
    code = "headers_too_large"


class BodyTimeoutError(RouterError):
    """The client began a body and sent no more of it."""

    status = 408
    type = "invalid_request_error"
    code = "body_timeout"


class HeadTimeoutError(RouterError):
    """The client began a request and did not end its headers."""

    status = 408
    type = "invalid_request_error"
    code = "headers_timeout"


class UnsupportedMediaTypeError(RouterError):
    """The body is of a content type, or in an encoding, that is not read here."""

    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"


class NotServedError(RouterError):
    """The path is known, but nothing here serves it."""

    status = 501
    type = "invalid_request_error"
    code = "not_served"


class WorkerError(RouterError):
    """A worker answered with an error, or with something that is no answer."""

    status = 502
    type = "server_error"
    code = "worker_error"


class TruncatedStreamError(WorkerError):
    """A worker's stream ended before it said how the generation finished."""

    code = "truncated_stream"


class NoAvailableWorkersError(RouterError):
    """No worker of the backend can take the request now."""

    status = 503
    type = "service_unavailable"
    code = "no_available_workers"
    may_go_elsewhere: bool = False
    """Whether workers of another backend may be asked: no worker went away under the request."""

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        """Keep *message*; tell the client to come back after *retry_after* seconds."""
        super().__init__(message, retry_after=retry_after)


class WorkerUnavailableError(NoAvailableWorkersError):
    """The worker cannot be reached, or went away before its answer was complete."""

    code = "worker_unavailable"


class WorkerLostError(WorkerUnavailableError):
    """The connection went away under a job the worker had: the job may be what ended it."""


class WorkerBusyError(NoAvailableWorkersError):
    """The worker is up but its queue is full: back-pressure, not a failure."""

    code = "worker_busy"

    def __init__(self, message: str, *, retry_after: int = 1, pause: float | None = None) -> None:
        """Keep *message*; *pause* is how many seconds the worker asks to be left alone, if it does."""
        super().__init__(message, retry_after=retry_after)
        self.pause = pause


class TooManyRequestsError(RouterError):
    """More was asked than is allowed, or than fits; later it may be well."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        """Keep *message*; tell the client to come back after *retry_after* seconds."""
        super().__init__(message, retry_after=retry_after)


class QueueFullError(TooManyRequestsError):
    """As many requests wait as may."""

    code = "queue_full"


class QueueTimeoutError(TooManyRequestsError):
    """The request waited for a place as long as it may."""

    code = "queue_timeout"

    def __init__(self, message: str, *, retry_after: int = 1, nobody: bool = False) -> None:
        """Keep *message*; with *nobody* it is 503: there was no worker to wait for."""
        super().__init__(message, retry_after=retry_after)
        if nobody:
            self.status = 503  # type: ignore[misc]  # one instance may be sharper than its class
            self.type = "service_unavailable"  # type: ignore[misc]  # same
            self.code = "no_available_workers"  # type: ignore[misc]  # same


class RouterDrainingError(NoAvailableWorkersError):
    """This router is about to end; another one, or the one that follows it, can take the request."""

    code = "router_draining"


class TokenizerUnavailableError(NoAvailableWorkersError):
    """The backend is known, but its tokenizer is not loaded (yet)."""

    code = "tokenizer_unavailable"


class DeadlineExceededError(RouterError):
    """The worker did not answer within the time the router gives it."""

    status = 504
    type = "timeout"
    code = "request_timeout"
