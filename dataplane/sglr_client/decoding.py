"""From an answer's JSON to results, with unknown fields kept and nulls taken as defaults; pure."""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from sglr_client.json_values import is_list, is_object
from sglr_client.results import Embeddings, Result

R = TypeVar("R", bound=Result)


def decoded(data: bytes, kind: type[R]) -> R:
    """Return *data*, a JSON object, as a *kind*.

    Raises:
        ValueError: It is not JSON, not an object, or a field has a wrong type; says where.
    """
    return converted(msgspec.json.decode(data), kind)


def converted(document: Any, kind: type[R]) -> R:
    """Return *document*, decoded JSON, as a *kind*.

    Raises:
        ValueError: It is not an object, or a field has a wrong type; says where.
    """
    if not is_object(document):
        raise msgspec.ValidationError(f"Expected an object, got {type(document).__name__!r}.")
    return msgspec.convert(_tidy(document, kind), kind)


def embeddings(data: bytes) -> Embeddings:
    """Return *data* as embeddings, those in base64 as numbers too.

    Raises:
        ValueError: As for `decoded`.
    """
    document: Any = msgspec.json.decode(data)
    if is_object(document) and is_list(entries := document.get("data")):
        for entry in entries:
            if is_object(entry) and isinstance(entry.get("embedding"), str):
                entry["embedding"] = _floats(entry["embedding"])
    return converted(document, Embeddings)


def _floats(text: str) -> list[float]:
    # OpenAI: base64 of little-endian 32-bit floats.
    numbers = array("f", b64decode(text, validate=True))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _tidy(document: dict[str, Any], kind: type[Result]) -> dict[str, Any]:
    """Return *document* without nulls, with what *kind* does not name moved to ``extra``."""
    plan = _plan(kind)
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in document.items():
        if name not in plan:
            extra[name] = value
        elif value is not None:
            nested = plan[name]
            known[name] = value if nested is None else _tidy_value(value, nested)
    if extra:
        known["extra"] = extra
    return known


def _tidy_value(value: Any, kind: type[Result]) -> Any:
    if is_object(value):
        return _tidy(value, kind)
    if is_list(value):
        return [_tidy(entry, kind) if is_object(entry) else entry for entry in value]
    return value


@cache
def _plan(kind: type[Result]) -> dict[str, type[Result] | None]:
    """Return the fields of *kind*, each with the struct it holds, alone or in a list."""
    hints = get_type_hints(kind)
    return {name: _held(hints[name]) for name in kind.__struct_fields__ if name != "extra"}


def _held(hint: Any) -> type[Result] | None:
    if isinstance(hint, type) and issubclass(hint, Result):
        return hint
    held = (_held(part) for part in get_args(hint))
    return next((part for part in held if part is not None), None)
