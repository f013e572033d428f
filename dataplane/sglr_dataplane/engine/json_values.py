"""Decoded JSON, looked into with its types known; pure."""

from __future__ import annotations

from typing import Any, TypeGuard

import msgspec


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Return whether *value* is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Return whether *value* is a JSON array."""
    return isinstance(value, list)


def object_in(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object that *data* is; None when it is none."""
    try:
        found: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if is_object(found) else None
