"""Runs say what their messages say one by one, or are no runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sglr_dataplane.engine.h2.splitter import Splitter, frame_message
from sglr_dataplane.engine.runs import RunReader, counters
from sglr_dataplane.engine.wire import ChunkReader, pack_varint
from sglr_dataplane.job import Chunk, Run
from sglr_proto.sglang import scheduler_pb2 as pb

NAME = "0123456789abcdef0123456789abcdef"
TOKENS = st.integers(0, 127) | st.integers(0, 200_000) | st.integers(0, 2**21 - 1)


def a_message(token: int, count: int, **fields: Any) -> bytes:
    """Return a worker's message with its prefix: one token, the *count*-th."""
    given: dict[str, Any] = {"prompt_tokens": 500, **fields}
    chunk = pb.GenerateStreamChunk(token_ids=[token], completion_tokens=count, **given)
    message = pb.GenerateResponse(request_id=NAME, chunk=chunk)
    return frame_message(message.SerializeToString())


def a_reader(**fields: int) -> tuple[ChunkReader, RunReader]:
    """Return readers that know the shape of messages with *fields*."""
    chunks = ChunkReader(NAME)
    assert chunks.read(a_message(7, 1, **fields)[5:]) is not None
    return chunks, RunReader(chunks)


def one_by_one(data: bytes) -> list[Chunk]:
    """Return what the reader of single messages, which knows the shape, makes of *data*."""
    reader, _ = a_reader()
    read = [reader.read(message) for message in Splitter(1 << 20).split([data])]
    return [Chunk(*plain) for plain in read if plain is not None]


@given(before=st.integers(0, 300_000), count=st.integers(0, 3_000))
@example(before=1022, count=3)
@example(before=0, count=1023)
@example(before=0, count=1024)
def test_counters_are_the_varints_of_the_next_numbers(before: int, count: int) -> None:
    """In order and without a gap, over every border."""
    expected = [pack_varint(before + at) for at in range(1, count + 1)]

    assert list(counters(before, count)) == expected


@given(
    tokens=st.lists(TOKENS, min_size=1, max_size=40),
    counted=st.integers(1, 100) | st.integers(125, 130) | st.integers(16_380, 16_390),
    cached=st.sampled_from([0, 5, 300]),
)
def test_a_run_says_what_its_messages_say(tokens: list[int], counted: int, cached: int) -> None:
    """Up to where the counter grows wider; the rest is a run the next time."""
    _, reader = a_reader(cached_tokens=cached)
    messages = [a_message(t, counted + at, cached_tokens=cached) for at, t in enumerate(tokens, 1)]
    data = b"".join(messages)
    found: list[Chunk] = []
    while data:
        answer = reader.read(data, counted + len(found))
        assert answer is not None
        run, size = answer
        assert size > 0
        found += run.chunks()
        data = data[size:]

    assert [chunk.token_ids for chunk in found] == [(token,) for token in tokens]
    assert [chunk.usage.completion_tokens for chunk in found] == [
        counted + at for at in range(1, len(tokens) + 1)
    ]
    assert {(c.usage.prompt_tokens, c.usage.cached_tokens, c.index) for c in found} == {
        (500, cached, 0)
    }


@given(
    tokens=st.lists(TOKENS, min_size=1, max_size=4),
    at=st.integers(0, 300),
    value=st.integers(0, 255),
    tail=st.binary(max_size=8),
)
def test_damaged_bytes_are_no_run_or_what_they_say(
    tokens: list[int], at: int, value: int, tail: bytes
) -> None:
    """Whatever byte is another: what is read as a run is what the messages say one by one."""
    _, reader = a_reader()
    data = bytearray(b"".join(a_message(t, 1 + n) for n, t in enumerate(tokens, 1)))
    data[at % len(data)] = value

    answer = reader.read(bytes(data) + tail, 1)
    if answer is not None:
        run, size = answer
        assert one_by_one(bytes(data[:size])) == run.chunks()


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("nothing", b""),
        ("half a message", a_message(5, 2)[:-1]),
        ("half a prefix", a_message(5, 2)[:3]),
        ("a counter that jumps", a_message(5, 3)),
        ("a counter that stays", a_message(5, 1)),
        ("another choice", a_message(5, 2, index=1)),
        ("another prompt", a_message(5, 2, prompt_tokens=501)),
        ("another job", a_message(5, 2).replace(b"0123", b"3210")),
        ("a jump among others", a_message(5, 2) + a_message(6, 4)),
        ("a varint without an end", a_message(300, 2).replace(b"\xac\x02", b"\xac\x82")),
        ("compressed", b"\1" + a_message(5, 2)[1:]),
    ],
)
def test_what_is_not_surely_a_run_is_left_to_others(what: str, data: bytes) -> None:
    """None, and no error."""
    _, reader = a_reader()

    assert reader.read(data, 1) is None, what


def test_a_run_ends_before_what_is_none() -> None:
    """The last message of an answer comes with the tokens before it, when it comes fast."""
    _, reader = a_reader()
    end = pb.GenerateResponse(
        request_id=NAME, complete=pb.GenerateComplete(finish_reason="stop", completion_tokens=3)
    )
    tokens = a_message(5, 2) + a_message(70_000, 3)

    answer = reader.read(tokens + frame_message(end.SerializeToString()), 1)

    assert answer is not None
    run, size = answer
    assert (run.token_ids, run.usage.completion_tokens, size) == ([5, 70_000], 3, len(tokens))


def test_nothing_is_a_run_before_a_shape_is_known() -> None:
    """The first message is for the stubs."""
    reader = RunReader(ChunkReader(NAME))

    assert reader.read(a_message(5, 1), 0) is None


def test_other_choices_have_no_runs() -> None:
    """A run is of the one choice of its job."""
    _, reader = a_reader(index=1)

    assert reader.read(a_message(5, 2, index=1), 1) is None


def test_a_shape_may_change() -> None:
    """A worker that begins to count cached tokens is read on, once a chunk told so."""
    chunks, reader = a_reader()
    changed = a_message(5, 2, cached_tokens=9)
    assert reader.read(changed, 1) is None
    assert chunks.read(changed[5:]) is not None

    answer = reader.read(a_message(6, 3, cached_tokens=9), 2)

    assert answer is not None
    assert answer[0] == Run([6], chunks.usage(3))
    assert answer[0].usage.cached_tokens == 9
