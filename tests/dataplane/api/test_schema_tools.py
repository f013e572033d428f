"""Tools, the choice among them, and the grammars a request can ask for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglr_dataplane.api.schema import ChatRequest, decode_chat
from sglr_dataplane.errors import InvalidRequestError
from sglr_dataplane.job import Constraint
from sglr_dataplane.prompt.conversation import ToolChoice

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Look.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "clock"}}
TOOLS = [WEATHER, CLOCK]


def a_body(**fields: Any) -> bytes:
    """Return a valid request's bytes with *fields*."""
    messages = [{"role": "user", "content": "hi"}]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def decoded(**fields: Any) -> ChatRequest:
    """Return the valid request with *fields*."""
    return decode_chat(a_body(**fields))


def refused(**fields: Any) -> InvalidRequestError:
    """Return what a request with *fields* is refused with."""
    with pytest.raises(InvalidRequestError) as caught:
        decoded(**fields)
    return caught.value


CHOICES: list[tuple[Any, ToolChoice]] = [
    (None, ToolChoice("auto")),
    ("auto", ToolChoice("auto")),
    ("none", ToolChoice("none")),
    ("required", ToolChoice("required")),
    (
        {"type": "function", "function": {"name": "clock"}},
        ToolChoice("required", ("clock",), named=True),
    ),
    ({"type": "function", "name": "clock"}, ToolChoice("required", ("clock",), named=True)),
    (
        {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "weather"}}],
            },
        },
        ToolChoice("required", ("weather",)),
    ),
    (
        {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "weather"}],
        },
        ToolChoice("auto", ("weather",)),
    ),
]


@pytest.mark.parametrize(("sent", "meant"), CHOICES)
def test_every_form_of_tool_choice_is_understood(sent: Any, meant: ToolChoice) -> None:
    """Plain words, a named function, and both shapes of allowed_tools."""
    assert decoded(tools=TOOLS, tool_choice=sent).conversation.choice == meant


def test_without_tools_nothing_can_be_called() -> None:
    """No tools, an empty list, or auto without tools: none."""
    cases: list[dict[str, Any]] = [{}, {"tools": []}, {"tool_choice": "auto"}]
    for fields in cases:
        assert decoded(**fields).conversation.choice == ToolChoice("none")


BAD_CHOICES: list[tuple[Any, str]] = [
    ("sometimes", "tool_choice"),
    (5, "tool_choice"),
    ([], "tool_choice"),
    ({"type": "custom", "custom": {"name": "x"}}, "tool_choice"),
    ({"type": "function", "function": {"name": "nobody"}}, "tool_choice"),
    ({"type": "function"}, "tool_choice"),
    ({"type": "allowed_tools", "allowed_tools": {"mode": "never", "tools": [CLOCK]}},
     "tool_choice.mode"),
    ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
     "tool_choice.tools"),
    ({"type": "allowed_tools", "tools": [{"name": "nobody"}]}, "tool_choice"),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "param"), BAD_CHOICES)
def test_impossible_choices_are_refused(sent: Any, param: str) -> None:
    """A choice that names nothing, or that nobody knows, is 400."""
    assert refused(tools=TOOLS, tool_choice=sent).param == param


def test_required_needs_tools() -> None:
    """There is nothing to require without tools."""
    error = refused(tool_choice="required")

    assert error.param == "tool_choice"
    assert "needs 'tools'" in error.message


BAD_TOOLS: list[tuple[Any, str, str]] = [
    ("x", "invalid_type", "tools"),
    (["x"], "invalid_type", "tools[0]"),
    ([{"type": "function"}], "missing_required_parameter", "tools[0].function"),
    ([{"type": "web_search"}], "invalid_value", "tools[0].type"),
    ([{"function": {}}], "missing_required_parameter", "tools[0].function.name"),
    ([{"function": {"name": 5}}], "invalid_type", "tools[0].function.name"),
    ([{"function": {"name": ""}}], "invalid_value", "tools[0].function.name"),
    ([{"function": {"name": "a b"}}], "invalid_value", "tools[0].function.name"),
    ([{"function": {"name": "a" * 65}}], "invalid_value", "tools[0].function.name"),
    ([{"function": {"name": "a\n"}}], "invalid_value", "tools[0].function.name"),
    ([{"function": {"name": "f", "parameters": []}}], "invalid_type",
     "tools[0].function.parameters"),
    ([{"function": {"name": "f", "strict": 1}}], "invalid_type", "tools[0].function.strict"),
    ([{"function": {"name": "f", "description": 1}}], "invalid_type",
     "tools[0].function.description"),
    ([CLOCK, WEATHER, CLOCK], "invalid_value", "tools[2].function.name"),
]  # fmt: skip


@pytest.mark.parametrize(("tools", "code", "param"), BAD_TOOLS)
def test_malformed_tools_are_refused(tools: Any, code: str, param: str) -> None:
    """Each fault of a tool is 400 with its path."""
    error = refused(tools=tools)

    assert (error.code, error.param) == (code, param)


def test_names_with_dots_and_dashes_are_accepted() -> None:
    """Model context protocol names have dots; 64 characters are allowed."""
    for name in ("fs.read-file", "a" * 64):
        tools = decoded(tools=[{"type": "function", "function": {"name": name}}]).conversation.tools
        assert [tool.name for tool in tools] == [name]


def test_the_template_sees_the_clients_keys_in_the_clients_order() -> None:
    """As SGLang 0.5.23: unset description and parameters are null at the end, extras are gone."""
    function = {"strict": False, "parameters": {"b": 1, "a": 2}, "name": "f", "x": 1}
    (tool,) = decoded(tools=[{"type": "function", "function": function}]).conversation.tools

    assert list(tool.function.items()) == [
        ("strict", False),
        ("parameters", {"b": 1, "a": 2}),
        ("name", "f"),
        ("description", None),
    ]


def test_the_deprecated_forms_mean_the_same() -> None:
    """The fields functions and function_call are tools and tool_choice."""
    old = decoded(
        functions=[WEATHER["function"], CLOCK["function"]], function_call={"name": "clock"}
    )
    new = decoded(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "clock"}})

    assert old.conversation == new.conversation
    assert old.constraint == new.constraint
    assert refused(tools=TOOLS, functions=[CLOCK["function"]]).param == "functions"


def schema_of(constraint: Constraint | None) -> Any:
    """Return the JSON schema of *constraint*."""
    assert constraint is not None
    assert constraint.kind == "json_schema"
    return json.loads(constraint.source)


def test_required_calls_are_an_array_of_calls() -> None:
    """The grammar that any model can write: a list of name and parameters."""
    request = decoded(tools=TOOLS, tool_choice="required", parallel_tool_calls=False)

    assert schema_of(request.constraint) == {
        "type": "array",
        "minItems": 1,
        "maxItems": 1,
        "items": {
            "type": "object",
            "anyOf": [
                {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "enum": ["weather"]},
                        "parameters": WEATHER["function"]["parameters"],
                    },
                    "required": ["name", "parameters"],
                },
                {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "enum": ["clock"]},
                        "parameters": {"type": "object", "properties": {}},
                    },
                    "required": ["name", "parameters"],
                },
            ],
        },
    }


def test_a_named_tool_is_the_only_item() -> None:
    """Naming a tool leaves one kind of item, and several calls of it."""
    choice = {"type": "function", "function": {"name": "clock"}}
    schema = schema_of(decoded(tools=TOOLS, tool_choice=choice).constraint)

    assert schema["items"]["properties"]["name"]["enum"] == ["clock"]
    assert "anyOf" not in schema["items"]
    assert "maxItems" not in schema


def a_tool_with_definitions(name: str, kind: str) -> dict[str, Any]:
    """Return a tool of two definitions, one of which refers to the other, a *kind*."""
    parameters = {
        "type": "object",
        "properties": {
            "$ref": {"$ref": "#/$defs/E"},
            "said": {"const": {"$ref": "#/$defs/D"}},
        },
        "$defs": {"D": {"type": kind}, "E": {"type": "array", "items": {"$ref": "#/$defs/D"}}},
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def test_definitions_move_to_the_root() -> None:
    """``#/$defs`` is resolved from the root, so definitions go there, equal ones once."""
    tools = [a_tool_with_definitions("a", "string"), a_tool_with_definitions("b", "string")]
    schema = schema_of(decoded(tools=tools, tool_choice="required").constraint)

    assert schema["$defs"] == tools[0]["function"]["parameters"]["$defs"]


def test_definitions_of_one_name_stay_apart() -> None:
    """What the second tool means by a name gets another, and its references, but not its data."""
    tools = [a_tool_with_definitions("a", "string"), a_tool_with_definitions("b", "integer")]
    schema = schema_of(decoded(tools=tools, tool_choice="required").constraint)
    first, second = (each["properties"]["parameters"] for each in schema["items"]["anyOf"])

    assert schema["$defs"] == {
        "D": {"type": "string"},
        "E": {"type": "array", "items": {"$ref": "#/$defs/D"}},
        "b.D": {"type": "integer"},
        "b.E": {"type": "array", "items": {"$ref": "#/$defs/b.D"}},
    }
    assert first["properties"]["$ref"] == {"$ref": "#/$defs/E"}
    assert second["properties"] == {
        "$ref": {"$ref": "#/$defs/b.E"},
        "said": {"const": {"$ref": "#/$defs/D"}},
    }


def test_auto_is_free() -> None:
    """The model may answer in words, so nothing constrains it."""
    assert decoded(tools=TOOLS).constraint is None


SCHEMA = {"type": "object", "properties": {"ü": {"type": "integer"}}}
GRAMMARS: list[tuple[dict[str, Any], Constraint | None]] = [
    ({"response_format": {"type": "text"}}, None),
    ({"response_format": {"type": "json_object"}},
     Constraint("json_schema", '{"type":"object"}')),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
     Constraint("json_schema", '{"type":"object","properties":{"ü":{"type":"integer"}}}')),
    ({"response_format": {"type": "structural_tag", "format": {}}},
     Constraint("structural_tag", '{"type":"structural_tag","format":{}}')),
    ({"regex": "a+"}, Constraint("regex", "a+")),
    ({"ebnf": 'root ::= "a"'}, Constraint("ebnf_grammar", 'root ::= "a"')),
    ({"guided_json": {"type": "array"}}, Constraint("json_schema", '{"type":"array"}')),
    ({"guided_json": '{"type": "array"}'}, Constraint("json_schema", '{"type": "array"}')),
    ({"guided_regex": "b"}, Constraint("regex", "b")),
    ({"guided_grammar": "root ::= x"}, Constraint("ebnf_grammar", "root ::= x")),
    ({"guided_choice": ["a.b", "c|d\\", "é f"]}, Constraint("regex", r"(a\.b|c\|d\\|é f)")),
    ({"structured_outputs": {"choice": ["x"], "regex": None}}, Constraint("regex", "(x)")),
    ({"structured_outputs": {"json_object": True}},
     Constraint("json_schema", '{"type":"object"}')),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "meant"), GRAMMARS)
def test_every_name_of_a_grammar_is_understood(
    fields: dict[str, Any], meant: Constraint | None
) -> None:
    """OpenAI's, SGLang's and vLLM's names give one constraint."""
    assert decoded(**fields).constraint == meant


BAD_GRAMMARS: list[tuple[dict[str, Any], str]] = [
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {}}, "response_format.type"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
     "response_format.json_schema.name"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}},
     "response_format.json_schema.name"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
     "response_format.json_schema.schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": []}}},
     "response_format.json_schema.schema"),
    ({"regex": ""}, "regex"),
    ({"regex": 5}, "regex"),
    ({"guided_choice": []}, "guided_choice"),
    ({"guided_choice": ["a", 5]}, "guided_choice[1]"),
    ({"structured_outputs": {"unheard": 1}}, "structured_outputs.unheard"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
    ({"regex": "a", "ebnf": "b"}, "ebnf"),
    ({"response_format": {"type": "json_object"}, "regex": "a"}, "regex"),
    ({"tools": TOOLS, "tool_choice": "required", "regex": "a"}, "tool_choice"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), BAD_GRAMMARS)
def test_impossible_grammars_are_refused(fields: dict[str, Any], param: str) -> None:
    """A malformed grammar, or a second one, is 400."""
    assert refused(**fields).param == param
