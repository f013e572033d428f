"""Calls written as ``call:f{key:<|"|>text<|"|>,n:1,o:{…},a:[…]}``: bare keys, marked strings."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from sglr_dataplane.output.arguments import Arguments
from sglr_dataplane.output.bodies.headed import NAME
from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.source import MismatchError, Reading, Source
from sglr_dataplane.output.values import json_of, quoted

_KEY = re.compile(r"[^:{}\[\],<>\n]")
_BARE = re.compile(r"[^,{}\[\]<]")
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class BraceCalls:
    """Calls whose arguments are an object with bare keys and strings between markers."""

    quote: str
    """The marker before and after a string."""
    closers: tuple[str, ...]

    @property
    def markers(self) -> tuple[str, ...]:
        """The string marker and the closing ones."""
        return (self.quote, *self.closers)

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read one call and its closing marker, which may be missing."""
        yield from source.space()
        yield from source.expect("call:")
        name = (yield from source.run(NAME)).strip()
        yield from source.space()
        yield from source.expect("{")
        if not name:
            raise MismatchError
        calls.named(name)
        calls.open()
        arguments = Arguments(calls, calls.parameters(name))
        while True:
            yield from source.space()
            if (yield from source.literal("}")) is not None:
                arguments.close(complete=True)
                break
            key = yield from self._key(source)
            if key is None:
                arguments.close(complete=False)
                return
            arguments.key(key)
            if not (yield from self._value(source, calls, _DEEPEST)):
                calls.close(complete=False)
                return
            yield from source.space()
            if (yield from source.literal(",")) is None and (yield from source.more()):
                yield from self._expect_end(source)
        yield from source.space()
        if (yield from source.literal(*self.closers)) is not None:
            calls.settle()

    def _expect_end(self, source: Source) -> Reading[None]:
        if (yield from source.ahead("}")) is None:
            raise MismatchError

    def _key(self, source: Source) -> Reading[str | None]:
        """Read a key and its colon; return None when the text ended before it."""
        if (yield from source.literal(self.quote)) is not None:
            key, _ = yield from source.text_until(self.quote)
            yield from source.literal(self.quote)
        else:
            key = (yield from source.run(_KEY)).strip(" \t\"'")
        yield from source.space()
        if not (yield from source.more()):
            return None
        yield from source.expect(":")
        return key

    def _value(self, source: Source, calls: Calls, depth: int) -> Reading[bool]:
        """Read a value; return whether it is whole."""
        if depth == 0:
            raise MismatchError
        yield from source.space()
        found = yield from source.literal(self.quote, "{", "[")
        if found == self.quote:
            return (yield from self._string(source, calls))
        if found is not None:
            return (yield from self._container(source, calls, found, depth))
        text = yield from source.run(_BARE)
        if not (yield from source.more()):
            calls.arguments(text)
            return False
        if not text:
            raise MismatchError
        calls.arguments(_typed(text.strip()))
        return True

    def _string(self, source: Source, calls: Calls) -> Reading[bool]:
        calls.arguments('"')
        wanted = source.markers(self.quote)
        found = yield from source.until(wanted, lambda text: calls.arguments(quoted(text)[1:-1]))
        if found is None:
            return False
        yield from source.expect(self.quote)
        calls.arguments('"')
        return True

    def _container(self, source: Source, calls: Calls, opened: str, depth: int) -> Reading[bool]:
        closes = {"{": "}", "[": "]"}[opened]
        calls.arguments(opened)
        separator = ""
        while True:
            yield from source.space()
            if (yield from source.literal(closes)) is not None:
                calls.arguments(closes)
                return True
            if not (yield from source.more()):
                return False
            calls.arguments(separator)
            separator = ", "
            if opened == "{":
                key = yield from self._key(source)
                if key is None:
                    return False
                calls.arguments(quoted(key) + ": ")
            if not (yield from self._value(source, calls, depth - 1)):
                return False
            yield from source.space()
            yield from source.literal(",")


def _typed(text: str) -> str:
    """Return a bare value as JSON: a literal, or a string that lost its markers."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return json_of(text, ())
    return json_of(text, ()) if text else json.dumps(text)
