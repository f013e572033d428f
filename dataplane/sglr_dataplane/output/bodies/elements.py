"""Calls written as nested elements: ``<invoke name="f"><key>value</key></invoke>``.

Each parameter is an element named after it; objects and arrays are elements inside it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sglr_dataplane.output.arguments import Arguments
from sglr_dataplane.output.bodies.tagged import Tag
from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.source import MismatchError, Reading, Source
from sglr_dataplane.output.values import STRING, json_of, kinds_of_property, quoted

_NAME = re.compile(r"[^<>\s/]")
_ITEM = "item"
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class ElementCalls:
    """Calls as elements, with a token before each tag."""

    namespace: str
    """The token before each ``<``."""
    call: str
    """The name of a call's element."""
    closers: tuple[str, ...]

    @property
    def markers(self) -> tuple[str, ...]:
        """The token, and what ends the block."""
        return (self.namespace, *self.closers)

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read the calls up to the block's end, which may be missing after the last."""
        opens = f"{self.namespace}<{self.call}"
        before = calls.count
        while True:
            yield from source.space()
            found = yield from source.literal(opens, *self.closers)
            if found == opens:
                yield from self._call(opens, source, calls)
                continue
            if found is not None:
                calls.settle()
            elif calls.count == before:
                raise MismatchError
            return

    def _call(self, opens: str, source: Source, calls: Calls) -> Reading[None]:
        text, _ = yield from source.text_until(">", "\n")
        yield from source.expect(">")
        name = Tag(opens, "").name_in(text)
        calls.named(name)
        calls.open()
        parameters = calls.parameters(name)
        arguments = Arguments(calls, parameters)
        closes = f"{self.namespace}</{self.call}>"
        while True:
            yield from source.space()
            found = yield from source.ahead(closes, *self.closers, f"{self.namespace}<")
            if found is None or found != f"{self.namespace}<":
                yield from source.literal(closes)
                arguments.close(complete=found is not None)
                return
            yield from source.expect(found)
            key = yield from self._tag_name(source)
            arguments.key(key)
            kinds = kinds_of_property(parameters, key)
            if not (yield from _Element(source, calls, self.namespace).read(key, kinds)):
                calls.close(complete=False)
                return

    def _tag_name(self, source: Source) -> Reading[str]:
        name = yield from source.run(_NAME)
        yield from source.expect(">")
        if not name:
            raise MismatchError
        return name


class _Element:
    """One parameter's element, after its opening tag, at work."""

    __slots__ = ("_calls", "_namespace", "_source")

    def __init__(self, source: Source, calls: Calls, namespace: str) -> None:
        self._source = source
        self._calls = calls
        self._namespace = namespace

    def read(self, key: str, kinds: tuple[str, ...], depth: int = _DEEPEST) -> Reading[bool]:
        """Read the element's content and closing tag; return whether they are whole."""
        source, calls = self._source, self._calls
        if depth == 0:
            raise MismatchError
        closes, opens = f"{self._namespace}</{key}>", f"{self._namespace}<"
        parts: list[str] = []
        if kinds == STRING:
            calls.arguments('"')
            wanted = source.markers(closes)
            end = yield from source.until(wanted, lambda t: calls.arguments(quoted(t)[1:-1]))
            if end is None:
                return False
            calls.arguments('"')
            yield from source.expect(closes)
            return True
        found = yield from source.until(source.markers(closes, opens), parts.append)
        text = "".join(parts)
        if found is None:
            calls.arguments(text)
            return False
        if found == closes:
            yield from source.expect(closes)
            calls.arguments(_empty(kinds) if not text.strip() else json_of(text, kinds))
            return True
        return (yield from self._children(closes, opens, depth))

    def _children(self, closes: str, opens: str, depth: int) -> Reading[bool]:
        source, calls = self._source, self._calls
        closing = ""
        while True:
            yield from source.space()
            if not (yield from source.more()):
                return False
            found = yield from source.expect(closes, opens)
            if found == closes:
                calls.arguments(closing)
                return True
            name = yield from source.run(_NAME)
            yield from source.expect(">")
            if not closing:
                closing = "]" if name == _ITEM else "}"
                calls.arguments("[" if name == _ITEM else "{")
            else:
                calls.arguments(", ")
            if closing == "}":
                calls.arguments(quoted(name) + ": ")
            if not (yield from self.read(name, (), depth - 1)):
                return False


def _empty(kinds: tuple[str, ...]) -> str:
    """Return what an element without content stands for."""
    return {"object": "{}", "array": "[]"}.get(kinds[0] if kinds else "", '""')
