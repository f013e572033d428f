"""OpenAI's JSON and inference.v1's messages, one into the other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_client.grpc.bodies import NotCarriedError, chat_request
from sglr_dataplane.inference.shapes import request_body
from sglr_proto.inference import inference_pb2 as pb

HELLO = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def carried(**fields: Any) -> pb.ChatRequest:
    """Return a chat with *fields* as a message."""
    return chat_request(json.dumps({"model": "m", "messages": [HELLO], **fields}).encode())


def arrived(**fields: Any) -> dict[str, Any]:
    """Return what the router makes of that message, without what each request has."""
    body: dict[str, Any] = json.loads(request_body(carried(**fields), stream=False))
    assert (body.pop("model"), body.pop("messages"), body.pop("stream")) == ("m", [HELLO], False)
    return body


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0, "top_p": 0.9, "max_tokens": 5, "n": 2, "seed": 1},
        {"stop": ["a", "b"]},
        {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
        {"reasoning_effort": "low", "user": "u", "presence_penalty": -1.5},
        {"max_completion_tokens": 7, "min_p": 0.1, "chat_template_kwargs": {"thinking": True}},
        # Of another type than the message's field: the server says what it expects.
        {"temperature": "hot"},
        {"n": "two"},
        {"stop": [1]},
        {"tools": [{"type": "web_search"}]},
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}},
    ],
)
def test_what_is_asked_arrives(fields: dict[str, Any]) -> None:
    """Through the message and back every field is what the caller gave."""
    assert arrived(**fields) == fields


def test_a_single_stop_is_a_list_of_one() -> None:
    """The two spellings mean the same."""
    assert arrived(stop="a") == {"stop": ["a"]}


@given(
    st.dictionaries(
        st.sampled_from(["temperature", "top_p", "max_tokens", "seed", "n", "top_k", "user", "x"]),
        st.one_of(
            st.integers(-(2**24), 2**24),
            st.integers(0, 255).map(lambda n: n / 128),
            st.text(max_size=4),
        ),
    )
)
def test_nothing_is_lost_whatever_its_type(fields: dict[str, Any]) -> None:
    """A value that the message's field cannot hold travels as JSON."""
    assert arrived(**fields) == fields


def test_a_conversation_keeps_calls_results_and_thoughts() -> None:
    """Messages of every role arrive whole; text parts are joined."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {
            "role": "system",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        },
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "content": "1", "tool_call_id": "c", "name": "f"},
    ]
    request = chat_request(json.dumps({"model": "m", "messages": messages}).encode())

    assert json.loads(request_body(request, stream=False))["messages"] == [
        {"role": "system", "content": "a\nb"},
        *messages[1:],
    ]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"logprobs": True}, "logprobs"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "content"),
        ({"messages": [{"role": "user", "content": "x", "audio": {}}]}, "messages[0].audio"),
        ({"messages": ["Hello"]}, "messages[0]"),
    ],
)
def test_what_has_no_place_is_refused_and_named(body: dict[str, Any], named: str) -> None:
    """Nothing is dropped in silence."""
    with pytest.raises(NotCarriedError) as caught:
        carried(**body)

    assert named in str(caught.value)
