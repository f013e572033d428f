"""What a worker's gRPC status means to the one who asked, by code and text.

Codes are numbers here, so that no transport is needed to know them. The text is read because one
code says different things: UNAVAILABLE is a full queue or a dead process, INVALID_ARGUMENT a prompt
that is too long or a grammar that does not compile.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Final

from sglr_dataplane.errors import (
    ContextLengthExceededError,
    DeadlineExceededError,
    RequestTooLargeError,
    RouterError,
    WorkerBusyError,
    WorkerError,
    WorkerLostError,
    WorkerRefusedError,
    WorkerUnavailableError,
)

OK: Final = 0
CANCELLED: Final = 1
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14

_PAUSES: Final = {"retry-after-ms": 1000, "grpc-retry-pushback-ms": 1000, "retry-after": 1}
"""Fields by which a worker asks for a pause, and how many of their units are a second. The second is
gRPC's own (gRFC A6): negative forbids to ask that server again, which nobody does anyway."""

_NAMES: Final = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)

# sglang: "Input length (N tokens) exceeds the maximum allowed length (M tokens)", "The input (N
# tokens) is longer than the model's context length", "Requested token count exceeds …".
_TOO_LONG: Final = re.compile(
    r"input length .* exceeds|longer than the model's context|token count exceeds|"
    r"maximum (allowed|context|input) length",
    re.IGNORECASE | re.DOTALL,
)
# sglang's scheduler answers 503 when --max-queued-requests is reached, and when a request of higher
# priority takes a queued one's place.
_BUSY: Final = re.compile(r"queue is full|higher priority request", re.IGNORECASE)
# grpcio's words for a call that no connection was found for: the worker has not seen the job.
_NEVER_SENT: Final = re.compile(
    r"failed to connect|connection refused|name resolution|dns resolution|no route to host",
    re.IGNORECASE,
)
_OVERSIZED: Final = re.compile(r"message larger than max", re.IGNORECASE)
_SHUTTING_DOWN: Final = re.compile(r"server shutting down", re.IGNORECASE)

# What names a machine or a place on it, wherever it stands: a target with its scheme, a host with
# its port, a name inside the cluster, an IPv4 or IPv6 address, the path of a file.
_HOST: Final = r"(?=[\w.-]*[a-z])[a-z0-9_](?:[\w-]|\.(?=\w))*"
_ADDRESS: Final = re.compile(
    r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>()\[\]{},;]*"
    r"|\b(?:ipv4|ipv6|unix|dns|tcp|https?|grpcs?):[^\s\"'<>(){},;]+"
    rf"|\b{_HOST}:\d{{2,5}}\b"
    r"|\b(?:[\w-]+\.)+(?:svc|local|internal|localdomain|cluster)\b(?:\.[\w-]+)*"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d+)?"
    r"|(?<![\w:])(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?![\w:])"
    r"|(?<![\w:])(?=[0-9a-f:]*[0-9a-f])(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4})*)?::(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4})*)?"
    r"(?:%\w+)?(?![\w:])"
    r"|(?<![\w/.<])~?/(?:[\w.@+~-]+/)+[\w.@+~-]*|\b[a-z]:\\[^\s\"']+",
    re.IGNORECASE,
)
# What stands next to a key, or begins one.
_CREDENTIAL: Final = re.compile(
    r"authorization|\bbearer\b|api[-_ ]?key|\bsk-\w|\bcookie|password", re.IGNORECASE
)
_LONGEST_SENTENCE: Final = 500


def name_of(code: int) -> str:
    """Return the status's name, such as ``UNAVAILABLE``."""
    return _NAMES[code] if 0 <= code < len(_NAMES) else f"status {code}"


def error_from_status(
    code: int, details: str, trailers: Iterable[tuple[str | bytes, str | bytes]] = ()
) -> RouterError:
    """Return the error that a call's status other than OK is.

    Args:
        code: The gRPC status code.
        details: The status message, by the worker or by the transport.
        trailers: The call's last fields, names in lower case: a busy worker may say there how
            long it wants to be left alone.

    Returns:
        WorkerBusyError for back-pressure, WorkerRefusedError or one of its siblings when the job
        is to blame, WorkerUnavailableError when it never reached the worker, WorkerLostError when
        the connection went away under it, DeadlineExceededError, else WorkerError.
    """
    meaning = _MEANINGS.get(code)
    if meaning is None:
        return WorkerError(f"The worker answered with an error ({name_of(code)}).")
    error = meaning(details)
    if isinstance(error, WorkerBusyError):
        error.pause = asked_pause(trailers)
    return error


def asked_pause(fields: Iterable[tuple[str | bytes, str | bytes]]) -> float | None:
    """Return for how many seconds *fields* ask to be left alone; None when they do not say.

    Args:
        fields: Headers or trailers, names in lower case. The sharpest name wins; a value that is
            no positive number, such as a date, says nothing: a worker's clock is not ours.
    """
    found = {_text(name): _text(value) for name, value in fields if _text(name) in _PAUSES}
    for name, units in _PAUSES.items():
        try:
            seconds = float(found.get(name, "")) / units
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds > 0:
            return seconds
    return None


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _unavailable(details: str) -> RouterError:
    if _BUSY.search(details):
        return WorkerBusyError("The worker's queue is full.")
    if _NEVER_SENT.search(details):
        return WorkerUnavailableError("The worker cannot be reached.")
    return WorkerLostError("The worker went away before its answer was complete.")


def _exhausted(details: str) -> RouterError:
    if not _OVERSIZED.search(details):
        return WorkerBusyError("The worker has no room for another request now.")
    if details.startswith("CLIENT: Received"):
        return WorkerError("The worker's answer is larger than the router reads.")
    return RequestTooLargeError("The request is larger than the worker reads.")


def _refused(details: str) -> RouterError:
    sentence = without_addresses(details)
    if _TOO_LONG.search(details):
        return ContextLengthExceededError(
            sentence or "The prompt is longer than the model's context.", param="messages"
        )
    return WorkerRefusedError(
        f"The worker refused the request: {sentence}"
        if sentence
        else "The worker refused the request without saying why."
    )


def _dead_end(_details: str) -> RouterError:
    # smg-grpc-servicer: the grammar has no next token; the same job would fail elsewhere, too.
    return WorkerRefusedError("The worker cannot satisfy the grammar the request asks for.")


def _too_late(_details: str) -> RouterError:
    return DeadlineExceededError("The worker gave the request up because its time was over.")


def _foreign(_details: str) -> RouterError:
    return WorkerError("The worker does not serve the SGLang scheduler's gRPC contract.")


def _internal(details: str) -> RouterError:
    if _SHUTTING_DOWN.search(details):
        return WorkerUnavailableError("The worker is shutting down.")
    return WorkerError("The worker answered with an error (INTERNAL).")


def without_addresses(details: str) -> str:
    """Return the first line of a worker's text, without anything that names a machine."""
    lines = details.strip().splitlines()
    if not lines or lines[0].startswith("Traceback"):
        return ""
    line = lines[0]
    if _CREDENTIAL.search(line):
        return ""  # an echo of headers: what else is in it cannot be told apart
    if len(line) > _LONGEST_SENTENCE:
        # At a blank, lest half an address is left; and first, for the search takes squared time.
        line = line[:_LONGEST_SENTENCE].rpartition(" ")[0] + " …"
    return " ".join(_ADDRESS.sub("(address)", line).split())


_MEANINGS: Final[dict[int, Callable[[str], RouterError]]] = {
    INVALID_ARGUMENT: _refused,
    DEADLINE_EXCEEDED: _too_late,
    NOT_FOUND: _refused,
    RESOURCE_EXHAUSTED: _exhausted,
    FAILED_PRECONDITION: _dead_end,
    UNIMPLEMENTED: _foreign,
    INTERNAL: _internal,
    UNAVAILABLE: _unavailable,
}
