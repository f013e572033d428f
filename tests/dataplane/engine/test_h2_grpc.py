"""gRPC on top of HTTP/2: messages, statuses, timeouts."""

from __future__ import annotations

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.engine.channel import format_timeout
from sglr_dataplane.engine.h2.errors import (
    BrokenConnectionError,
    BrokenStreamError,
    CancelledStreamError,
    H2Error,
    LostConnectionError,
    ResetStreamError,
    UnprocessedStreamError,
)
from sglr_dataplane.engine.h2.headers import Fields, pack_fields
from sglr_dataplane.engine.h2.splitter import Splitter, frame_message
from sglr_dataplane.engine.h2.status import error_of_failure, read_end, refusal_of, speaks_grpc
from sglr_dataplane.engine.h2.stream import Stream
from support.h2peer import message

HEAD: Fields = ((b":status", b"200"), (b"content-type", b"application/grpc"))


def an_answer(*trailers: tuple[bytes, bytes], head: Fields | None = HEAD) -> Stream:
    """Return a stream whose whole answer arrived."""
    stream = Stream(1, room=0, send_window=0)
    stream.head, stream.trailers, stream.ended = head, trailers, True
    return stream


@given(st.lists(st.binary(max_size=400), max_size=12), st.lists(st.integers(1, 90), max_size=80))
def test_messages_are_whole_however_frames_hold_them(
    contents: list[bytes], cuts: list[int]
) -> None:
    """Split over frames or several in one, the messages are the same."""
    data = b"".join(message(content) for content in contents)
    splitter, got = Splitter(1_000), []
    for size in [*cuts, len(data)]:
        if data[:size]:
            got += splitter.split([data[:size]])
        data = data[size:]

    assert got == contents
    assert not splitter.rest
    assert splitter.error is None


def test_a_message_has_a_prefix() -> None:
    """Not compressed, and the length in four bytes."""
    assert frame_message(b"abc") == b"\0\0\0\0\x03abc"


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        (message(b"zip", flag=1), grpc.StatusCode.INTERNAL, "compressed, though"),
        (message(b"odd", flag=2), grpc.StatusCode.INTERNAL, "compressed flag 2"),
        (message(bytes(101)), grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max (101 vs. 100)"),
        (b"\0\xff\xff\xff\xff", grpc.StatusCode.RESOURCE_EXHAUSTED, "4294967295"),
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_a_message_that_is_not_read_says_why(
    bad: bytes, code: grpc.StatusCode, words: str, *, alone: bool
) -> None:
    """What came before it is delivered, what comes after it is not."""
    splitter = Splitter(100)
    good = message(b"good")

    got = splitter.split([good, bad, good] if alone else [good + bad + good])

    assert got == [b"good"]
    assert splitter.error is not None
    assert (splitter.error.code, words in splitter.error.details) == (code.value[0], True)
    assert splitter.split([good]) == []


def test_a_message_at_the_limit_is_read() -> None:
    """The limit is the largest message, alone in its frame or not."""
    largest = message(bytes(100))

    assert Splitter(100).split([largest]) == [bytes(100)]
    assert Splitter(100).split([largest[:50], largest[50:]]) == [bytes(100)]


def test_an_answer_that_ends_within_a_message_is_known() -> None:
    """A splitter knows that it waits for more."""
    splitter = Splitter(100)

    assert splitter.split([message(b"abc")[:-1]]) == []
    assert splitter.rest


@pytest.mark.parametrize(
    ("trailers", "code", "details"),
    [
        ([(b"grpc-status", b"3")], 3, ""),
        ([(b"grpc-status", b"14"), (b"grpc-message", b"queue is full")], 14, "queue is full"),
        ([(b"grpc-status", b"5"), (b"grpc-message", b"caf%C3%A9 %25")], 5, "café %"),
        ([(b"grpc-status", b"5"), (b"grpc-message", b"100%, %zz %4")], 5, "100%, %zz %4"),
        ([(b"grpc-status", b"5"), (b"grpc-message", b"%FF")], 5, "\ufffd"),
        ([(b"grpc-status", b"77")], 77, ""),
        ([(b"grpc-status", b"-1")], 2, "Field grpc-status is b'-1'. "),
        ([(b"grpc-status", b"")], 2, "Field grpc-status is b''. "),
        ([(b"grpc-status", b"1" * 5_000)], 2, "Field grpc-status is"),
        ([(b"other", b"1")], 2, "The answer ended without a gRPC status."),
        ([], 2, "The answer ended without a gRPC status."),
    ],
)
def test_trailers_say_the_status(
    trailers: list[tuple[bytes, bytes]], code: int, details: str
) -> None:
    """grpc-status is a number, grpc-message is percent-encoded, broken encoding is kept."""
    error = read_end(an_answer(*trailers))

    assert error is not None
    assert error.code == code
    assert error.details.startswith(details)
    assert error.sent


def test_status_zero_is_no_error() -> None:
    """Whatever else the trailers hold."""
    assert read_end(an_answer((b"grpc-status", b"0"), (b"grpc-message", b"fine"))) is None


def test_a_status_keeps_its_trailers() -> None:
    """A worker's further trailers, such as smg-constraint-failed, are not lost."""
    error = read_end(an_answer((b"grpc-status", b"9"), (b"smg-constraint-failed", b"engine")))

    assert error is not None
    assert dict(error.trailers)[b"smg-constraint-failed"] == b"engine"


HTTP = {
    b"400": "INTERNAL",
    b"401": "UNAUTHENTICATED",
    b"403": "PERMISSION_DENIED",
    b"404": "UNIMPLEMENTED",
    b"429": "UNAVAILABLE",
    b"502": "UNAVAILABLE",
    b"503": "UNAVAILABLE",
    b"504": "UNAVAILABLE",
    b"500": "UNKNOWN",
    b"301": "UNKNOWN",
    b"204": "UNKNOWN",
}


@pytest.mark.parametrize("status", HTTP)
def test_an_http_status_becomes_grpcs(status: bytes) -> None:
    """By the table of gRPC's specification."""
    head = ((b":status", status), (b"content-type", b"text/html"))
    expected = grpc.StatusCode[HTTP[status]].value[0]
    refusal = refusal_of(head)
    ended = read_end(an_answer(head=head))

    assert not speaks_grpc(head)
    assert ended is not None
    assert refusal.code == ended.code == expected
    assert status.decode() in refusal.details


def test_a_grpc_status_counts_more_than_http_s() -> None:
    """A proxy's 503 with grpc-status says both; gRPC's is the sharper one."""
    head = ((b":status", b"503"), (b"grpc-status", b"8"))

    error = read_end(an_answer(*head, head=head))

    assert error is not None
    assert error.code == 8


@pytest.mark.parametrize(
    "kind", [b"application/grpc", b"application/grpc+proto", b"Application/gRPC"]
)
def test_grpc_content_types_are_accepted(kind: bytes) -> None:
    """With or without the message format's name."""
    assert speaks_grpc(((b":status", b"200"), (b"content-type", kind)))


@pytest.mark.parametrize("kind", [b"", b"text/html", b"application/json"])
def test_other_content_types_are_refused(kind: bytes) -> None:
    """A body that is no gRPC is never read as messages."""
    head = ((b":status", b"200"), (b"content-type", kind))
    error = refusal_of(head)

    assert not speaks_grpc(head)
    assert error.code == grpc.StatusCode.UNKNOWN.value[0]


FAILURES: list[tuple[H2Error, str, bool]] = [
    (UnprocessedStreamError(7, "The peer refused the stream."), "UNAVAILABLE", False),
    (LostConnectionError("The connection broke."), "UNAVAILABLE", True),
    (CancelledStreamError(), "CANCELLED", True),
    (BrokenConnectionError(1, "A rule."), "INTERNAL", True),
    (BrokenStreamError(1, "A rule."), "INTERNAL", True),
    (ResetStreamError(0, "x"), "INTERNAL", True),
    (ResetStreamError(2, "x"), "INTERNAL", True),
    (ResetStreamError(7, "x"), "UNAVAILABLE", True),
    (ResetStreamError(8, "x"), "CANCELLED", True),
    (ResetStreamError(11, "x"), "RESOURCE_EXHAUSTED", True),
    (ResetStreamError(12, "x"), "PERMISSION_DENIED", True),
    (ResetStreamError(4711, "x"), "INTERNAL", True),
]


@pytest.mark.parametrize(("failure", "status", "sent"), FAILURES, ids=str)
def test_a_failed_stream_has_a_status(failure: H2Error, status: str, *, sent: bool) -> None:
    """By gRPC's table of HTTP/2 error codes; only a promise counts as not sent."""
    error = error_of_failure(failure)

    assert error.code == grpc.StatusCode[status].value[0]
    assert error.sent is sent
    stream = Stream(1, room=0, send_window=0)
    stream.failure = failure
    ended = read_end(stream)
    assert ended is not None
    assert ended.code == error.code


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, b"1m"),
        (0.25, b"250m"),
        (1800.0, b"1800000m"),
        (99_999.999, b"99999999m"),
        (200_000.0, b"200000S"),
        (1e12, b"99999999S"),
    ],
)
def test_a_timeout_has_at_most_eight_digits(seconds: float, expected: bytes) -> None:
    """Milliseconds as long as they fit."""
    assert format_timeout(seconds) == expected


def test_secret_fields_are_never_indexed() -> None:
    """RFC 7541, 7.1.3: the literal form tells every hop to keep a key out of its tables."""
    assert pack_fields([(b"k", b"v")]) == b"\x00\x01k\x01v"
    assert pack_fields([(b"k", b"v")], secret=True) == b"\x10\x01k\x01v"
    assert pack_fields([(b"k", b"v" * 300)])[3:6] == b"\x7f\xad\x01"
