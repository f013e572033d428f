"""What is wrong with a body, in OpenAI's words: codes, ``param`` paths and sentences."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from sglr_dataplane.errors import InvalidJsonError, InvalidRequestError
from sglr_dataplane.prompt.json_values import is_array, is_object

_EXAMINED = 1 << 20
"""Bytes: larger bodies that are not JSON are not read again to say exactly why."""

_NAMES = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "a boolean",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_PATH = re.compile(r"^(?P<what>.*?)(?: - at `(?P<key>key in )?\$(?P<path>.*)`)?$", re.DOTALL)
_TYPE = re.compile(r"^Expected `(?P<expected>.+)`, got `(?P<got>.+)`$")
_MISSING = re.compile(r"^Object missing required field `(?P<name>.+)`$")


def missing(param: str) -> InvalidRequestError:
    """Return the refusal of a request without *param*."""
    return InvalidRequestError(
        f"Missing required parameter: '{param}'.",
        param=param,
        code="missing_required_parameter",
    )


def invalid(param: str, why: str, code: str = "invalid_value") -> InvalidRequestError:
    """Return the refusal of *param*; *why* is the rest of the sentence, without a full stop."""
    return InvalidRequestError(f"Invalid '{param}': {why}.", param=param, code=code)


def mistyped(param: str, expected: str, value: Any) -> InvalidRequestError:
    """Return the refusal of *value*, whose type is wrong; *expected* as in ``an object``."""
    return InvalidRequestError(
        f"Invalid type for '{param}': expected {expected}, but got {type_name(value)} instead.",
        param=param,
        code="invalid_type",
    )


def type_name(value: Any) -> str:
    """Return what decoded JSON *value* is, as in ``an array``."""
    if value is None:
        return "null"
    if is_object(value):
        return "an object"
    if is_array(value):
        return "an array"
    return _NAMES.get(type(value).__name__, "something else")


def of_validation(error: msgspec.ValidationError, within: str = "") -> InvalidRequestError:
    """Return msgspec's *error* as the client reads it; *within* is the path of what was read."""
    found = _PATH.match(str(error))
    what = found["what"] if found else str(error)
    path = (found["path"] or "" if found else "").replace("[...]", "").removeprefix(".")
    path = ".".join(part for part in (within, path) if part)
    absent = _MISSING.match(what)
    if absent:
        return missing(f"{path}.{absent['name']}" if path else absent["name"])
    types = _TYPE.match(what)
    if types is None:
        return InvalidRequestError(
            f"Invalid value for '{path}': {what}.", param=path or None, code="invalid_value"
        )
    expected = " or ".join(_known_names(types["expected"].split(" | ")))
    got = " or ".join(_known_names([types["got"]]))
    subject = f"Invalid type for '{path}'" if path else "Invalid request body"
    return InvalidRequestError(
        f"{subject}: expected {expected}, but got {got} instead.",
        param=path or None,
        code="invalid_type",
    )


def _known_names(names: list[str]) -> Iterable[str]:
    """Return *names* in words; null is left out unless it is all there is."""
    kept = [name for name in names if name != "null"] or names
    return [_NAMES.get(name, name) for name in kept]


def of_text(body: bytes, error: Exception) -> InvalidJsonError:
    """Return why *body* is not JSON; *error* is what the decoder said."""
    reason = _reason(body) if len(body) <= _EXAMINED else None
    return InvalidJsonError(
        f"The request body is not valid JSON: {reason or _lowered(str(error))}."
    )


def too_deep() -> InvalidJsonError:
    """Return the refusal of a body that is nested too deeply to be read."""
    return InvalidJsonError("The request body is nested too deeply to be read.")


def _reason(body: bytes) -> str | None:
    if not body.strip():
        return "it is empty"
    if body.startswith(b"\xef\xbb\xbf"):
        return "it begins with a byte order mark; send UTF-8 without one"
    try:
        return _reason_of_text(body.decode())
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 (byte {error.start})"


def _reason_of_text(text: str) -> str | None:
    constants: list[str] = []
    try:
        value = json.loads(text, parse_constant=constants.append)
    except json.JSONDecodeError as error:
        return f"{_lowered(error.msg)} (line {error.lineno}, column {error.colno})"
    except RecursionError:
        return "it is nested too deeply to be read"
    except ValueError:
        return "it holds a number with more than 4300 digits"
    if constants:
        return f"it holds {constants[0]}, which is no JSON number"
    path = _path_of_surrogate(value)
    return path and f"'{path}' holds half of a surrogate pair, which is no character"


def _path_of_surrogate(value: Any) -> str | None:
    waiting: list[tuple[Any, str]] = [(value, "")]
    while waiting:
        current, here = waiting.pop()
        if isinstance(current, str) and not _is_text(current):
            return here
        if is_object(current):
            if not all(map(_is_text, current)):
                return here or "the request body"
            waiting += [(item, f"{here}.{key}" if here else key) for key, item in current.items()]
        elif is_array(current):
            waiting += [(item, f"{here}[{at}]") for at, item in enumerate(current)]
    return None


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
