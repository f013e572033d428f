"""JSON values for schemas."""

from __future__ import annotations

from typing import Any

import pytest

from sglr_dataplane.sim.instance import fill


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"const": 7}, 7),
        ({"enum": ["red", "green"]}, "green"),
        ({"enum": [3, 4]}, 3),
        ({"type": "integer"}, 42),
        ({"type": "number", "maximum": 1.5}, 1.5),
        ({"type": "integer", "minimum": 50}, 50),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": ["integer", "null"]}, 42),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [42, 42]),
        ({"type": "string"}, "Paris"),
        ({"type": "string", "maxLength": 2}, "Pa"),
        ({"type": "string", "minLength": 7}, "Parisxx"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 42),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, 42),
        ({"properties": {"a": {"type": "integer"}}}, {"a": 42}),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]}, {"b": "Paris"}),
        ({"type": "object"}, {}),
        (True, "Paris"),
    ],
)
def test_values_fit_their_schema(schema: Any, value: object) -> None:
    """And come from the message where it has one."""
    assert fill(schema, "paint 42 walls green in Paris") == value


def test_quoted_words_come_first() -> None:
    """What a user puts in quotes is meant as a value."""
    assert fill({"type": "string"}, 'Search "deep sea" in Paris') == "deep sea"


def test_a_message_without_words_still_gives_a_string() -> None:
    """Nothing to take from."""
    assert fill({"type": "string"}, "?") == "text"


def test_a_schema_that_contains_itself_ends() -> None:
    """Cut off at a depth."""
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}

    assert '"next": None' in str(fill(schema, "")).replace("'", '"')
