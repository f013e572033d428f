"""A JSON value that fits a schema, filled with words of a message. Pure.

It knows the keywords that tools and response formats use; what it does not know it ignores.
"""

from __future__ import annotations

import re
from typing import Any

from sglr_dataplane.sim.shapes import list_of, object_of

_DEPTH = 16
"""Where a schema that refers to itself is cut off."""


def fill(schema: object, message: str) -> Any:
    """Return a value for *schema*, taken from *message* where it has one of the right type."""
    root = object_of(schema)
    return _Filler(root, message).value(root, 0)


class _Filler:
    """Fills the parts of one schema."""

    def __init__(self, root: dict[str, Any], message: str) -> None:
        self._root = root
        self._message = message

    def value(self, schema: dict[str, Any], depth: int) -> Any:
        """Return a value for *schema*, found *depth* levels below the root."""
        if depth > _DEPTH:
            return None
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._chosen(list_of(schema["enum"]))
        inner = self._inner(schema)
        return self._of_type(schema, depth) if inner is None else self.value(inner, depth + 1)

    def _of_type(self, schema: dict[str, Any], depth: int) -> Any:
        kinds = schema.get("type", "object" if "properties" in schema else "string")
        kind = str(kinds if isinstance(kinds, str) else (list_of(kinds) or ["string"])[0])
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                items = object_of(schema.get("items"))
                return [self.value(items, depth + 1) for _ in range(schema.get("minItems", 1))]
            case "integer" | "number":
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                return self._words(schema)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        """Return an object with what *schema* requires; with every property when it says nothing."""
        properties = object_of(schema.get("properties"))
        wanted = list_of(schema.get("required", list(properties)))
        return {key: self.value(object_of(properties.get(key)), depth + 1) for key in wanted}

    def _inner(self, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Return the schema that *schema* stands for: a reference's target or a first choice.

        None when it stands for itself.
        """
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            target = self._root
            for step in filter(None, reference[1:].split("/")):
                target = object_of(target.get(step))
            return target
        choices = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        return object_of(choices[0]) if choices else None

    def _chosen(self, values: list[Any]) -> Any:
        """Return the first of *values* the message names, else the first."""
        said = self._message.lower()
        return next((v for v in values if isinstance(v, str) and v.lower() in said), values[0])

    def _number(self, schema: dict[str, Any], *, whole: bool) -> float:
        """Return the message's first number, moved into the schema's bounds."""
        found = re.search(r"-?\d+(?:\.\d+)?", self._message)
        value = float(found[0]) if found else 1.0
        value = max(value, float(schema.get("minimum", value)))
        value = min(value, float(schema.get("maximum", value)))
        return int(value) if whole or value.is_integer() else value

    def _words(self, schema: dict[str, Any]) -> str:
        """Return what the message quotes, else its first name, else its last word."""
        quoted = re.search(r"[\"“']([^\"”']+)[\"”']", self._message)
        names = re.findall(r"(?<=[\w,:]\s)[A-Z]\w+(?:\s[A-Z]\w+)*", self._message)
        words = re.findall(r"\w+", self._message)
        chosen: str = quoted[1] if quoted else ([*words, *names[:1]] or ["text"])[-1]
        chosen = chosen.ljust(schema.get("minLength", 0), "x")
        return chosen[: schema.get("maxLength", len(chosen))]
