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
    "echo",
    ["authorization: x y", "Bearer abc", "x-api-key=abc", "bad sk-abc123", "Cookie: a=b"],
)
@pytest.mark.parametrize("code", [3, 5, 9])
def test_a42_no_status_tells_what_stands_next_to_a_key(code: int, echo: str) -> None:
    """A worker that echoes headers is not quoted at all."""
    error = statuses.error_from_status(code, f"wrong: {echo} PROMPT-MARKER")

    assert "PROMPT-MARKER" not in error.message
    assert echo not in error.message


@pytest.mark.parametrize(
    ("trailers", "pause"),
    [
        ((("retry-after", "3"),), 3.0),
        (((b"retry-after", b"0.25"),), 0.25),
        ((("retry-after", "3"), ("retry-after-ms", "700")), 0.7),
        (((b"grpc-retry-pushback-ms", b"1500"),), 1.5),
        ((("grpc-retry-pushback-ms", "-1"), ("retry-after", "2")), 2.0),
        ((("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"),), None),
        ((("retry-after", "inf"),), None),
        ((("retry-after", "0"),), None),
        ((), None),
    ],
)
def test_a_busy_worker_says_for_how_long(
    trailers: tuple[tuple[str | bytes, str | bytes], ...], pause: float | None
) -> None:
    """By any of three names, in seconds; what is no positive number says nothing."""
    error = statuses.error_from_status(8, "no room", trailers)

    assert isinstance(error, WorkerBusyError)
    assert error.pause == pause


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


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("at worker-0.sgl.svc.cluster.local and", "at (address) and"),
        ("at worker-0.sgl.svc, then", "at (address), then"),
        ("on node.local.", "on (address)."),
        ("[worker-0:30000] no", "[(address)] no"),
        ("url=http://w-0.svc:3000/x no", "url=(address) no"),
        ("target=ipv4:10.1.2.3:30000;", "target=(address);"),
        ("peer=10.1.2.3:30000", "peer=(address)"),
        ("host='10.1.2.3'", "host='(address)'"),
        ("from [fd00::1]:30000", "from [(address)]:30000"),
        ("ip=2001:db8:0:1:2:3:4:5", "ip=(address)"),
        ("ip=::1", "ip=(address)"),
        ('File "/usr/lib/python3/foo.py" line 3', 'File "(address)" line 3'),
        ("path=/home/user/.cache/model", "path=(address)"),
        ("(/models/qwen/config.json)", "((address))"),
    ],
)
def test_addresses_and_paths_are_left_out_wherever_they_stand(said: str, told: str) -> None:
    """In brackets, quotes and key=value too, and the rest of the sentence stays."""
    error = statuses.error_from_status(3, f"bad {said}")

    assert error.message == f"The worker refused the request: bad {told}"


@pytest.mark.parametrize(
    "said",
    [
        "Input 12 of 30: temperature must be in [0, 2], got 2.5",
        "regex: unbalanced ( at 3, and/or a wrong x::y",
        "line 3 column 14: unexpected 'x' in root ::= a | b",
        "the token </think> or <tool_call/> is not allowed; v1.2.3 only",
        "ratio 1/2, time 12:30",
    ],
)
def test_what_names_no_machine_is_told_as_it_is(said: str) -> None:
    """Times, ratios, versions, tags and grammars are no addresses."""
    assert statuses.error_from_status(5, said).message.endswith(said)


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
    page = statuses.error_from_status(3, "x.y-" * 25_000 + " 10.1.2.3" * 100)

    assert "Traceback" not in lines.message
    assert "File" not in traceback.message
    assert len(page.message) < 600
