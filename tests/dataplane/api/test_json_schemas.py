"""A client's JSON Schema is checked before a worker hears of it; the error names the place."""

from __future__ import annotations

from typing import Any

import pytest

from sglr_dataplane.api.schema.json_schemas import SPELLINGS, check_schema
from sglr_dataplane.errors import InvalidRequestError

RIGHT: list[Any] = [
    {},
    True,
    {"type": ["string", "null"], "minLength": 0, "pattern": "^a"},
    {
        "type": "object",
        "properties": {"type": {"type": "string"}, "enum": {"enum": [None]}, "$ref": True},
        "required": ["type"],
        "additionalProperties": False,
    },
    {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"items": [{"type": "integer"}, True]}}},
    {"anyOf": [{"$ref": "#/anyOf/1"}, {"maximum": 1.5, "exclusiveMaximum": True}]},
    {"$ref": "https://example.org/other", "unheard": {"type": 5}, "const": {"type": 5}},
    {"default": {"properties": 1}, "examples": [{"required": 1}], "maxItems": 2.0},
]

WRONG: list[tuple[Any, str, str]] = [
    ({"type": "objekt"}, "s.type", "'objekt' is no type"),
    ({"type": []}, "s.type", "at least one type"),
    ({"type": [1]}, "s.type", "a string"),
    ({"properties": []}, "s.properties", "an object"),
    ({"properties": {"a": {"type": "x"}}}, "s.properties.a.type", "'x' is no type"),
    ({"properties": {"a": "string"}}, "s.properties.a", "a JSON Schema"),
    ({"required": True}, "s.required", "an array of strings"),
    ({"required": ["a", 1]}, "s.required[1]", "a string"),
    ({"enum": []}, "s.enum", "at least one value"),
    ({"anyOf": []}, "s.anyOf", "at least one schema"),
    ({"anyOf": [{}, {"not": 1}]}, "s.anyOf[1].not", "a JSON Schema"),
    ({"items": [{"type": "x"}]}, "s.items[0].type", "'x' is no type"),
    ({"items": 1}, "s.items", "a JSON Schema"),
    ({"minItems": -1}, "s.minItems", "0 or more"),
    ({"minItems": True}, "s.minItems", "an integer"),
    ({"minItems": float("inf")}, "s.minItems", "an integer"),
    ({"minItems": 1.5}, "s.minItems", "an integer"),
    ({"maximum": "1"}, "s.maximum", "a number"),
    ({"pattern": 1}, "s.pattern", "a string"),
    ({"$ref": "#/$defs/a"}, "s.$ref", "leads nowhere"),
    ({"$ref": "#/anyOf/2", "anyOf": [{}]}, "s.$ref", "leads nowhere"),
    ({"$defs": {"a": {"items": {"enum": 1}}}}, "s.$defs.a.items.enum", "an array"),
    ("string", "s", "a JSON Schema"),
]


@pytest.mark.parametrize("schema", RIGHT)
def test_what_is_a_schema_passes(schema: Any) -> None:
    """Names of properties are no keywords, and what a keyword is unknown for is let alone."""
    check_schema(schema, "s")


@pytest.mark.parametrize(("schema", "path", "words"), WRONG)
def test_what_is_none_is_refused_with_its_path(schema: Any, path: str, words: str) -> None:
    """400 that names the keyword."""
    with pytest.raises(InvalidRequestError) as caught:
        check_schema(schema, "s")

    assert caught.value.param == path
    assert words in caught.value.message


def test_what_people_call_types_passes_in_tools_only() -> None:
    """SGLang takes such names in tools, where only templates and parsers read them."""
    schema = {"properties": {"a": {"type": "varchar"}, "b": {"type": "Dict"}}}
    check_schema(schema, "s", also=SPELLINGS)

    with pytest.raises(InvalidRequestError, match="varchar"):
        check_schema(schema, "s")
