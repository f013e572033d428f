"""JSON of unknown shape, read as what it should be. Pure."""

from __future__ import annotations

from typing import Any, cast


def object_of(value: object) -> dict[str, Any]:
    """Return *value* when it is a JSON object, else an empty one."""
    if not isinstance(value, dict):
        return {}
    return cast("dict[str, Any]", value)  # the keys of JSON objects are strings


def list_of(value: object) -> list[Any]:
    """Return *value* when it is a JSON array, else an empty one."""
    if not isinstance(value, list):
        return []
    return cast("list[Any]", value)  # the elements are checked where they are used
