"""What an HTTP worker's status means."""

from __future__ import annotations

import pytest

from sglr_dataplane.engine.http_statuses import error_of_status
from sglr_dataplane.errors import (
    ContextLengthExceededError,
    NotServedError,
    RelayedRefusalError,
    RequestTooLargeError,
    RouterError,
    WorkerBusyError,
    WorkerError,
)


@pytest.mark.parametrize(
    ("status", "body", "kind", "told"),
    [
        (400, b'{"message":"no"}', RelayedRefusalError, 400),
        (409, b"", RelayedRefusalError, 409),
        (499, b"", RelayedRefusalError, 400),  # no status of HTTP's: nginx made it up
        (404, b'{"detail":"Not Found"}', NotServedError, 501),
        (405, b'{"detail":"Method Not Allowed"}', NotServedError, 501),
        (404, b'{"error":{"message":"The model `x` does not exist."}}', RelayedRefusalError, 404),
        (413, b"", RequestTooLargeError, 413),
        (501, b"", NotServedError, 501),
        (500, b'{"message":"secret"}', WorkerError, 500),
        (520, b"", WorkerError, 502),  # no status of HTTP's: a proxy made it up
        (302, b"", WorkerError, 502),
        (401, b"", WorkerError, 502),
        (503, b"", WorkerBusyError, 503),
    ],
)
def test_each_status_is_an_error_of_ours(
    status: int, body: bytes, kind: type[RouterError], told: int
) -> None:
    """By class and by what the client hears; a failing worker's words are nobody's."""
    error = error_of_status(status, (), body)

    assert type(error) is kind
    assert error.status == told
    assert "secret" not in error.message


@pytest.mark.parametrize(
    "sentence",
    [
        "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens.",
        "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        "Requested token count exceeds the model's maximum context length of 8192 tokens.",
        "Input length (9000 tokens) exceeds the maximum allowed length (8191 tokens).",
    ],
)
def test_a_prompt_that_is_too_long_is_known_by_its_sentence(sentence: str) -> None:
    """VLLM's words and SGLang's."""
    error = error_of_status(400, (), b'{"object":"error","message":"%b"}' % sentence.encode())

    assert isinstance(error, ContextLengthExceededError)
    assert error.message == sentence


@pytest.mark.parametrize(
    ("headers", "pause"),
    [
        ([], None),
        ([(b"retry-after", b"3")], 3.0),
        ([(b"retry-after", b"3"), (b"retry-after-ms", b"250")], 0.25),
        ([(b"retry-after", b"Mon, 30 Nov 2026 00:00:00 GMT")], None),
    ],
)
def test_a_busy_worker_says_for_how_long(
    headers: list[tuple[bytes, bytes]], pause: float | None
) -> None:
    """In seconds or milliseconds; a date is no length of time."""
    error = error_of_status(429, headers, b"")

    assert isinstance(error, WorkerBusyError)
    assert error.pause == pause
