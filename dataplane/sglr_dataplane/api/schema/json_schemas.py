"""Whether a client's JSON Schema is one: told with its path before any worker hears of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from sglr_dataplane.api.schema.refusals import invalid, mistyped
from sglr_dataplane.prompt.json_values import is_array, is_object
from sglr_dataplane.prompt.ranges import shown

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
SPELLINGS = frozenset(
    {
        *("str", "text", "varchar", "char", "int", "long", "bigint", "float", "double", "decimal"),
        *("bool", "dict", "map", "list", "tuple", "any"),
    }
)
"""Names of types that people write in tools; sglang takes them there, and so do the parsers."""


def check_schema(schema: Any, path: str, *, also: frozenset[str] = frozenset()) -> None:
    """Refuse *schema* unless it is a JSON Schema, as far as its keywords' own shapes go.

    Args:
        schema: Decoded JSON.
        path: Where it stands in the request.
        also: Names of types that are accepted beside JSON Schema's.

    Raises:
        InvalidRequestError: A keyword has a value that it cannot have, or a reference within the
            schema leads nowhere; *param* is its path.
    """
    _Check(schema, also).schema(schema, path)


class _Check:
    """One schema at examination."""

    def __init__(self, root: Any, also: frozenset[str]) -> None:
        self._root = root
        self._types = _TYPES | also

    def schema(self, value: Any, path: str) -> None:
        """Check a schema, or a part of one that is one itself."""
        if isinstance(value, bool):
            return
        if not is_object(value):
            raise mistyped(path, "a JSON Schema: an object or a boolean", value)
        for keyword, said in value.items():
            check = _KEYWORDS.get(keyword)
            if check is not None:
                check(self, said, f"{path}.{keyword}")

    def type(self, value: Any, path: str) -> None:
        """Check a type's name, or several."""
        names = value if is_array(value) else [value]
        for name in names:
            if not isinstance(name, str):
                raise mistyped(path, "a string or an array of strings", name)
            if name.lower() not in self._types:
                known = ", ".join(sorted(_TYPES))
                raise invalid(path, f"{shown(name)} is no type; the types are: {known}")
        if not names:
            raise invalid(path, "expected at least one type", "empty_array")

    def named(self, value: Any, path: str) -> None:
        """Check schemas by name."""
        if not is_object(value):
            raise mistyped(path, "an object", value)
        for name, schema in value.items():
            self.schema(schema, f"{path}.{name}")

    def several(self, value: Any, path: str) -> None:
        """Check a list of schemas."""
        if not is_array(value):
            raise mistyped(path, "an array", value)
        if not value:
            raise invalid(path, "expected at least one schema", "empty_array")
        for at, schema in enumerate(value):
            self.schema(schema, f"{path}[{at}]")

    def items(self, value: Any, path: str) -> None:
        """Check what items are: older schemas have a list of them."""
        if is_array(value):
            for at, schema in enumerate(value):
                self.schema(schema, f"{path}[{at}]")
        else:
            self.schema(value, path)

    def names(self, value: Any, path: str) -> None:
        """Check a list of property names."""
        if not is_array(value):
            raise mistyped(path, "an array of strings", value)
        for at, name in enumerate(value):
            if not isinstance(name, str):
                raise mistyped(f"{path}[{at}]", "a string", name)

    def choices(self, value: Any, path: str) -> None:
        """Check a list of values."""
        if not is_array(value):
            raise mistyped(path, "an array", value)
        if not value:
            raise invalid(path, "expected at least one value", "empty_array")

    def count(self, value: Any, path: str) -> None:
        """Check a number of things."""
        whole = value.is_integer() if isinstance(value, float) else isinstance(value, int)
        if not whole or isinstance(value, bool):
            raise mistyped(path, "an integer", value)
        if value < 0:
            raise invalid(path, f"expected 0 or more, but got {value}")

    def number(self, value: Any, path: str) -> None:
        """Check a number; older schemas have a boolean beside the limit."""
        if not isinstance(value, int | float):
            raise mistyped(path, "a number", value)

    def text(self, value: Any, path: str) -> None:
        """Check a string."""
        if not isinstance(value, str):
            raise mistyped(path, "a string", value)

    def reference(self, value: Any, path: str) -> None:
        """Check a reference: one within the schema must lead somewhere."""
        self.text(value, path)
        if not value.startswith("#/"):
            return
        found = self._root
        for step in value[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if is_array(found) and name.isdigit() and int(name) < len(found):
                found = found[int(name)]
            elif is_object(found) and name in found:
                found = found[name]
            else:
                raise invalid(path, f"{shown(value)} leads nowhere in this schema")


_Keyword = Callable[[_Check, Any, str], None]
_KEYWORDS: Mapping[str, _Keyword] = MappingProxyType(
    {
        "type": _Check.type,
        "items": _Check.items,
        "required": _Check.names,
        "enum": _Check.choices,
        "pattern": _Check.text,
        "$ref": _Check.reference,
        **dict.fromkeys(
            ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"),
            _Check.named,
        ),
        **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), _Check.several),
        **dict.fromkeys(
            (
                *("additionalProperties", "unevaluatedProperties", "propertyNames", "contains"),
                *("not", "if", "then", "else"),
            ),
            _Check.schema,
        ),
        **dict.fromkeys(
            ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
            _Check.count,
        ),
        **dict.fromkeys(
            ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
            _Check.number,
        ),
    }
)
