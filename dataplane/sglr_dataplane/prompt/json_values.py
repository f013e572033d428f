"""Decoded JSON, with the types that ``isinstance`` alone does not give."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether decoded JSON *value* is an object: its keys are strings."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Return whether decoded JSON *value* is an array."""
    return isinstance(value, list)


def path_of_nul(value: Any, path: str = "") -> str | None:
    """Return where in *value* a NUL is, such as ``messages[0].content``; None when nowhere.

    NUL is legal in JSON, never meant, and ends C strings early.

    Args:
        value: Decoded JSON; walked without recursion.
        path: What *value* itself is called.
    """
    waiting: list[tuple[Any, str]] = [(value, path)]
    while waiting:
        current, here = waiting.pop()
        if isinstance(current, str):
            if "\0" in current:
                return here
        elif is_object(current):
            if any("\0" in key for key in current):
                return here
            waiting += [(item, f"{here}.{key}" if here else key) for key, item in current.items()]
        elif is_array(current):
            waiting += [(item, f"{here}[{at}]") for at, item in enumerate(current)]
    return None
