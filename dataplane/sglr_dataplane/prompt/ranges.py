"""Checks of one number or list, refused in OpenAI's words and codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglr_dataplane.errors import InvalidRequestError

_SHOWN = 60
"""Characters of a value that a message repeats."""


def integer_in(value: int | None, param: str, low: int, high: int) -> int | None:
    """Return *value*, if it is None or within *low* to *high*.

    Raises:
        InvalidRequestError: It is not.
    """
    if value is None or low <= value <= high:
        return value
    raise _outside("integer", value, param, low, high)


def number_in(value: float | None, param: str, low: float, high: float) -> float | None:
    """Return *value*, if it is None or within *low* to *high*.

    Raises:
        InvalidRequestError: It is not.
    """
    if value is None or low <= value <= high:  # which NaN is not
        return value
    raise _outside("decimal", value, param, low, high)


def _outside(kind: str, value: float, param: str, low: float, high: float) -> InvalidRequestError:
    below = value < low
    noun = "an integer" if kind == "integer" else "a number"
    return InvalidRequestError(
        f"Invalid '{param}': expected {noun} from {low} to {high}, but got {shown(value)}.",
        param=param,
        code=f"{kind}_{'below_min' if below else 'above_max'}_value",
    )


def at_most(items: Sequence[Any], param: str, limit: int) -> None:
    """Refuse more than *limit* items.

    Raises:
        InvalidRequestError: There are more.
    """
    if len(items) > limit:
        raise InvalidRequestError(
            f"Invalid '{param}': array too long. Expected at most {limit} items, but got"
            f" {len(items)}.",
            param=param,
            code="array_above_max_length",
        )


def shown(value: Any) -> str:
    """Return *value* for a message: its ``repr``, shortened when it is long."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more than 4,300 digits has no text
        return "a very long number"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
