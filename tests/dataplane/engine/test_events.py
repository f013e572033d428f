"""A worker's events on their way to the client."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_client.sse import EventParser
from sglr_dataplane.engine.events import EventRelay, Expected
from sglr_dataplane.errors import (
    RelayedRefusalError,
    TruncatedStreamError,
    WorkerBusyError,
    WorkerError,
)
from sglr_dataplane.job import Usage

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def said(text: str) -> bytes:
    """Return a chunk with *text*."""
    delta = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return b"data: " + json.dumps(delta, separators=(",", ":")).encode() + b"\n\n"


def relayed(*parts: bytes, expected: Expected = Expected(), cap: int = 2**20) -> bytes:  # noqa: B008  # a frozen value
    """Return what a client gets of a stream that came in *parts* and then ended."""
    relay = EventRelay(expected, cap)
    out = b"".join(relay.feed(part) for part in parts)
    if relay.failure is not None:
        raise relay.failure
    return out + relay.end()


def data_of(stream: bytes) -> list[bytes]:
    """Return the events' data, by the client library's parser."""
    return [event.data for event in EventParser().feed(stream)]


def test_whole_events_pass_byte_for_byte() -> None:
    """What has nothing to be left out is what the worker wrote."""
    stream = ROLE + said("Hel") + said("lo") + END

    assert relayed(stream, DONE) == stream
    assert relayed(ROLE, said("Hel"), said("lo") + END, DONE) == stream


def test_nothing_is_told_before_the_first_content() -> None:
    """A role alone can still be taken back: another worker may be asked."""
    relay = EventRelay(Expected())

    assert relay.feed(ROLE) == b""
    assert not relay.has_content
    assert relay.feed(said("x")) == ROLE + said("x")
    assert relay.has_content


@pytest.mark.parametrize(
    "opening",
    [
        b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":3}}}\n\n',
        b'event: ping\ndata: {"type":"ping"}\n\n',
        b'event: response.created\ndata: {"type":"response.created","response":{}}\n\n',
    ],
)
def test_the_openings_of_named_streams_wait_as_well(opening: bytes) -> None:
    """Messages and Responses begin with events that hold nothing of the answer."""
    relay = EventRelay(Expected(named=True))
    content = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{}}\n\n'

    assert relay.feed(opening) == b""
    assert relay.feed(content) == opening + content


def test_a_named_stream_is_whole_with_its_last_event() -> None:
    """Anthropic's streams have no [DONE]."""
    content = b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n'
    stop = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'

    assert relayed(content, stop, expected=Expected(named=True)) == content + stop
    with pytest.raises(TruncatedStreamError):
        relayed(content, expected=Expected(named=True))


def test_a07_control_records_never_reach_the_client() -> None:
    """A07: retry, ids, comments, empty data and pings go; the rest stays, whatever ends lines."""
    records = [
        b"retry: 3000", b"", b"id: 7", b"", b": ping", b"", b"data:", b"",
        b"event: ping", b'data: {"choices":[{"delta":{"content":"a"}}]}', b"",
        b'data:{"choices":[', b'data: {"delta":{"content":"b"},"finish_reason":"stop"}]}', b"", b"",
    ]  # fmt: skip
    joined = b'{"choices":[\n{"delta":{"content":"b"},"finish_reason":"stop"}]}'
    for end in (b"\n", b"\r\n", b"\r"):
        told = relayed(end.join(records))

        assert data_of(told) == [b'{"choices":[{"delta":{"content":"a"}}]}', joined]
        assert not {b"retry", b"id:", b"event", b": ping"} & set(told.split())
        assert b"\r" not in told


def test_a07_an_error_event_ends_the_stream_with_an_error() -> None:
    """A07: what follows content is an error of the worker, told after what came before it."""
    relay = EventRelay(Expected())
    first = relay.feed(said("a"))
    rest = relay.feed(said("b") + b'event: error\ndata: {"error":{"message":"boom"}}\n\n' + DONE)

    assert first == said("a")
    assert rest == said("b")
    assert isinstance(relay.failure, WorkerError)
    assert str(relay.failure) == "The worker ended the stream with an error: boom"


def test_a_flat_error_is_an_error_too() -> None:
    """Some engines' error frames have no event name and no nesting."""
    with pytest.raises(WorkerError, match="boom"):
        relayed(b'data: {"error":"boom"}\n\n')
    with pytest.raises(RelayedRefusalError) as refusal:
        relayed(b'data: {"error":{"message":"too hot","code":400,"param":"temperature"}}\n\n')
    assert (refusal.value.status, refusal.value.param) == (400, "temperature")
    with pytest.raises(WorkerBusyError):
        relayed(b'data: {"error":{"message":"full","code":503}}\n\n')


def test_text_that_spells_an_error_is_text() -> None:
    """Only a field named error at the top is one."""
    stream = said('{"error": "no"}') + said('"error"') + END

    assert relayed(stream, DONE) == stream


def test_a07_an_end_without_done_needs_every_finish() -> None:
    """A07: a stream that just ends is whole after a finish reason, and truncated before."""
    assert relayed(said("a"), END) == said("a") + END
    with pytest.raises(TruncatedStreamError):
        relayed(said("a"))
    with pytest.raises(TruncatedStreamError):
        relayed(said("a"), END, expected=Expected(finishes=2))
    with pytest.raises(TruncatedStreamError):
        relayed(said("a"), END[:-1], expected=Expected())


@pytest.mark.parametrize("size", [70 * 2**10, 600 * 2**10, 3 * 2**20])
@pytest.mark.parametrize("width", [1, 1024, 65_536])
def test_a06_a_line_of_any_length_below_the_cap_passes(size: int, width: int) -> None:
    """A06: long lines are whole, however they are cut, within a character too."""
    if width == 1:
        size = 70 * 2**10  # a call for each byte: one length says it
    stream = said("é" * (size // 6)) + said("x") + END
    stream = stream.replace(b"\\u00e9", "é".encode())
    parts = [stream[at : at + width] for at in range(0, len(stream), width)]

    assert relayed(*parts, DONE, cap=16 * 2**20) == stream


@pytest.mark.parametrize("parts", [[said("x" * 999)], [said("ok"), said("x" * 999)]])
def test_a06_a_longer_line_is_an_error_that_names_the_cap(parts: list[bytes]) -> None:
    """A06: above the cap the stream ends with an error, on either way through."""
    with pytest.raises(WorkerError, match="longer than the 500 bytes"):
        relayed(*parts, cap=500)


def test_usage_is_read_on_the_way() -> None:
    """The counters are the worker's, wherever they stand; before, each event is a token."""
    relay = EventRelay(Expected())
    relay.feed(ROLE + said("a"))
    relay.feed(said("b") + said("c"))

    assert relay.usage == Usage(completion_tokens=3)
    relay.feed(
        b'data: {"choices":[],"usage": {"prompt_tokens":7,"completion_tokens":5,'
        b'"prompt_tokens_details":{"cached_tokens":4},'
        b'"completion_tokens_details":{"reasoning_tokens":2}}}\n\n'
    )
    assert relay.usage == Usage(7, 5, 4, 2)


def test_usage_of_a_batch_is_that_of_its_last_event() -> None:
    """With continuous usage each event has one; within a read the last counts."""
    relay = EventRelay(Expected())
    relay.feed(said("a"))
    each = b'data: {"choices":[{"delta":{"content":"b"}}],"usage":{"completion_tokens":%d}}\n\n'
    relay.feed(each % 2 + each % 3 + said("c"))

    assert relay.usage.completion_tokens == 3


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
EVENTS = st.one_of(
    TEXTS.map(said),
    st.just(ROLE),
    st.just(END),
    st.sampled_from([b": c\n\n", b"retry: 1\n\n", b"id: 1\n\n", b"data:\n\n", b"event: x\n\n"]),
    TEXTS.map(lambda text: b"event: x\ndata: " + json.dumps(text).encode() + b"\n\n"),
    st.just(b'data: {"a":\ndata: 1}\n\n'),
    st.just(b'data: {"a": 1}\n\n\n\n'),
)


@given(st.lists(EVENTS, max_size=12), st.data())
def test_what_is_relayed_is_what_a_parser_reads(events: list[bytes], data: st.DataObject) -> None:
    """The client's events are the worker's, whatever ends lines and wherever reads are cut."""
    end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    stream = b"".join(events)
    mixed = stream.replace(b"\n", end) if data.draw(st.booleans()) else stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(mixed)), max_size=8)))
    parts = [mixed[a:b] for a, b in zip([0, *cuts], [*cuts, len(mixed)], strict=True)]

    told = relayed(*parts, DONE)

    assert data_of(told) == data_of(mixed)


BITS = st.lists(
    st.sampled_from(
        [
            b"data",
            b"event",
            b"id",
            b":",
            b" ",
            b"\n",
            b"\r",
            b"x",
            b"{",
            b"[DONE]",
            b"\xff",
            b"\x00",
        ]
    ),
    max_size=40,
).map(b"".join)


@given(st.one_of(BITS, st.binary(max_size=100)), st.lists(st.integers(0, 200), max_size=6))
def test_any_bytes_give_the_events_of_the_parser(noise: bytes, cuts: list[int]) -> None:
    """However odd a stream is, the client reads of it what the client library would."""
    stream = noise + b"\n\n" + DONE
    edges = sorted(min(cut, len(stream)) for cut in cuts)
    parts = [stream[a:b] for a, b in zip([0, *edges], [*edges, len(stream)], strict=True)]
    events = data_of(stream)

    assert data_of(relayed(*parts)) == events[: events.index(b"[DONE]")]
