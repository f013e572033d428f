"""The table of fields is true: each one is honoured, refused or ignored as it says."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sglr_dataplane.api.schema import CHAT_FIELDS, TEMPLATE_KWARGS, ChatRequest, decode_chat
from sglr_dataplane.api.schema.chat import ChatBody
from sglr_dataplane.errors import InvalidRequestError


def decoded(**fields: Any) -> ChatRequest:
    """Return the valid request with *fields*."""
    messages = [{"role": "user", "content": "hi"}]
    return decode_chat(json.dumps({"model": "m", "messages": messages, **fields}).encode())


def refused(**fields: Any) -> InvalidRequestError:
    """Return what a request with *fields* is refused with."""
    with pytest.raises(InvalidRequestError) as caught:
        decoded(**fields)
    return caught.value


def named(fate: str) -> list[str]:
    """Return the fields with *fate*."""
    return [name for name, field in CHAT_FIELDS.items() if field.fate == fate]


def test_honoured_fields_are_the_ones_that_are_decoded() -> None:
    """The table and the struct name the same fields; seed is read only to warn."""
    read = {field.name for field in msgspec.structs.fields(ChatBody)}

    assert read == {*named("honoured"), "seed"}


@pytest.mark.parametrize("name", named("refused"))
def test_refused_fields_are_refused_by_name(name: str) -> None:
    """Nothing that cannot be honoured is dropped in silence."""
    error = refused(**{name: {"asks": "something"}})

    assert (error.status, error.param) == (400, name)
    assert "not supported" in error.message


@pytest.mark.parametrize("name", named("refused"))
def test_values_that_ask_for_nothing_are_accepted(name: str) -> None:
    """SDKs spell out defaults: those, and null, change nothing."""
    for neutral in (None, *CHAT_FIELDS[name].neutral):
        assert decoded(**{name: neutral}) == decoded(**{name: None})


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []}, {"functions": []}, {"tool_choice": "none"}, {"tool_choice": "auto"},
        {"function_call": "auto"}, {"chat_template_kwargs": {}}, {"reasoning": {}},
        {"thinking": {"type": "adaptive"}}, {"response_format": {"type": "text"}},
        {"structured_outputs": {}}, {"structured_outputs": {"json_object": False}},
        {"logprobs": False}, {"top_logprobs": 0}, {"parallel_tool_calls": True},
        {"stream_reasoning": True}, {"include_reasoning": True}, {"skip_special_tokens": True},
    ],
)  # fmt: skip
def test_what_asks_for_nothing_is_what_is_left_out(fields: dict[str, Any]) -> None:
    """A field that is read to find nothing in it gives the request that does without it."""
    assert decoded(**fields) == decoded()


@pytest.mark.parametrize("name", named("no effect"))
def test_fields_without_effect_are_accepted(name: str) -> None:
    """The short list of what is accepted although it changes nothing."""
    request = decoded(**{name: 7})

    assert request.sampling.temperature is None
    assert request.constraint is None


@pytest.mark.parametrize("name", ["chat_template", "chat_template_kwargs"])
def test_a41_a_request_cannot_bring_its_own_template(name: str) -> None:
    """Field failure A41: neither as a field nor among the kwargs."""
    bomb = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}"
    error = refused(**{name: {"chat_template": bomb}})

    assert error.status == 400
    assert (error.param or "").endswith("chat_template")


@pytest.mark.parametrize(
    "name", ["messages", "tools", "tokenize", "add_generation_prompt", "bos_token", "(budget)", ""]
)
def test_a41_only_listed_kwargs_reach_the_template(name: str) -> None:
    """Field failure A41: what the template already has cannot be replaced."""
    error = refused(chat_template_kwargs={name: "x"})

    assert (error.code, error.param) == ("unknown_parameter", f"chat_template_kwargs.{name}")


def test_listed_kwargs_are_handed_on() -> None:
    """Every listed name arrives with its value; structures are refused."""
    kwargs = dict.fromkeys(TEMPLATE_KWARGS, "x")

    assert decoded(chat_template_kwargs=kwargs).conversation.template_kwargs == kwargs
    assert refused(chat_template_kwargs={"thinking": []}).code == "invalid_type"


THINKING: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"reasoning_effort": "none"},
     {"reasoning_effort": "none", "thinking": False, "enable_thinking": False}),
    ({"reasoning_effort": "high"},
     {"reasoning_effort": "high", "thinking": True, "enable_thinking": True}),
    ({"reasoning_effort": 0.5},
     {"reasoning_effort": 0.5, "thinking": True, "enable_thinking": True}),
    ({"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
     {"reasoning_effort": "none", "thinking": False, "enable_thinking": True}),
    ({"reasoning": {"enabled": False}}, {"thinking": False, "enable_thinking": False}),
    ({"reasoning": {"effort": "low"}},
     {"reasoning_effort": "low", "thinking": True, "enable_thinking": True}),
    ({"thinking": {"type": "disabled"}}, {"thinking": False, "enable_thinking": False}),
    ({"thinking": {"type": "enabled"}}, {"thinking": True, "enable_thinking": True}),
    ({"thinking": {"type": "adaptive"}}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "given"), THINKING)
def test_every_way_to_ask_for_thinking_is_understood(
    sent: dict[str, Any], given: dict[str, Any]
) -> None:
    """Effort and toggles become the kwargs SGLang gives a template; explicit kwargs win."""
    assert decoded(**sent).conversation.template_kwargs == given


BAD_THINKING: list[tuple[dict[str, Any], str]] = [
    ({"reasoning_effort": "much"}, "reasoning_effort"),
    ({"reasoning_effort": True}, "reasoning_effort"),
    ({"reasoning_effort": 1.5}, "reasoning_effort"),
    ({"reasoning": "high"}, "reasoning"),
    ({"reasoning": {"effort": "much"}}, "reasoning.effort"),
    ({"reasoning": {"enabled": "yes"}}, "reasoning.enabled"),
    ({"reasoning": {"max_tokens": 5}}, "reasoning.max_tokens"),
    ({"reasoning": {"exclude": True}}, "reasoning.exclude"),
    ({"thinking": True}, "thinking"),
    ({"thinking": {"type": "maybe"}}, "thinking.type"),
    ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking.budget_tokens"),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "param"), BAD_THINKING)
def test_malformed_thinking_is_refused(sent: dict[str, Any], param: str) -> None:
    """What cannot be honoured of it is 400."""
    assert refused(**sent).param == param
