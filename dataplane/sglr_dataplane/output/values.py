"""Values that models write as plain text, typed by the tool's schema and written as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from sglr_dataplane.output.json_text import JsonScanner
from sglr_dataplane.output.python_text import python_literal

Kinds = tuple[str, ...]
"""JSON Schema types a value may have, in the schema's order; empty when nothing is said."""

STRING: Kinds = ("string",)
_SPELLINGS = {
    "str": "string",
    "text": "string",
    "varchar": "string",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "dict": "object",
    "map": "object",
    "list": "array",
    "tuple": "array",
}
_PYTHON_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?P<fraction>\.\d+)?(?P<exponent>[eE][-+]?\d+)?", re.ASCII)
_DEEPEST = 16


def properties_of(parameters: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the properties that *parameters*, a tool's schema, name, in their order."""
    return _members((parameters or {}).get("properties"))


def kinds_of_property(parameters: Mapping[str, Any] | None, key: str) -> Kinds:
    """Return what *parameters*, a tool's schema, say of the types of its property *key*."""
    schema = properties_of(parameters).get(key)
    return tuple(dict.fromkeys(_kinds(schema, parameters or {}, _DEEPEST)))


def _kinds(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Yield the types *schema* allows; *depth* guards against references that go in circles."""
    said = _members(schema)
    if not said or depth == 0:
        return
    declared = said.get("type")
    for kind in _items(declared) or [declared]:
        if isinstance(kind, str):
            yield _SPELLINGS.get(kind.lower(), kind.lower())
    if said.get("nullable") is True:
        yield "null"
    if declared is None:
        values: list[Any] = [said["const"]] if "const" in said else _items(said.get("enum"))
        for value in values:
            yield _kind_of(value)
    yield from _kinds(_referred(said.get("$ref"), root), root, depth - 1)
    for word in ("anyOf", "oneOf", "allOf"):
        for member in _items(said.get(word)):
            yield from _kinds(member, root, depth - 1)


def _kind_of(value: object) -> str:
    """Return the JSON Schema type of *value*, an enum's member."""
    return _PYTHON_TYPES.get(type(value), "string")


def _referred(reference: Any, root: Mapping[str, Any]) -> Any:
    """Return the part of *root* that a ``#/…`` *reference* names; None when there is none."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: Any = root
    for step in reference[2:].split("/"):
        found = _members(found).get(step)
    return found


def _members(value: Any) -> Mapping[str, Any]:
    """Return *value* if it is a JSON object; a client may write anything there."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _items(value: Any) -> list[Any]:
    """Return *value* if it is a JSON array."""
    return [*cast("Iterable[Any]", value)] if isinstance(value, list) else []


def json_of(text: str, kinds: Kinds) -> str:
    """Return *text* as JSON, as one of *kinds* where it is one, else as a string.

    A string schema keeps every text, also ``123`` and ``null``; a union with strings takes another
    type only when the schema lists it first and the text is a whole literal of it.
    """
    bare = text.strip()
    if bare == "null" and "null" in kinds:
        return bare
    if "string" in kinds:
        preferred = kinds[: kinds.index("string")]
        return bare if literal_kind(bare) in _with_integers(preferred) else quoted(text)
    if literal_kind(bare) is not None:
        return bare
    said = python_literal(bare) if kinds else None
    return quoted(text) if said is None else said


def quoted(text: str) -> str:
    """Return *text* as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def literal_kind(text: str) -> str | None:
    """Return the JSON type of *text* when it is one whole JSON value, else None."""
    if text in ("true", "false"):
        return "boolean"
    if text == "null":
        return "null"
    number = _NUMBER.fullmatch(text)
    if number is not None:
        return "integer" if number["fraction"] is None and number["exponent"] is None else "number"
    if text[:1] not in ("{", "[", '"'):
        return None
    scanner = JsonScanner()
    if scanner.scan(text, 0) < len(text) or not (scanner.done and scanner.valid):
        return None
    return {"{": "object", "[": "array", '"': "string"}[text[0]]


def _with_integers(kinds: Kinds) -> Kinds:
    return (*kinds, "integer") if "number" in kinds else kinds
