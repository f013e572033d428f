"""JSON of unknown shape, read as what it should be. Pure."""

from __future__ import annotations

from typing import Any, TypeGuard


def object_of(value: object) -> dict[str, Any]:
    """Return *value* when it is a JSON object, else an empty one."""
    return value if _is_object(value) else {}


def list_of(value: object) -> list[Any]:
    """Return *value* when it is a JSON array, else an empty one."""
    return value if _is_list(value) else []


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
