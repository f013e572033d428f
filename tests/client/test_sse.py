"""The parser of server-sent events, by itself."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_client.errors import LineTooLongError
from sglr_client.sse import Event, EventParser, LineSplitter

PIECES = st.sampled_from(
    [
        *(
            b"\n",
            b"\r",
            b"\r\n",
            b"data: ",
            b"data:",
            b"data",
            b"event: ",
            b"id: ",
            b"retry: ",
            b":",
        ),
        *(b"a", b"{}", b"12", b" ", b"\xef\xbb\xbf", b"\x0b\x0c\x1c\x85", b"\0"),
        "\u2028é".encode(),
    ]
)
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    """Return *stream* in parts, cut at *places*."""
    ends = sorted({place % (len(stream) + 1) for place in places})
    return [stream[a:b] for a, b in zip([0, *ends], [*ends, len(stream)], strict=True)]


def parsed(*parts: bytes) -> list[Event]:
    """Return the events of a stream that comes in *parts*."""
    parser = EventParser()
    return [event for part in parts for event in parser.feed(part)]


def by_the_book(stream: bytes) -> list[tuple[bytes, str]]:
    """Return data and type of each event, read from the whole stream at once.

    The WHATWG algorithm, told with a regular expression instead of a state machine.
    """
    lines = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))
    events: list[tuple[bytes, str]] = []
    data: list[bytes] = []
    kind = b""
    for line in lines[:-1]:  # what no line end follows is not a line
        field = re.fullmatch(rb"([^:]*)(?:: ?(.*))?", line, re.DOTALL)
        assert field is not None
        if not line:
            if b"\n".join(data):
                events.append((b"\n".join(data), kind.decode("utf-8", "replace") or "message"))
            data, kind = [], b""
        elif field[1] == b"data":
            data.append(field[2] or b"")
        elif field[1] == b"event":
            kind = field[2] or b""
    return events


@given(STREAMS, st.lists(st.integers(0, 400), max_size=12))
def test_parts_do_not_matter(stream: bytes, places: list[int]) -> None:
    """A stream has the same events however it is cut."""
    assert parsed(*cut(stream, places)) == parsed(stream)


@given(STREAMS)
def test_single_bytes_do_not_matter(stream: bytes) -> None:
    """A stream that comes byte by byte has the same events."""
    assert parsed(*(bytes([byte]) for byte in stream)) == parsed(stream)


@given(STREAMS)
def test_events_are_those_of_the_book(stream: bytes) -> None:
    """Data and types are what the WHATWG algorithm gives."""
    assert [(event.data, event.event) for event in parsed(stream)] == by_the_book(stream)


@given(STREAMS, st.lists(st.integers(0, 400), max_size=12))
def test_lines_rejoin_to_the_stream(stream: bytes, places: list[int]) -> None:
    """Each line stands in the stream at the offset that is told."""
    splitter = LineSplitter()
    lines = [line for part in cut(stream, places) for line in splitter.feed(part)]

    assert all(stream[offset : offset + len(line)] == line for offset, line in lines)
    assert [line for _, line in lines] == re.split(rb"\r\n|\n|\r", stream)[:-1]


def test_only_three_line_ends_exist() -> None:
    """Characters at which Python would cut a line stay inside it."""
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"

    (event,) = parsed(f"data: {text}\n\n".encode())

    assert event.data.decode() == text


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_fields_are_read(end: str) -> None:
    """Type and id are told with each event, the offset is where its first line begins."""
    lines = [": ping", "", "event: note", "id: 7", "data:one", "data: two", "", "data: x", "", ""]

    events = parsed(end.join(lines).encode())

    begin = len(": ping") + 2 * len(end)
    second = len(end.join([*lines[:7], ""]))
    assert events == [
        Event(b"one\ntwo", "note", "7", begin),
        Event(b"x", "message", "7", second),
    ]


def test_retry_is_kept() -> None:
    """The reconnection time is told, and gives no event; what is not digits is no time."""
    parser = EventParser()

    assert parser.feed(b"retry: 3000\n\nretry: soon\n\n") == []
    assert parser.retry == 3000


def test_an_unfinished_event_is_none() -> None:
    """What the stream leaves without its blank line is not dispatched."""
    assert parsed(b"data: x\n") == []


def test_an_overlong_line_is_told_with_the_cap() -> None:
    """A line above the cap raises before it is complete, and names the cap."""
    parser = EventParser(cap=10)

    with pytest.raises(LineTooLongError, match="10 bytes"):
        parser.feed(b"data: 12345")


def test_events_before_an_overlong_line_are_not_lost() -> None:
    """What was complete is returned first; the error comes with the next call."""
    parser = EventParser(cap=10)

    assert [event.data for event in parser.feed(b"data: x\n\ndata: 1234567")] == [b"x"]
    with pytest.raises(LineTooLongError):
        parser.feed(b"")


def test_many_lines_do_not_pass_the_cap() -> None:
    """An event's data is bounded too, not only its lines."""
    with pytest.raises(LineTooLongError, match="data"):
        EventParser(cap=20).feed(b"data: 12345\n" * 5)


def test_the_cap_itself_is_allowed() -> None:
    """A line of exactly the cap is read."""
    assert [event.data for event in EventParser(cap=10).feed(b"data: 1234\n\n")] == [b"1234"]
