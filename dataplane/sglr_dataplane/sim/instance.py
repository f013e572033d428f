"""A JSON value that fits a schema, filled with words of a message. Pure.

It knows the keywords that tools and response formats use; what it does not know it ignores.
"""

from __future__ import annotations

import re
from typing import Any

_DEPTH = 16
"""Where a schema that refers to itself is cut off."""


def fill(schema: Any, message: str) -> Any:
    """Return a value for *schema*, taken from *message* where it has one of the right type."""
    return _Filler(schema if isinstance(schema, dict) else {}, message).value(schema, "", 0)


class _Filler:
    """Fills the parts of one schema."""

    def __init__(self, root: dict[str, Any], message: str) -> None:
        self._root = root
        self._message = message

    def value(self, schema: Any, name: str, depth: int) -> Any:
        """Return a value for *schema*, the schema of the property *name*."""
        if not isinstance(schema, dict) or depth > _DEPTH:
            return None
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._chosen(list(schema["enum"]))
        inner = self._inner(schema)
        if inner is not None:
            return self.value(inner, name, depth + 1)
        return self._of_type(schema, name, depth)

    def _of_type(self, schema: dict[str, Any], name: str, depth: int) -> Any:
        kind = schema.get("type", "object" if "properties" in schema else "string")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if kind == "object":
            properties = schema.get("properties", {})
            wanted = schema.get("required", list(properties))
            return {key: self.value(properties.get(key, {}), key, depth + 1) for key in wanted}
        if kind == "array":
            count = max(schema.get("minItems", 1), 0)
            return [self.value(schema.get("items", {}), name, depth + 1) for _ in range(count)]
        if kind in {"integer", "number"}:
            return self._number(schema, whole=kind == "integer")
        return {"boolean": True, "null": None}.get(kind, self._words(schema))

    def _inner(self, schema: dict[str, Any]) -> Any:
        """Return the schema that *schema* stands for: a reference's target or a first choice."""
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            target: Any = self._root
            for step in reference[2:].split("/"):
                target = target.get(step, {}) if isinstance(target, dict) else {}
            return target
        choices = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        return choices[0] if choices else None

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
        """Return what the message quotes, else its last name, else its last word."""
        quoted = re.search(r"[\"“']([^\"”']+)[\"”']", self._message)
        names = re.findall(r"(?<=\w\s)[A-Z]\w+(?:\s[A-Z]\w+)*", self._message)
        words = re.findall(r"\w+", self._message)
        chosen = quoted[1] if quoted else (names or words or ["text"])[-1]
        chosen = chosen.ljust(schema.get("minLength", 0), "x")
        return chosen[: schema.get("maxLength", len(chosen))]
