"""JSON as a model writes it, read as it comes: where a value ends, and whether it is one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from sglr_dataplane.output.source import MismatchError, Reading, Source

_SPACE = re.compile(r"[ \t\r\n]+")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_SCALAR = re.compile(r"[-+.0-9A-Za-z_]+")
LITERAL = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_HEX = re.compile(r"[0-9a-fA-F]{1,4}")
_CLOSES = {"}": "{", "]": "["}


class JsonScanner:
    """Where in one JSON value the text is.

    ``scan`` reads as far as the value goes, in pieces of any size. It never refuses: text that is
    no JSON makes it not ``valid``, and is still followed by brackets and strings to its end.
    """

    __slots__ = (
        "_escape",
        "_expects",
        "_in_string",
        "_out",
        "_scalar",
        "_stack",
        "done",
        "odd",
        "valid",
    )

    def __init__(self) -> None:
        self.done = False
        """True when the value has ended."""
        self.valid = True
        """True while the text is JSON."""
        self.odd = False
        """True when ``scan`` stopped at a character that can stand in no JSON value."""
        self._stack: list[str] = []
        self._expects = "value"
        self._in_string = False
        self._escape = -1  # -1: none, 0: after the backslash, 1-4: hexadecimal digits to come
        self._scalar: list[str] = []
        self._out: list[str] = []

    def drain(self) -> str:
        """Return the value's text since the last time.

        It is the model's own, but for control characters inside strings: JSON has no other way to
        write them than escaped.
        """
        text = "".join(self._out)
        self._out.clear()
        return text

    def scan(self, text: str, at: int) -> int:
        """Return the offset up to which *text*, from *at* on, belongs to the value."""
        start = at
        self.odd = False
        while at < len(text) and not self._stops():
            if self._in_string:
                if self._escape < 0 and text[at] < " ":
                    self._out += (text[start:at], json.dumps(text[at])[1:-1])
                    at += 1
                    start = at
                else:
                    at = self._string(text, at)
            elif (space := _SPACE.match(text, at)) is not None:
                self._end_scalar()
                at = at if self._stops() else space.end()
            elif (scalar := _SCALAR.match(text, at)) is not None:
                self._scalar.append(scalar.group())
                at = scalar.end()
            else:
                at = self._sign(text[at], at)
        self._out.append(text[start:at])
        return at

    def _stops(self) -> bool:
        return self.done or self.odd

    def tolerate(self, character: str) -> None:
        """Take the odd *character* for part of a value that is no JSON."""
        self.valid = False
        self.odd = False
        self._out.append(character)

    def _string(self, text: str, at: int) -> int:
        if self._escape == 0:
            self.valid &= text[at] in '"\\/bfnrtu'
            self._escape = 4 if text[at] == "u" else -1
            return at + 1
        if self._escape > 0:
            digits = _HEX.match(text, at, at + self._escape)
            if digits is None:
                self.valid = False
                self._escape = -1
                return at
            left = self._escape - len(digits.group())
            self._escape = left if left > 0 else -1
            return digits.end()
        plain = _PLAIN.match(text, at)
        if plain is not None:
            return plain.end()
        if text[at] == "\\":
            self._escape = 0
        else:
            self._in_string = False
            if self._expects in ("key", "key}"):
                self._expects = ":"
            else:
                self._value_ended()
        return at + 1

    def _sign(self, sign: str, at: int) -> int:
        """Take the structural character *sign*; return the offset after it."""
        self._end_scalar()
        if self._stops():
            return at
        if sign not in '"{}[],:':
            self.odd = True
            return at
        if sign == '"':
            self.valid &= self._expects in ("value", "value]", "key", "key}")
            self._in_string = True
        elif sign in "{[":
            self.valid &= self._expects in ("value", "value]")
            self._stack.append(sign)
            self._expects = "key}" if sign == "{" else "value]"
        elif sign == ":":
            self.valid &= self._expects == ":"
            self._expects = "value"
        elif sign == ",":
            self.valid &= self._expects == ","
            self._expects = "key" if self._stack and self._stack[-1] == "{" else "value"
        else:
            self._close(sign)
        return at + 1

    def _close(self, sign: str) -> None:
        opened = self._stack.pop() if self._stack else ""
        self.valid &= opened == _CLOSES[sign] and self._expects in (
            ",",
            "key}" if sign == "}" else "value]",
        )
        self._value_ended()

    def _end_scalar(self) -> None:
        if not self._scalar:
            return
        literal = "".join(self._scalar)
        self._scalar.clear()
        self.valid &= self._expects in ("value", "value]") and bool(LITERAL.fullmatch(literal))
        self._value_ended()

    def _value_ended(self) -> None:
        self._expects = ","
        self.done = not self._stack


def json_value(
    source: Source,
    emit: Callable[[str], object],
    closers: tuple[str, ...] = (),
    *,
    begun: str = "",
) -> Reading[bool]:
    """Read one JSON value and give its text to *emit* as it comes.

    Args:
        source: Stands at the value's first character.
        emit: Is given the value's own text, in order.
        closers: Markers that end a broken value where no string is open.
        begun: The value's beginning, if it was read already.

    Returns:
        Whether the value is whole and JSON.
    """
    scanner = JsonScanner()
    scanner.scan(begun, 0)
    emit(scanner.drain())
    while True:
        text, at = source.unread()
        end = scanner.scan(text, at)
        if end > at:
            source.take(end)
            emit(scanner.drain())
        if scanner.done:
            return scanner.valid
        if scanner.odd:
            if closers and (yield from source.ahead(*closers)) is not None:
                return False
            text, at = source.unread()
            scanner.tolerate(source.take(at + 1))
            emit(scanner.drain())
        elif not (yield from source.more()):
            return False


def begins_object(source: Source) -> Reading[bool]:
    """Read whitespace and, where a JSON object begins, its brace; return whether one does.

    A brace without a key or its closing one behind it is read as well, and begins none.
    """
    yield from source.space()
    if (yield from source.literal("{")) is None:
        return False
    yield from source.space()
    return (yield from source.ahead('"', "}")) is not None


def json_string(source: Source) -> Reading[tuple[str, str | None]]:
    """Read a JSON string; return its text, and what it says (None when it is broken off)."""
    parts: list[str] = []
    whole = yield from json_value(source, parts.append)
    raw = "".join(parts)
    return raw, _said(raw) if whole else None


def _said(raw: str) -> str:
    """Return what the JSON string *raw* says; half a surrogate pair becomes U+FFFD."""
    said: str = json.loads(raw)
    return said.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def expect_string(source: Source) -> Reading[str]:
    """Read a JSON string of one line, a key or a name, and return what it says.

    Raises:
        MismatchError: No whole JSON string comes next, or none that ends in its line.
    """
    if (yield from source.peek()) != '"':
        raise MismatchError
    scanner = JsonScanner()
    while True:
        text, at = source.unread()
        end = scanner.scan(text, at)
        line_end = text.find("\n", at, end)
        source.take(end if line_end < 0 else line_end)
        if scanner.done and scanner.valid and line_end < 0:
            return _said(scanner.drain())
        if scanner.done or line_end >= 0 or not (yield from source.more()):
            raise MismatchError


def is_json_object(text: str) -> bool:
    """Return whether *text* is one whole JSON object."""
    text = text.strip()
    scanner = JsonScanner()
    read = scanner.scan(text, 0) if text.startswith("{") else -1
    return read == len(text) and scanner.done and scanner.valid
