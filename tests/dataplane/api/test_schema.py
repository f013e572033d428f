"""Decoding a chat request is checking it: every refusal names its path, code and expectation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sglr_dataplane.api.schema import ChatRequest, decode_chat
from sglr_dataplane.api.schema.common import StreamUsage
from sglr_dataplane.errors import InvalidJsonError, InvalidRequestError
from sglr_dataplane.job import LogprobsWish

HI = [{"role": "user", "content": "hi"}]


def a_body(**fields: Any) -> bytes:
    """Return a valid request's bytes with *fields* added or replaced."""
    return json.dumps({"model": "m", "messages": HI, **fields}).encode()


def decoded(**fields: Any) -> ChatRequest:
    """Return the valid request with *fields*."""
    return decode_chat(a_body(**fields))


def refused(body: bytes) -> InvalidRequestError:
    """Return what *body* is refused with."""
    with pytest.raises(InvalidRequestError) as caught:
        decode_chat(body)
    return caught.value


DEEP = 100_000

NO_JSON = [
    (b"", "it is empty"),
    (b"  \n", "it is empty"),
    (b"{", "line 1, column 2"),
    (b"{'model': 'm'}", "double quotes"),
    (a_body() + b" x", "extra data"),
    (b"\xef\xbb\xbf" + a_body(), "byte order mark"),
    (a_body(unknown="?").replace(b"?", b"\xff"), "not UTF-8 (byte"),
    (a_body(user="?").replace(b"?", b"\xed\xa0\x80"), "not UTF-8 (byte"),
    (a_body(temperature=float("nan")), "NaN"),
    (a_body(temperature=float("inf")), "Infinity"),
    (a_body(stop="?").replace(b"?", b"a\x00b"), "control character"),
    (b'{"x":' + b"[" * DEEP, "nested too deeply"),
    (b'{"model":"m","tool_choice":' + b'{"a":' * DEEP, "nested too deeply"),
]


@pytest.mark.parametrize(("body", "words"), NO_JSON)
def test_what_is_not_json_is_refused_with_the_reason(body: bytes, words: str) -> None:
    """A body that is not JSON is 400 invalid_json, and the sentence says what is wrong."""
    error = refused(body)

    assert isinstance(error, InvalidJsonError)
    assert (error.status, error.code, error.param) == (400, "invalid_json", None)
    assert words in error.message


@pytest.mark.parametrize("content", ["a\ud800b", "\udfff", [{"type": "text", "text": "\ud83d"}]])
def test_lone_surrogates_are_refused_with_their_path(content: Any) -> None:
    """Half a surrogate pair, which no tokenizer takes, is 400 and the path is told."""
    error = refused(a_body(messages=[*HI, {"role": "user", "content": content}]))

    assert error.code == "invalid_json"
    assert "messages[1].content" in error.message


def test_a_whole_surrogate_pair_is_a_character() -> None:
    """JSON's escaped pair is read as the one character it stands for."""
    body = a_body(messages=[{"role": "user", "content": "😀"}])
    assert b"\\ud83d\\ude00" in body

    assert decode_chat(body).conversation.messages[0].content == "😀"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"messages": [{"role": "user", "content": "a\0b"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "\0"}]}]},
            "messages[0].content[0].text",
        ),
        ({"stop": ["a", "\0"]}, "stop[1]"),
        ({"model": "\0"}, "model"),
        (
            {"tools": [{"function": {"name": "f", "parameters": {"a\0": 1}}}]},
            "tools[0].function.parameters",
        ),
    ],
)
def test_nul_is_refused_with_its_path(fields: dict[str, Any], path: str) -> None:
    """A NUL anywhere in a known field is 400 and names the place."""
    error = refused(a_body(**fields))

    assert (error.code, error.param) == ("invalid_value", path)


def test_text_that_looks_like_an_escaped_nul_is_text() -> None:
    """A backslash followed by u0000 is six characters, and a NUL in an unknown field is ignored."""
    request = decoded(messages=[{"role": "user", "content": "\\u0000"}], unknown="\0")

    assert request.conversation.messages[0].content == "\\u0000"


SHAPES = [
    (b"[]", "invalid_type", None),
    (b'"x"', "invalid_type", None),
    (b"{}", "missing_required_parameter", "model"),
    (b'{"model": "m"}', "missing_required_parameter", "messages"),
    (a_body(model=5), "invalid_type", "model"),
    (a_body(model=None), "invalid_type", "model"),
    (a_body(messages=None), "invalid_type", "messages"),
    (a_body(messages="hi"), "invalid_type", "messages"),
    (a_body(messages=[]), "empty_array", "messages"),
    (a_body(messages=["hi"]), "invalid_type", "messages[0]"),
    (
        a_body(messages=[*HI, {"content": "x"}]),
        "missing_required_parameter",
        "messages[1].role",
    ),
    (a_body(messages=[{"role": "robot", "content": "x"}]), "invalid_value", "messages[0].role"),
    (a_body(messages=[{"role": "User", "content": "x"}]), "invalid_value", "messages[0].role"),
    (a_body(messages=[{"role": "user"}]), "missing_required_parameter", "messages[0].content"),
    (
        a_body(messages=[{"role": "user", "content": None}]),
        "missing_required_parameter",
        "messages[0].content",
    ),
    (a_body(messages=[{"role": "user", "content": 5}]), "invalid_type", "messages[0].content"),
    (
        a_body(messages=[{"role": "user", "content": ["x"]}]),
        "invalid_type",
        "messages[0].content[0]",
    ),
    (
        a_body(messages=[{"role": "user", "content": [{"type": "text"}]}]),
        "missing_required_parameter",
        "messages[0].content[0].text",
    ),
    (
        a_body(messages=[{"role": "user", "content": [{"text": "x"}]}]),
        "missing_required_parameter",
        "messages[0].content[0].type",
    ),
    (
        a_body(messages=[{"role": "assistant", "tool_calls": [{"id": "1"}]}]),
        "missing_required_parameter",
        "messages[0].tool_calls[0].function",
    ),
    (
        a_body(
            messages=[
                {
                    "role": "assistant",
                    "tool_calls": [{"type": "custom", "function": {"name": "f"}}],
                }
            ]
        ),
        "invalid_value",
        "messages[0].tool_calls[0].type",
    ),
    (
        a_body(messages=[{"role": "system", "content": "x", "tools": [{}]}]),
        "invalid_value",
        "messages[0].tools",
    ),
    (a_body(stream="yes"), "invalid_type", "stream"),
    (a_body(stream_options={"include_usage": True}), "invalid_value", "stream_options"),
    (
        a_body(continue_final_message=True, add_generation_prompt=True),
        "invalid_value",
        "add_generation_prompt",
    ),
]


@pytest.mark.parametrize(("body", "code", "param"), SHAPES)
def test_a34_wrong_shapes_are_400_with_code_and_path(
    body: bytes, code: str, param: str | None
) -> None:
    """Field failure A34, decoding: every wrong shape is told by OpenAI's code and a path."""
    error = refused(body)

    assert (error.status, error.type) == (400, "invalid_request_error")
    assert (error.code, error.param) == (code, param)
    assert error.message.endswith(".")


def test_types_are_told_in_words() -> None:
    """The sentence says what was expected and what came, as OpenAI does."""
    error = refused(a_body(max_tokens="5"))

    assert error.message == (
        "Invalid type for 'max_tokens': expected an integer, but got a string instead."
    )


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "video_url"])
def test_parts_that_are_no_text_are_refused_by_name(kind: str) -> None:
    """What this backend cannot show to the model is refused, never dropped."""
    error = refused(a_body(messages=[{"role": "user", "content": [{"type": kind}]}]))

    assert error.param == "messages[0].content[0].type"
    assert f"'{kind}' is not served by this backend" in error.message


def test_history_is_accepted_as_clients_send_it_back() -> None:
    """Fields that servers and SDKs add to messages are no obstacle."""
    request = decoded(
        messages=[
            {"role": "developer", "content": "be brief", "name": "ops"},
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {}}]},
            {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "audio": None,
                "annotations": [],
                "reasoning_content": "hm",
                "reasoning": {"odd": 1},
                "function_call": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "index": 0,
                        "function": {"name": "f", "arguments": "{}"},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "1"}]},
            {"role": "function", "name": "f", "content": "1"},
        ]
    )

    roles = [message.role for message in request.conversation.messages]
    assert roles == ["developer", "user", "assistant", "tool", "function"]


def test_unknown_fields_are_ignored() -> None:
    """A field nobody knows changes nothing."""
    assert decoded(x_unknown={"a": [1, None]}) == decoded()


NULLABLE = [
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty",
    "repetition_penalty", "max_tokens", "max_completion_tokens", "min_tokens", "n", "stop",
    "stop_token_ids", "logit_bias", "stream", "stream_options", "tools", "tool_choice",
    "parallel_tool_calls", "response_format", "regex", "ebnf", "reasoning_effort", "logprobs",
    "top_logprobs", "chat_template_kwargs", "seed", "user", "functions", "function_call", "store",
]  # fmt: skip


@pytest.mark.parametrize("name", NULLABLE)
def test_null_means_unset(name: str) -> None:
    """An explicit null is what an absent field is."""
    assert decoded(**{name: None}) == decoded()


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0, "integer_below_min_value"),
        (-1, "integer_below_min_value"),
        (2**31, "integer_above_max_value"),
        (2**64, "integer_above_max_value"),
        ("5", "invalid_type"),
        (5.0, "invalid_type"),
        (True, "invalid_type"),
        ([5], "invalid_type"),
    ],
)
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a36_wrong_length_limits_are_refused(name: str, value: Any, code: str) -> None:
    """Field failure A36: a limit that is no positive integer is 400 and nothing else."""
    error = refused(a_body(**{name: value}))

    assert (error.code, error.param) == (code, name)


def test_stream_says_what_was_asked() -> None:
    """stream, usage, separate_reasoning and the seed's warning follow what was sent."""
    plain = decoded()
    streamed = decoded(
        stream=True, stream_options={"include_usage": True}, separate_reasoning=False, seed=7
    )
    always = {"include_usage": True, "continuous_usage_stats": True}

    assert (plain.stream, plain.usage, plain.separate_reasoning) == (False, StreamUsage(), True)
    assert (streamed.stream, streamed.usage) == (True, StreamUsage(at_end=True))
    assert (streamed.separate_reasoning, plain.warnings) == (False, ())
    assert [warning.split()[0] for warning in streamed.warnings] == ["seed"]
    assert decoded(stream=True, stream_options=always).usage == StreamUsage(True, True)


def test_logprobs_are_asked_for_with_their_number() -> None:
    """top_logprobs needs logprobs, and has OpenAI's limit."""
    assert decoded().logprobs is None
    assert decoded(logprobs=False, top_logprobs=0).logprobs is None
    assert decoded(logprobs=True).logprobs == LogprobsWish(top=0)
    assert decoded(logprobs=True, top_logprobs=20).logprobs == LogprobsWish(top=20)
    assert refused(a_body(top_logprobs=1)).param == "top_logprobs"
    assert refused(a_body(logprobs=True, top_logprobs=21)).code == "integer_above_max_value"
    assert refused(a_body(logprobs=True, top_logprobs=-1)).code == "integer_below_min_value"


def test_thoughts_are_told_as_asked() -> None:
    """As they come, in one piece, or not at all."""
    assert decoded().thoughts == "streamed"
    assert decoded(stream_reasoning=False).thoughts == "whole"
    assert decoded(include_reasoning=False).thoughts == "dropped"
    assert decoded(skip_special_tokens=False).shows_special
    assert not decoded(skip_special_tokens=True).shows_special


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        "messages", "model", "tools", "tool_choice", "functions", "function_call", "stop",
        "response_format", "structured_outputs", "guided_choice", "guided_json", "logit_bias",
        "chat_template_kwargs", "reasoning", "thinking", "reasoning_effort", "stream_options",
        "stop_token_ids", "n", "temperature", "store", "logprobs",
    ]
)  # fmt: skip


@given(st.dictionaries(FIELDS, json_values, max_size=4))
@example({"tool_choice": {"type": "allowed_tools", "tools": [None]}})
@example({"tool_choice": {"type": [1]}})
@example({"response_format": {"type": {"a": 1}}})
@example({"functions": [{}]})
def test_any_json_is_a_request_or_refused(fields: dict[str, Any]) -> None:
    """Whatever JSON stands in whatever field: a request or a 400, never another error."""
    outcome: ChatRequest | InvalidRequestError
    try:
        outcome = decode_chat(a_body(**fields))
    except InvalidRequestError as error:
        outcome = error

    if isinstance(outcome, ChatRequest):
        assert outcome.conversation.messages
    else:
        assert outcome.message


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_in_order(body: bytes) -> None:
    """Bytes that are no request are refused, never a crash."""
    assert refused(body).status == 400


def a_deep_tool(depth: int) -> bytes:
    """Return a request that requires a tool whose schema is nested *depth* deep."""
    deep = '{"a":' * depth + "1" + "}" * depth
    tool = f'[{{"function":{{"name":"f","parameters":{deep}}}}}]'
    return a_body(tools="?", tool_choice="required").replace(b'"?"', tool.encode())


def test_deep_schemas_are_read() -> None:
    """Nesting that a schema could have is no obstacle."""
    assert decode_chat(a_deep_tool(200)).constraint is not None


@pytest.mark.parametrize("depth", range(700, 1000, 5))
def test_schemas_too_deep_to_be_written_out_are_refused(depth: int) -> None:
    """On the edge of what can be read, writing the grammar may fail: 400, not a crash."""
    outcome: ChatRequest | InvalidJsonError
    try:
        outcome = decode_chat(a_deep_tool(depth))
    except InvalidJsonError as error:
        outcome = error

    if isinstance(outcome, ChatRequest):
        assert outcome.constraint is not None
    else:
        assert "nested too deeply" in outcome.message
