"""A worker's status becomes the error its cause deserves, and tells no address."""

from __future__ import annotations

import pytest

from sglr_dataplane.engine import statuses
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

CASES: list[tuple[int, str, type[RouterError], int]] = [
    (14, "The request queue is full.", WorkerBusyError, 503),
    (14, "The request is aborted by a higher priority request.", WorkerBusyError, 503),
    (14, "Stream removed (Socket closed)", WorkerLostError, 503),
    (14, "Too many pings", WorkerLostError, 503),
    (14, "Cancelling all calls", WorkerLostError, 503),
    (14, "failed to connect to all addresses; last error: ...", WorkerUnavailableError, 503),
    (14, "DNS resolution failed for llama: Domain name not found", WorkerUnavailableError, 503),
    (8, "Too many requests", WorkerBusyError, 503),
    (8, "SERVER: Received message larger than max (3 vs. 2)", RequestTooLargeError, 413),
    (8, "CLIENT: Sent message larger than max (3 vs. 2)", RequestTooLargeError, 413),
    (8, "CLIENT: Received message larger than max (3 vs. 2)", WorkerError, 502),
    (
        3,
        "Input length (8187 tokens) exceeds the maximum allowed length (8186 tokens).",
        ContextLengthExceededError,
        400,
    ),
    (3, "Failed to compile json_schema grammar: x", WorkerRefusedError, 400),
    (5, "no such adapter", WorkerRefusedError, 400),
    (9, "grammar dead end", WorkerRefusedError, 400),
    (4, "Deadline Exceeded", DeadlineExceededError, 504),
    (13, "Request aborted", WorkerError, 502),
    (13, "Server shutting down", WorkerUnavailableError, 503),
    (12, "Method not found!", WorkerError, 502),
    (1, "CANCELLED", WorkerError, 502),
    (2, "", WorkerError, 502),
    (16, "who are you", WorkerError, 502),
    (99, "from the future", WorkerError, 502),
]


@pytest.mark.parametrize(("code", "details", "expected", "status"), CASES)
def test_each_status_has_its_meaning(
    code: int, details: str, expected: type[RouterError], status: int
) -> None:
    """The class says who is to blame, and carries the HTTP status."""
    error = statuses.error_from_status(code, details)

    assert type(error) is expected
    assert error.status == status


@pytest.mark.parametrize(
    "secret",
    [
        "ipv4:10.1.2.3:30000",
        "10.1.2.3",
        "llama-0.llama.svc:30000",
        "[fd00::1]:30000",
        "fd00::1",
        "http://llama/v1",
        "dns:///llama:30000",
        "(10.1.2.3:30000)",
        "2001:db8:0:1:2:3:4:5",
    ],
)
@pytest.mark.parametrize("code", [3, 5, 8, 9, 13, 14])
def test_no_status_tells_an_address(code: int, secret: str) -> None:
    """What the worker or the transport writes about a machine stays inside."""
    error = statuses.error_from_status(code, f"bad regex at {secret} while compiling")

    assert "10.1.2.3" not in error.message
    assert "llama" not in error.message
    assert "fd00" not in error.message
    assert "2001" not in error.message


def test_a_refusal_says_what_the_worker_says() -> None:
    """The client learns why its request is wrong, in the worker's own words."""
    error = statuses.error_from_status(3, "Failed to compile regex: unbalanced ( at 3")

    assert error.message == (
        "The worker refused the request: Failed to compile regex: unbalanced ( at 3"
    )


def test_a_traceback_is_not_passed_on() -> None:
    """Of several lines the first is told, of a traceback nothing, and never a page of text."""
    lines = statuses.error_from_status(3, "bad stop\nTraceback (most recent call last)")
    traceback = statuses.error_from_status(3, "Traceback (most recent call last):\n  File x")
    page = statuses.error_from_status(3, "x" * 10_000)

    assert "Traceback" not in lines.message
    assert "File" not in traceback.message
    assert len(page.message) < 600
