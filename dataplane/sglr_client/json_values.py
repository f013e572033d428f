"""What decoded JSON is, told to the type checker; pure."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Say whether *value*, decoded JSON, is an object."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Say whether *value*, decoded JSON, is a list."""
    return isinstance(value, list)
