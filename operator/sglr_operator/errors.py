"""Everything the operator can fail with.

``str(error)`` is one full sentence for the person who runs the operator or wrote the backend: it
names the offending value and what was expected, never a key or a token.
"""

from __future__ import annotations


class OperatorError(Exception):
    """The operator cannot do what it was asked for."""


class ConfigError(OperatorError):
    """A command-line flag or a combination of them makes no sense."""


class InvalidSpecError(OperatorError):
    """A SGLangBackend says something this operator refuses.

    ``path`` names the field from the object's root, such as ``spec.workers.service.name``.
    """

    def __init__(self, path: str, message: str) -> None:
        """Keep *path* apart, so that conditions and the command line can show it alike."""
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


class KubeError(OperatorError):
    """The API server did not do what it was asked for."""


class UnreachableError(KubeError):
    """The API server did not answer: refused, reset, timed out or cut mid-answer."""


class StatusError(KubeError):
    """The API server answered with a status that is no success.

    ``retry_after`` is what the server asked for, in seconds; None when it asked for nothing.
    """

    def __init__(
        self, code: int, reason: str, message: str, *, retry_after: float | None = None
    ) -> None:
        """Keep the parts of the server's ``Status`` object that decide what happens next."""
        super().__init__(f"The API server answered {code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.retry_after = retry_after


class ForbiddenError(StatusError):
    """401 or 403: the service account lacks a permission, or its token was refused."""


class NotFoundError(StatusError):
    """404: no such object, or no such resource."""


class ConflictError(StatusError):
    """409: the object changed in between, exists already, or a field is owned by another."""


class ExpiredError(StatusError):
    """410, or 504 "Too large resource version": the version asked for cannot be served."""


class BusyError(StatusError):
    """429, 500, 502, 503 or 504: asking again later makes sense."""


def status_error(
    code: int, reason: str, message: str, *, retry_after: float | None = None
) -> StatusError:
    """Return the error class that says what an answer of *code* means for the caller."""
    kinds: dict[int, type[StatusError]] = {
        401: ForbiddenError,
        403: ForbiddenError,
        404: NotFoundError,
        409: ConflictError,
        410: ExpiredError,
        429: BusyError,
    }
    # kube-apiserver answers a version from its future with 504 and this very sentence.
    if code == 504 and "Too large resource version" in message:  # noqa: PLR2004  # HTTP's number
        kind: type[StatusError] = ExpiredError
    elif code >= 500:  # noqa: PLR2004  # HTTP's number
        kind = BusyError
    else:
        kind = kinds.get(code, StatusError)
    return kind(code, reason, message, retry_after=retry_after)
