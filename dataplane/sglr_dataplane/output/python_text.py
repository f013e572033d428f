"""Python literals as a model writes them, rewritten as JSON while they come."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from sglr_dataplane.output.json_text import LITERAL
from sglr_dataplane.output.source import MismatchError, Reading, Source

Emit = Callable[[str], object]

_QUOTES = ('"""', "'''", '"', "'")
_WORD = re.compile(r"\w")
_NUMERIC = re.compile(r"[-+.\w]")
_HEX = re.compile(r"[0-9a-fA-F]")
_CONSTANTS = {
    "True": "true",
    "False": "false",
    "None": "null",
    "true": "true",
    "false": "false",
    "null": "null",
}
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "a": "\a",
    "0": "\0",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "\n": "",
}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_HIGHEST = 0x10FFFF
_DEEPEST = 64


def python_literal(text: str) -> str | None:
    """Return the Python literal *text* as JSON; None when it is none, or a plain number or name."""
    if not text.startswith(("'", '"', "[", "(", "{")) and text not in _CONSTANTS:
        return None
    source = Source()
    source.push([_Whole(text)])
    source.ended = True
    parts: list[str] = []
    try:
        next(python_value(source, parts.append))
    except StopIteration as end:
        _, at = source.unread()
        return "".join(parts) if end.value and at == len(text) else None
    except MismatchError:
        return None
    return None


class _Whole:
    """A text as one piece."""

    token_id: int | None = None

    def __init__(self, text: str) -> None:
        self.text = text


def python_value(source: Source, emit: Emit, depth: int = _DEEPEST) -> Reading[bool]:
    """Read one Python (or JSON) literal and give it to *emit* as JSON.

    Returns:
        Whether it is whole; False when the text ended in it.

    Raises:
        MismatchError: No literal comes next, or it is nested too deep.
    """
    if depth == 0:
        raise MismatchError
    yield from source.space()
    sign = yield from source.peek()
    if sign == "":
        return False
    if sign in "'\"":
        return (yield from _strings(source, emit, raw=False))
    if sign in "[({":
        return (yield from _container(source, emit, depth))
    if sign.isdigit() or sign in "-+.":
        emit(_number((yield from source.run(_NUMERIC))))
        return True
    word = yield from source.run(_WORD)
    if not word:
        raise MismatchError
    if word.lower() in ("r", "b", "u", "f", "rb", "br") and (yield from source.peek()) in tuple(
        "'\""
    ):
        return (yield from _strings(source, emit, raw="r" in word.lower()))
    emit(_CONSTANTS.get(word) or json.dumps(word, ensure_ascii=False))
    return True


def python_string(source: Source) -> Reading[str]:
    """Read a Python string and return what it says.

    Raises:
        MismatchError: No whole Python string comes next.
    """
    parts: list[str] = []
    if (yield from source.peek()) not in ("'", '"'):
        raise MismatchError
    if not (yield from _strings(source, parts.append, raw=False)):
        raise MismatchError
    said: str = json.loads("".join(parts))
    return said


def _number(text: str) -> str:
    """Return the Python number *text* as JSON."""
    if LITERAL.fullmatch(text):
        return text
    try:
        return json.dumps(int(text, 0))
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        raise MismatchError from None
    if not math.isfinite(number):
        raise MismatchError
    return json.dumps(number)


def _strings(source: Source, emit: Emit, *, raw: bool) -> Reading[bool]:
    """Read a string, and those that directly follow it: Python joins them."""
    emit('"')
    while (quote := (yield from source.literal(*_QUOTES))) is not None:
        if not (yield from _string_body(source, emit, quote, raw=raw)):
            return False
        yield from source.space()
    emit('"')
    return True


def _string_body(source: Source, emit: Emit, quote: str, *, raw: bool) -> Reading[bool]:
    wanted = source.markers(quote, "\\")
    while True:
        found = yield from source.until(wanted, lambda text: emit(_escaped(text)))
        if found is None:
            return False
        yield from source.expect(found)
        if found == quote:
            return True
        if not (yield from source.more()):
            return False
        emit((yield from _escape(source, raw=raw)))


def _escape(source: Source, *, raw: bool) -> Reading[str]:
    """Read what follows a backslash; return it as the inside of a JSON string."""
    _, at = source.unread()
    letter = source.take(at + 1)
    if raw:
        return _escaped("\\" + letter)
    if letter in _HEX_ESCAPES:
        wanted = _HEX_ESCAPES[letter]
        digits: list[str] = []
        while len(digits) < wanted and _HEX.match((yield from source.peek())):
            _, at = source.unread()
            digits.append(source.take(at + 1))
        code = int("".join(digits), 16) if len(digits) == wanted else _HIGHEST + 1
        if code > _HIGHEST:
            return _escaped("\\" + letter + "".join(digits))
        # Half of a surrogate pair can only be written escaped.
        is_half = 0xD800 <= code <= 0xDFFF  # noqa: PLR2004  # the range of surrogates
        return f"\\u{code:04x}" if is_half else _escaped(chr(code))
    return _escaped(_ESCAPES.get(letter, "\\" + letter))


def _container(source: Source, emit: Emit, depth: int) -> Reading[bool]:
    opened = yield from source.expect("[", "(", "{")
    closes = {"[": "]", "(": ")", "{": "}"}[opened]
    emit("{" if opened == "{" else "[")
    first = True
    while True:
        yield from source.space()
        if not (yield from source.more()):
            return False
        if (yield from source.literal(closes)) is not None:
            emit("}" if opened == "{" else "]")
            return True
        if not first:
            emit(", ")
        first = False
        whole = yield from _member(source, emit, depth, is_dict=opened == "{")
        yield from source.space()
        if not whole or not (yield from source.more()):
            return False
        if (yield from source.ahead(closes)) is None:
            yield from source.expect(",")


def _member(source: Source, emit: Emit, depth: int, *, is_dict: bool) -> Reading[bool]:
    if is_dict:
        key: list[str] = []
        if not (yield from python_value(source, key.append, depth - 1)):
            emit("".join(key))
            return False
        text = "".join(key)
        emit(text if text.startswith('"') else json.dumps(text))
        yield from source.space()
        if not (yield from source.more()):
            return False
        yield from source.expect(":")
        emit(": ")
    return (yield from python_value(source, emit, depth - 1))


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
