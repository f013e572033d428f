"""What a client of a stream receives, frame by frame."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.api.answer import News
from sglr_dataplane.api.schema.common import StreamUsage
from sglr_dataplane.api.sse import DONE, ChatFrames, failure_frame
from sglr_dataplane.errors import TruncatedStreamError
from sglr_dataplane.job import TokenLogprob, Usage
from sglr_dataplane.output.deltas import (
    CallArguments,
    CallStart,
    Delta,
    Finished,
    Reasoning,
    Text,
)

USAGE = Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=2, reasoning_tokens=1)


def frames(usage: StreamUsage | None = None) -> ChatFrames:
    """Return frames of a stream whose id, time and model are known."""
    return ChatFrames(id="chatcmpl-1", created=1700000000, model="m", usage=usage or StreamUsage())


def some_news(*deltas: Delta, index: int = 0, logprobs: tuple[TokenLogprob, ...] = ()) -> News:
    """Return news of *deltas*."""
    return News(index, list(deltas), USAGE, logprobs=logprobs)


def payload(frame: bytes) -> Any:
    """Return the JSON of one frame, which must be one data line and a blank one."""
    assert frame.startswith(b"data: ")
    assert frame.endswith(b"\n\n")
    assert frame.count(b"\n") == 2
    return json.loads(frame[6:])


@pytest.mark.parametrize(
    ("delta", "expected", "reason"),
    [
        (Text("né"), {"content": "né"}, None),
        (Reasoning("hm"), {"reasoning_content": "hm"}, None),
        (
            CallStart(0, "call_1", "f"),
            {
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "f", "arguments": ""},
                    }
                ]
            },
            None,
        ),
        (
            CallArguments(1, '{"a": "'),
            {"tool_calls": [{"index": 1, "function": {"arguments": '{"a": "'}}]},
            None,
        ),
        (Finished("tool_calls", None, USAGE), {}, "tool_calls"),
    ],
)
def test_a_delta_is_one_chunk_in_the_clients_shape(
    delta: Delta, expected: dict[str, Any], reason: str | None
) -> None:
    """Every delta becomes exactly the object that OpenAI's clients read."""
    chunk = payload(frames().news(some_news(delta, index=2)))

    choice = chunk["choices"][0]
    assert {k: chunk[k] for k in ("id", "object", "created", "model")} == {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "m",
    }
    assert choice["index"] == 2
    assert choice["delta"] == expected
    assert choice["finish_reason"] == reason


def test_only_the_first_frame_of_a_choice_names_the_role() -> None:
    """The role comes once for each choice, as "assistant", never null or empty."""
    first, second = (payload(frame + b"\n\n") for frame in frames().roles(2).split(b"\n\n")[:2])

    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["choices"][0]["index"] for chunk in (first, second)] == [0, 1]


def test_a35_usage_comes_last_and_only_when_asked_for() -> None:
    """With include_usage the other chunks say null and one more chunk has no choices."""
    asked = frames(StreamUsage(at_end=True))
    usage, done = asked.end([USAGE]).split(b"\n\n", 1)

    assert payload(asked.roles(1))["usage"] is None
    assert payload(usage + b"\n\n")["choices"] == []
    assert payload(usage + b"\n\n")["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    assert done == DONE
    assert "usage" not in payload(frames().roles(1))
    assert frames().end([USAGE]) == DONE


def test_usage_so_far_is_on_every_chunk_when_asked_for() -> None:
    """continuous_usage_stats: each chunk says what the choice has cost by then."""
    asked = frames(StreamUsage(at_end=True, always=True))
    chunk = payload(asked.news(some_news(Text("x"))))

    assert chunk["usage"]["completion_tokens"] == 3


def test_logprobs_come_with_the_first_frame_of_their_news() -> None:
    """Neither twice nor without: the other frames of the same news say null."""
    asked = ChatFrames(id="c", created=1, model="m", usage=StreamUsage(), logprobs=len)
    news = some_news(
        Text("a"), Finished("stop", None, USAGE), logprobs=(TokenLogprob(1, -1.0),) * 2
    )
    chunks = [payload(frame + b"\n\n") for frame in asked.news(news).split(b"\n\n")[:-1]]

    assert [chunk["choices"][0]["logprobs"] for chunk in chunks] == [2, None]


def test_a04_a_failure_is_a_nested_error_and_then_done() -> None:
    """The error frame is the shape on which openai-python raises APIError."""
    error, done = failure_frame(TruncatedStreamError("It ended.")).split(b"\n\n", 1)

    assert payload(error + b"\n\n") == {
        "error": {
            "message": "It ended.",
            "type": "server_error",
            "param": None,
            "code": "truncated_stream",
        }
    }
    assert done == DONE


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_survives_the_frame(text: str) -> None:
    """Control characters, quotes, U+2028 and everything else come back as they were."""
    frame = frames().news(some_news(Text(text)))

    assert payload(frame)["choices"][0]["delta"]["content"] == text
