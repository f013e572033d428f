"""inference.v1's messages and OpenAI's objects, one into the other."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sglr_dataplane.errors import InvalidRequestError
from sglr_dataplane.inference.failures import Fault
from sglr_dataplane.inference.shapes import Chunks, request_body, response_of, shortest
from sglr_proto.inference import inference_pb2 as pb

HELLO = pb.ChatMessage(role="user", content="Hello")


def body_of(request: pb.ChatRequest, *, stream: bool = False) -> dict[str, Any]:
    """Return the body that *request* becomes."""
    body: dict[str, Any] = json.loads(request_body(request, stream=stream))
    return body


def event(**fields: Any) -> bytes:
    """Return a chunk of a chat completion as an event's data."""
    return json.dumps({"id": "c1", "model": "m", **fields}).encode()


def delta(index: int = 0, finish: str | None = None, **said: Any) -> dict[str, Any]:
    """Return a choice of such a chunk."""
    return {"index": index, "delta": said, "finish_reason": finish}


def read_all(*events: bytes) -> list[pb.ChatResponseChunk]:
    """Return the chunks of a stream of *events*, none of them an error."""
    chunks = Chunks()
    told: list[pb.ChatResponseChunk] = []
    for each in events:
        read = chunks.read(each)
        assert isinstance(read, list)
        told += read
    return told + chunks.end()


def test_the_old_fields_become_the_fields_of_the_same_name() -> None:
    """What existing clients send is a chat completion request; the rpc decides about streaming."""
    request = pb.ChatRequest(
        model="m", messages=[HELLO], temperature=0.7, max_tokens=16, stream=True
    )

    assert body_of(request) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello"}],
        "temperature": 0.7,
        "max_tokens": 16,
        "stream": False,
    }


def test_what_is_not_set_is_not_sent_and_zero_is_not_unset() -> None:
    """A temperature of 0 is 0; an absent one is the model's own."""
    assert "temperature" not in body_of(pb.ChatRequest(model="m", messages=[HELLO]))
    assert body_of(pb.ChatRequest(model="m", messages=[HELLO], temperature=0))["temperature"] == 0


def test_a_stream_asks_for_its_usage() -> None:
    """The last chunk carries what the answer has cost."""
    body = body_of(pb.ChatRequest(model="m", messages=[HELLO]), stream=True)

    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


def test_every_addition_has_its_place() -> None:
    """Tools, their results, thoughts, formats and limits arrive under OpenAI's names."""
    request = pb.ChatRequest(
        model="m",
        messages=[
            pb.ChatMessage(
                role="assistant",
                reasoning_content="Hm.",
                tool_calls=[pb.ToolCall(id="c0", name="now", arguments="{}")],
            ),
            pb.ChatMessage(role="tool", content="12:00", tool_call_id="c0", name="now"),
        ],
        top_p=0.9,
        top_k=5,
        frequency_penalty=-0.5,
        presence_penalty=0.25,
        stop=["a", "b"],
        n=2,
        seed=7,
        tools=[
            pb.Tool(name="now", description="The time", parameters='{"type":"object"}', strict=True)
        ],
        tool_choice="now",
        parallel_tool_calls=False,
        response_format='{"type":"json_object"}',
        reasoning_effort="low",
        user="u",
        extra='{"min_p":0.1}',
    )

    assert body_of(request) == {
        "model": "m",
        "messages": [
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "Hm.",
                "tool_calls": [
                    {
                        "id": "c0",
                        "type": "function",
                        "function": {"name": "now", "arguments": "{}"},
                    }
                ],
            },
            {"role": "tool", "content": "12:00", "tool_call_id": "c0", "name": "now"},
        ],
        "stream": False,
        "top_p": 0.9,
        "top_k": 5,
        "frequency_penalty": -0.5,
        "presence_penalty": 0.25,
        "stop": ["a", "b"],
        "n": 2,
        "seed": 7,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "now",
                    "description": "The time",
                    "parameters": {"type": "object"},
                    "strict": True,
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "now"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
        "user": "u",
        "min_p": 0.1,
    }


@pytest.mark.parametrize("mode", ["auto", "none", "required"])
def test_a_mode_of_tool_choice_is_no_function(mode: str) -> None:
    """OpenAI's three words stay words."""
    request = pb.ChatRequest(model="m", messages=[HELLO], tool_choice=mode)

    assert body_of(request)["tool_choice"] == mode


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"extra": "nothing"}, "extra"),
        ({"extra": "[]"}, "extra"),
        ({"extra": '{"model":"other"}'}, "extra"),
        ({"extra": '{"stream_options":{}}'}, "extra"),
        ({"extra": '{"top_p":1}', "top_p": 1}, "extra"),
        ({"response_format": "{"}, "response_format"),
        ({"tools": [pb.Tool(name="f", parameters="")]}, "tools[0].parameters"),
    ],
)
def test_what_is_no_json_object_or_said_twice_is_refused(
    fields: dict[str, Any], param: str
) -> None:
    """The error names the field."""
    with pytest.raises(InvalidRequestError) as caught:
        request_body(pb.ChatRequest(model="m", messages=[HELLO], **fields), stream=False)

    assert caught.value.param == param


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@example(2.0**128 - 2.0**104)
@example(-(2.0**128) + 2.0**104)
def test_the_shortest_decimal_is_the_same_float(number: float) -> None:
    """What is sent on is, as a 32-bit float, what the client sent."""
    assert struct.pack("<f", shortest(number)) == struct.pack("<f", number)


@pytest.mark.parametrize("decimal", [0.7, 0.1, 1e-7, 123.25, 16777216.0, 0.3333333])
def test_a_decimal_that_people_type_comes_back(decimal: float) -> None:
    """0.7 stays 0.7 although a 32-bit float is not exactly that."""
    (wire,) = struct.unpack("<f", struct.pack("<f", decimal))

    assert shortest(wire) == decimal


def test_usage_travels_with_the_last_chunk() -> None:
    """Existing clients read it beside the finish reason."""
    cost = {
        "prompt_tokens": 3,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    told = read_all(
        event(choices=[delta(role="assistant", content="")]),
        event(choices=[delta(content="Hi")]),
        event(choices=[delta(finish="stop")]),
        event(choices=[], usage=cost),
    )

    usage = pb.Usage(prompt_tokens=3, completion_tokens=1, cached_tokens=2, reasoning_tokens=0)
    assert told == [
        pb.ChatResponseChunk(content="Hi", index=0, id="c1", model="m"),
        pb.ChatResponseChunk(content="", index=0, finish_reason="stop", usage=usage),
    ]


def test_only_the_last_of_several_finishes_waits() -> None:
    """A choice that ended is told as soon as another goes on."""
    chunks = Chunks()
    ended = chunks.read(event(choices=[delta(0, "stop")]))
    goes_on = chunks.read(event(choices=[delta(1, content="x")]))

    assert ended == []
    assert isinstance(goes_on, list)
    assert [(each.index, each.finish_reason) for each in goes_on] == [(0, "stop"), (1, "")]


def test_thoughts_and_calls_are_told_piece_by_piece() -> None:
    """Both spellings of thinking are read; a call's pieces keep their index."""
    call = {"index": 1, "id": "c", "function": {"name": "f", "arguments": ""}}
    more = {"index": 1, "function": {"arguments": "{"}}
    flat = read_all(
        event(choices=[delta(reasoning="a")]),
        event(choices=[delta(reasoning_content="b")]),
        event(choices=[delta(tool_calls=[call])]),
        event(choices=[delta(tool_calls=[more])]),
    )

    assert [chunk.reasoning_content for chunk in flat] == ["a", "b", "", ""]
    assert list(flat[2].tool_calls) == [pb.ToolCall(index=1, id="c", name="f", arguments="")]
    assert list(flat[3].tool_calls) == [pb.ToolCall(index=1, arguments="{")]


def test_an_error_event_is_an_error() -> None:
    """What fails after the stream began is no chunk."""
    told = Chunks().read(b'{"error":{"message":"Gone.","type":"server_error","code":"x"}}')

    assert told == Fault("Gone.", "server_error", None, "x")


def test_a_whole_answer_keeps_choices_in_order() -> None:
    """Choices by index, with their finish reasons beside them."""
    choices = [
        {"index": 1, "message": {"content": "b"}, "finish_reason": "length"},
        {"index": 0, "message": {"content": "a"}, "finish_reason": "stop"},
    ]
    body = json.dumps({"id": "c", "model": "m", "created": 5, "choices": choices}).encode()

    assert response_of(body) == pb.ChatResponse(
        choices=[
            pb.ChatMessage(role="assistant", content="a"),
            pb.ChatMessage(role="assistant", content="b"),
        ],
        finish_reasons=["stop", "length"],
        id="c",
        model="m",
        created=5,
    )
