"""Messages reach the template as SGLang's HTTP front end would hand them over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from sglr_dataplane.errors import InvalidRequestError
from sglr_dataplane.prompt.conversation import Conversation, Message, Tool, ToolChoice
from sglr_dataplane.prompt.messages import ContentFormat, Prepared, flat, prepared


@dataclass(frozen=True)
class Facts:
    """What the template is like."""

    content_format: ContentFormat = "string"
    knows_developer: bool = False


def a_conversation(*messages: dict[str, Any], **fields: Any) -> Conversation:
    """Return the conversation of *messages* as they come off the wire."""
    return Conversation(tuple(msgspec.convert(list(messages), list[Message])), **fields)


def shown(*messages: dict[str, Any], facts: Facts | None = None) -> list[dict[str, Any]]:
    """Return *messages* as the template sees them."""
    return prepared(a_conversation(*messages), facts or Facts()).messages


def a_call(arguments: Any, **fields: Any) -> dict[str, Any]:
    """Return an assistant's message that calls ``f`` with *arguments*."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": arguments}, **fields}],
    }


TEXTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_null_content_is_empty_text() -> None:
    """Templates concatenate content: null is "" and the other nulls are gone."""
    message = {"role": "assistant", "content": None, "name": None, "tool_calls": None}

    assert shown(message) == [{"role": "assistant", "content": ""}]


def test_a29_parts_are_joined_with_one_space() -> None:
    """Field failure A29: text parts become one string where the template wants a string."""
    assert shown({"role": "user", "content": TEXTS}) == [{"role": "user", "content": "a b"}]
    assert shown({"role": "user", "content": []}) == [{"role": "user", "content": ""}]


def test_a29_parts_are_kept_for_templates_that_loop_over_them() -> None:
    """Field failure A29: an "openai" template gets the parts, but a tool's result as text."""
    facts = Facts(content_format="openai")

    assert shown(
        {"role": "user", "content": TEXTS},
        {"role": "tool", "content": TEXTS, "tool_call_id": "c1"},
        facts=facts,
    ) == [
        {"role": "user", "content": TEXTS},
        {"role": "tool", "content": "a b", "tool_call_id": "c1"},
    ]
    assert shown({"role": "user", "content": []}, facts=facts) == [{"role": "user", "content": []}]


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ('{"city": "Paris"}', {"city": "Paris"}),
        ('{"b": 1, "a": [1e5, 12345678901234567890]}', {"b": 1, "a": [1e5, 12345678901234567890]}),
        ({"city": "Paris"}, {"city": "Paris"}),
        ("", {}),
        ("  \n", {}),
        (None, {}),
    ],
)
def test_a29_arguments_are_an_object(sent: Any, seen: dict[str, Any]) -> None:
    """Field failure A29: JSON text becomes the object templates print; nothing is {}."""
    (message,) = shown(a_call(sent))

    assert message == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "c1",
                "index": None,
                "type": "function",
                "function": {"name": "f", "arguments": seen},
            }
        ],
    }


@pytest.mark.parametrize(
    "arguments", ["{", "5", "[]", '"x"', "null", '{"a": NaN}', '{"a": "\\ud800"}', "[" * 100_000]
)
def test_a29_arguments_that_are_no_object_are_refused_with_their_path(arguments: str) -> None:
    """Field failure A29: 400 that names the call, never a template's own failure."""
    with pytest.raises(InvalidRequestError) as caught:
        shown({"role": "user", "content": "x"}, a_call(arguments))

    assert caught.value.param == "messages[1].tool_calls[0].function.arguments"
    assert "expected the text of a JSON object" in caught.value.message


def test_a_nul_inside_arguments_is_refused() -> None:
    """An escaped NUL in the arguments would be a raw one in some templates."""
    with pytest.raises(InvalidRequestError, match="NUL"):
        shown(a_call('{"a": "\\u0000"}'))
    assert shown(a_call('{"a": "\\\\u0000"}'))


def test_the_former_forms_of_calls_are_translated() -> None:
    """A function_call becomes a tool call, a function's result a tool's."""
    messages = shown(
        {"role": "assistant", "function_call": {"name": "f", "arguments": '{"a": 1}'}},
        {"role": "function", "name": "f", "content": "2"},
    )

    assert messages[0]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert messages[1] == {"role": "tool", "content": "2", "name": "f"}


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ({"reasoning_content": "hm"}, "hm"),
        ({"reasoning": "hm"}, "hm"),
        ({"reasoning": "x", "reasoning_content": "hm"}, "hm"),
        ({"reasoning": {"text": "x"}}, None),
    ],
)
def test_thoughts_go_by_one_name(sent: dict[str, Any], seen: str | None) -> None:
    """Both names of earlier thoughts reach the template as reasoning_content."""
    (message,) = shown({"role": "assistant", "content": "x", **sent})

    assert message.get("reasoning_content") == seen


def test_developers_are_the_system_unless_the_template_knows_them() -> None:
    """Most templates drop unknown roles in silence."""
    message = {"role": "developer", "content": "x"}

    assert shown(message)[0]["role"] == "system"
    assert shown(message, facts=Facts(knows_developer=True))[0]["role"] == "developer"


def test_a_users_name_is_not_shown() -> None:
    """SGLang keeps role and content of a user's message, and the name of the others'."""
    assert shown(
        {"role": "user", "content": "x", "name": "bob"},
        {"role": "system", "content": "y", "name": "ops"},
    ) == [
        {"role": "user", "content": "x"},
        {"role": "system", "content": "y", "name": "ops"},
    ]


def a_tool(name: str) -> Tool:
    """Return a tool without parameters."""
    function = {"name": name, "description": None, "parameters": None}
    return Tool(name=name, parameters=None, strict=False, function=function)


HI = {"role": "user", "content": "hi"}
OFFERED = a_conversation(HI, tools=(a_tool("a"), a_tool("b")), choice=ToolChoice("auto"))


def names(ready: Prepared) -> list[str] | None:
    """Return the names of the tools that the template sees."""
    if ready.tools is None:
        return None
    return [tool["function"]["name"] for tool in ready.tools]


@pytest.mark.parametrize(
    ("choice", "seen"),
    [
        (ToolChoice("auto"), ["a", "b"]),
        (ToolChoice("required"), ["a", "b"]),
        (ToolChoice("none"), None),
        (ToolChoice("required", ("b",), named=True), ["b"]),
        (ToolChoice("required", ("b",)), ["a", "b"]),
    ],
)
def test_the_choice_decides_which_tools_are_shown(
    choice: ToolChoice, seen: list[str] | None
) -> None:
    """None hides them all, a name all others; a list of allowed ones keeps the prompt's cache."""
    assert names(prepared(msgspec.structs.replace(OFFERED, choice=choice), Facts())) == seen


def test_tools_are_wrapped_as_the_engine_wraps_them() -> None:
    """SGLang 0.5.23 prints its unset defer_loading; Mistral's form is without the wrapper."""
    tools = prepared(OFFERED, Facts()).tools
    assert tools is not None

    function = {"name": "a", "description": None, "parameters": None}
    assert tools[0] == {"type": "function", "function": function, "defer_loading": None}
    assert list(tools[0]) == ["type", "function", "defer_loading"]
    assert flat(tools)[0] == function


def test_a_continued_answer_leaves_the_messages() -> None:
    """The last assistant's text comes after the generation prompt."""
    conversation = a_conversation(
        HI, {"role": "assistant", "content": TEXTS}, continue_final_message=True
    )

    for facts in (Facts(), Facts(content_format="openai")):
        ready = prepared(conversation, facts)
        assert (len(ready.messages), ready.continuation) == (1, "a b")


def test_only_the_assistant_can_be_continued() -> None:
    """There is nothing to go on with after a user's message."""
    with pytest.raises(InvalidRequestError) as caught:
        prepared(msgspec.structs.replace(OFFERED, continue_final_message=True), Facts())

    assert caught.value.param == "continue_final_message"
