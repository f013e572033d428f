"""From a stream's bytes to chunks: content, errors, ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_client.errors import (
    InvalidChunkError,
    InvalidRequestError,
    OverloadedError,
    RateLimitedError,
    ServerError,
    TruncatedStreamError,
)
from sglr_client.reading import ChunkReader
from sglr_client.results import ChatChunk

DONE = b"data: [DONE]\n\n"


def chunk(index: int = 0, finish_reason: str | None = None, **delta: Any) -> bytes:
    """Return a chunk's frame."""
    choice = {"index": index, "delta": delta, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


ROLE = chunk(role="assistant", content="")
STOP = chunk(finish_reason="stop")


def reader(**changes: Any) -> ChunkReader:
    """Return a reader of one chat."""
    return ChunkReader(ChatChunk, **{"choices": 1, "cap": 1000, **changes})


def read(given: ChunkReader, *parts: bytes) -> list[Any]:
    """Return all chunks of a stream that ends after *parts*."""
    chunks = [item for part in parts for item in given.feed(part)]
    return chunks if given.done else [*chunks, *given.end()]


def texts(chunks: list[Any]) -> list[str]:
    """Return the chunks' contents."""
    return [item.text for item in chunks]


def test_nothing_is_handed_out_before_content() -> None:
    """A role alone may be taken back by another attempt; with the first content it comes too."""
    given = reader()

    assert list(given.feed(ROLE)) == []
    assert not given.started
    assert texts(list(given.feed(chunk(content="a")))) == ["", "a"]
    assert given.started


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "a"},
        {"reasoning_content": "a"},
        {"reasoning": "a"},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0, "function": {"name": "f"}}]},
    ],
)
def test_everything_a_model_says_is_content(delta: dict[str, Any]) -> None:
    """Text, thoughts under either name, refusals and calls."""
    given = reader()

    assert len(list(given.feed(chunk(**delta)))) == 1


def test_a_stream_without_content_is_not_held_for_ever() -> None:
    """After 64 empty chunks the 65th lets all go."""
    given = reader()

    assert sum(len(list(given.feed(ROLE))) for _ in range(64)) == 0
    assert len(list(given.feed(ROLE))) == 65


def test_done_is_an_end() -> None:
    """Also without a finish reason, and nothing behind it is read."""
    given = reader()

    assert texts(read(given, chunk(content="a") + DONE + chunk(content="b"))) == ["a"]


def test_the_end_after_a_finish_reason_is_one_too() -> None:
    """Not every server says [DONE]."""
    assert texts(read(reader(), chunk(content="a"), STOP)) == ["a", ""]


def test_the_end_before_a_finish_reason_is_an_error() -> None:
    """The answer is not complete."""
    with pytest.raises(TruncatedStreamError, match="1 finish reason"):
        read(reader(), chunk(content="a"))


def test_every_answer_must_finish() -> None:
    """With n=2 one finish reason is half of what is needed."""
    with pytest.raises(TruncatedStreamError, match="2 finish reason"):
        read(reader(choices=2), chunk(content="a"), STOP)
    assert read(reader(choices=2), chunk(1, "stop", content="a"), STOP)


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"error": {"message": "x", "type": "server_error"}}, ServerError),
        ({"error": {"message": "x", "type": "invalid_request_error"}}, InvalidRequestError),
        ({"error": {"message": "x", "type": "rate_limit_error"}}, RateLimitedError),
        ({"error": {"message": "x", "type": "service_unavailable"}}, OverloadedError),
        ({"error": {"message": "x", "code": 400}}, InvalidRequestError),
        ({"error": "x"}, ServerError),
        (
            {"object": "error", "message": "x", "type": "BadRequestError", "code": 400},
            InvalidRequestError,
        ),
    ],
)
@pytest.mark.parametrize("raw", [False, True])
def test_error_frames_raise(told: dict[str, Any], kind: type[Exception], raw: bool) -> None:
    """Nested as OpenAI does it, flat as SGLang does it, and in a raw stream too."""
    given = reader(raw=raw)
    list(given.feed(chunk(content="a")))

    with pytest.raises(kind, match=r"^x$"):
        list(given.feed(b"data: " + json.dumps(told).encode() + b"\n\n"))


def test_a_model_may_talk_about_errors() -> None:
    """Text that looks like an error frame is text, also where only raw bytes are looked at."""
    saying = '{"error":{"message":"x"}} "finish_reason":"stop"'
    given = reader(raw=True)

    chunks = [*given.feed(chunk(content="a")), *given.feed(chunk(content=saying))]

    assert json.loads(chunks[1])["choices"][0]["delta"]["content"] == saying
    assert not given.finished


def test_chunks_before_an_error_in_the_same_part_are_handed_out() -> None:
    """What was complete comes first."""
    part = chunk(content="a") + b'data: {"error":{"message":"x"}}\n\n'
    received: list[list[str]] = []
    with pytest.raises(ServerError):
        received.extend(texts([item]) for item in reader().feed(part))

    assert received == [["a"]]


def test_what_is_no_chunk_raises_with_its_place() -> None:
    """The event's number and the byte where it begins."""
    first = chunk(content="a")
    with pytest.raises(InvalidChunkError, match="Event 2 at byte") as caught:
        list(reader().feed(first + b"data: {broken\n\n"))

    assert (caught.value.number, caught.value.offset) == (2, len(first))
    assert caught.value.data == b"{broken"


def test_what_is_no_chunk_can_be_skipped_and_counted() -> None:
    """The others are handed out."""
    given = reader(skip_invalid=True)
    parts = [chunk(content="a"), b"data: {broken\n\n", b"data: []\n\n", STOP]

    assert texts(read(given, *parts)) == ["a", ""]
    assert given.skipped == 2


def test_usage_is_found_in_a_raw_stream() -> None:
    """Though chunks are not parsed there."""
    given = reader(raw=True)
    usage = b'data: {"choices":[],"usage":{"completion_tokens": 7}}\n\n'

    chunks = read(given, chunk(content="a"), STOP, usage, DONE)

    assert len(chunks) == 3
    assert given.usage is not None
    assert given.usage.completion_tokens == 7


@given(st.lists(st.integers(0, 600), max_size=10), st.booleans())
def test_parts_do_not_matter(places: list[int], raw: bool) -> None:
    """A stream gives the same chunks however it is cut."""
    stream = ROLE + b": ping\r\n\r\n" + chunk(content="é\u2028") + chunk(content="b") + STOP + DONE
    ends = sorted({place % len(stream) for place in places})
    parts = [stream[a:b] for a, b in zip([0, *ends], [*ends, len(stream)], strict=True)]

    assert read(reader(raw=raw), *parts) == read(reader(raw=raw), stream)
