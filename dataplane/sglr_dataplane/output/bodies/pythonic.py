"""Calls written as Python: ``[f(a=1, b="x"), g()]``, or one on each line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sglr_dataplane.output.arguments import Arguments
from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.python_text import python_value
from sglr_dataplane.output.source import MismatchError, Reading, Source
from sglr_dataplane.output.values import properties_of

_DOTTED = re.compile(r"[\w.]")
_WORD = re.compile(r"\w")
_LITERALS = tuple("'\"[{(-+.0123456789")


@dataclass(frozen=True, slots=True)
class PythonicCalls:
    """Python calls in a list or one after another, up to a closing marker."""

    closers: tuple[str, ...] = ()
    begun: bool = False
    """Whether the opening marker was the list's own bracket."""

    @property
    def markers(self) -> tuple[str, ...]:
        """The closing markers."""
        return self.closers

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read the calls and the closing marker, which may be missing."""
        yield from source.space()
        in_list = self.begun or (yield from source.literal("[")) is not None
        yield from self._call(source, calls)
        while True:
            yield from source.space()
            if in_list and (yield from source.literal("]")) is not None:
                calls.settle()
                yield from source.space()
                break
            if (yield from source.ahead(*self.closers)) is not None:
                break
            if (yield from source.literal(",", ";")) is None and in_list:
                raise MismatchError
            yield from source.space()
            if not _WORD.match((yield from source.peek())):
                break
            yield from self._call(source, calls)
        if (yield from source.literal(*self.closers)) is not None:
            calls.settle()

    def _call(self, source: Source, calls: Calls) -> Reading[None]:
        yield from source.space()
        name = yield from source.run(_DOTTED)
        if not name or name[0].isdigit():
            raise MismatchError
        yield from source.expect("(")
        yield from _Call(source, calls, name).read()


class _Call:
    """One call, after its opening parenthesis, at work."""

    __slots__ = ("_arguments", "_calls", "_keys", "_name", "_source")

    def __init__(self, source: Source, calls: Calls, name: str) -> None:
        self._source = source
        self._calls = calls
        self._name = name
        parameters = calls.parameters(name)
        self._arguments = Arguments(calls, parameters)
        self._keys = iter(properties_of(parameters))

    def read(self) -> Reading[None]:
        """Read the arguments; positional ones take the schema's properties in their order."""
        source, calls = self._source, self._calls
        opened = False
        while True:
            yield from source.space()
            if (yield from source.literal(")")) is not None:
                self._open(opened=opened)
                self._arguments.close(complete=True)
                return
            key = yield from self._key()
            self._open(opened=opened)
            opened = True
            self._arguments.key(key)
            if not (yield from python_value(source, calls.arguments)):
                calls.close(complete=False)
                return
            yield from source.space()
            if (yield from source.literal(",")) is None:
                if (yield from source.ahead(")")) is None:
                    calls.close(complete=False)
                    raise MismatchError
                continue

    def _open(self, *, opened: bool) -> None:
        """The block is a call: its first argument, or its end, has the right form."""
        if not opened:
            self._calls.named(self._name)
            self._calls.open()

    def _key(self) -> Reading[str]:
        """Read the keyword and its equals sign; without one return the next property's name."""
        source = self._source
        if (yield from source.peek()) in _LITERALS:
            key = next(self._keys, None)
            if key is None:
                raise MismatchError
            return key
        word = yield from source.run(_WORD)
        if not word:
            raise MismatchError
        yield from source.space()
        yield from source.expect("=")
        return word
