"""How the objects that name calls are written: as JSON, or as Python literals."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from sglr_dataplane.output.json_text import expect_string, json_value
from sglr_dataplane.output.python_text import python_string, python_value
from sglr_dataplane.output.source import MismatchError, Reading, Source

_BLANK = re.compile(r"[ \t\r\n]")


class Notation(Protocol):
    """Reads strings and values of one notation; values come out as JSON."""

    quotes: tuple[str, ...]
    """What a string may begin with."""

    def string(self, source: Source) -> Reading[str]:
        """Read a string and return what it says; raises MismatchError when none comes next."""
        ...

    def object_begins(self, source: Source) -> Reading[str]:
        """Read as much of an object as tells that it is one, and return it.

        Raises:
            MismatchError: A brace is there, and neither a key nor its closing one.
        """
        ...

    def value(
        self,
        source: Source,
        emit: Callable[[str], object],
        closers: tuple[str, ...],
        begun: str = "",
    ) -> Reading[bool]:
        """Read a value, which *begun* begins, give it to *emit* as JSON; return whether it is whole."""
        ...


class JsonNotation:
    """JSON: values are passed on as they are written."""

    quotes: tuple[str, ...] = ('"',)

    def string(self, source: Source) -> Reading[str]:
        """Read a JSON string."""
        return (yield from expect_string(source))

    def object_begins(self, source: Source) -> Reading[str]:
        """Read the brace and the whitespace behind it."""
        found = (yield from source.expect("{")) + (yield from source.run(_BLANK))
        if (yield from source.peek()) not in ("", '"', "}"):
            raise MismatchError
        return found

    def value(
        self,
        source: Source,
        emit: Callable[[str], object],
        closers: tuple[str, ...],
        begun: str = "",
    ) -> Reading[bool]:
        """Read a JSON value."""
        return (yield from json_value(source, emit, closers, begun=begun))


class PythonNotation:
    """Python literals: values are rewritten."""

    quotes: tuple[str, ...] = ('"', "'")

    def string(self, source: Source) -> Reading[str]:
        """Read a Python string."""
        return (yield from python_string(source))

    def object_begins(self, source: Source) -> Reading[str]:
        """Read nothing: keys may be any literal."""
        del source
        yield from ()
        return ""

    def value(
        self,
        source: Source,
        emit: Callable[[str], object],
        closers: tuple[str, ...],
        begun: str = "",
    ) -> Reading[bool]:
        """Read a Python literal; nothing but its own end ends it."""
        del closers, begun
        return (yield from python_value(source, emit))


JSON: Notation = JsonNotation()
PYTHON: Notation = PythonNotation()
