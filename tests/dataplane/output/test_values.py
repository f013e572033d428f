"""Values that models write as text, typed by the tool's schema."""

from __future__ import annotations

from typing import Any

import pytest

from sglr_dataplane.output.values import json_of, kinds_of_property

PARAMETERS: dict[str, Any] = {
    "$defs": {"Days": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
    "properties": {
        "plain": {"type": "string"},
        "both": {"type": ["string", "null"]},
        "nullable": {"type": "integer", "nullable": True},
        "referred": {"$ref": "#/$defs/Days"},
        "loop": {"$ref": "#/$defs/Loop"},
        "any": {"anyOf": [{"type": "number"}, {"type": "string"}]},
        "all": {"allOf": [{"$ref": "#/$defs/Days"}]},
        "enum": {"enum": ["a", 1]},
        "const": {"const": True},
        "sql": {"type": "varchar"},
        "upper": {"type": "INTEGER"},
        "nothing": {},
        "wrong": ["no schema"],
        "wrong_type": {"type": 3, "enum": "x", "anyOf": {}},
    },
}


@pytest.mark.parametrize(
    ("key", "kinds"),
    [
        ("plain", ("string",)),
        ("both", ("string", "null")),
        ("nullable", ("integer", "null")),
        ("referred", ("integer",)),
        ("loop", ()),
        ("any", ("number", "string")),
        ("all", ("integer",)),
        ("enum", ("string", "integer")),
        ("const", ("boolean",)),
        ("sql", ("string",)),
        ("upper", ("integer",)),
        ("nothing", ()),
        ("wrong", ()),
        ("wrong_type", ()),
        ("absent", ()),
    ],
)
def test_the_schema_says_which_types_a_property_has(key: str, kinds: tuple[str, ...]) -> None:
    """Through references, unions, lists, enums and other spellings; nonsense says nothing."""
    assert kinds_of_property(PARAMETERS, key) == kinds


def test_without_a_schema_nothing_is_said() -> None:
    """A tool without parameters, or with something else in their place."""
    assert kinds_of_property(None, "a") == ()
    assert kinds_of_property({"properties": 3}, "a") == ()


@pytest.mark.parametrize(
    ("text", "kinds", "json"),
    [
        ("123", ("string",), '"123"'),
        ("null", ("string",), '"null"'),
        ('{"not": "an object"}', ("string",), '"{\\"not\\": \\"an object\\"}"'),
        ("3", ("integer",), "3"),
        ("01234", ("integer",), '"01234"'),
        ("123_456", ("integer",), '"123_456"'),
        ("12345678901234567890123", ("integer",), "12345678901234567890123"),
        ("1e5", ("number",), "1e5"),
        ("many", ("integer",), '"many"'),
        ("null", ("integer",), "null"),
        ("null", ("string", "null"), "null"),
        ("true", ("boolean",), "true"),
        ("True", ("boolean",), "true"),
        ("None", ("object",), "null"),
        ("{'a': [1, (2, 3)]}", ("object",), '{"a": [1, [2, 3]]}'),
        ('{"a":1}', ("object",), '{"a":1}'),
        ("'x'", ("array",), '"x"'),
        ("NaN", ("number",), '"NaN"'),
        ("5", ("integer", "string"), "5"),
        ("5", ("number", "string"), "5"),
        ("5", ("string", "integer"), '"5"'),
        ("x", ("integer", "string"), '"x"'),
        ("[1, 2]", (), "[1, 2]"),
        ("True", (), '"True"'),
        ("plain text", (), '"plain text"'),
        ("[1, 2", (), '"[1, 2"'),
        ("é", (), '"é"'),
        ("a &amp; b", ("string",), '"a &amp; b"'),
        ("", ("integer",), '""'),
    ],
)
def test_a_value_becomes_what_its_types_allow(text: str, kinds: tuple[str, ...], json: str) -> None:
    """A string stays a string, digits all count, and what is no literal of a type is a string."""
    assert json_of(text, kinds) == json
