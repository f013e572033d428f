"""Calls whose values say what they are: ``<value name="k" type="raw|json|dict|list">…</value>``.

Objects and lists are values inside values; a list's have no name.
"""

from __future__ import annotations

import html
from dataclasses import dataclass

from sglr_dataplane.output.arguments import Arguments
from sglr_dataplane.output.bodies.tagged import Tag, attribute
from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.source import MismatchError, Reading, Source
from sglr_dataplane.output.values import json_of, quoted

_BRACKETS = {"dict": ("{", "}"), "list": ("[", "]")}
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class ValuedCalls:
    """Calls as elements with typed values in them, up to the block's closing marker."""

    call: Tag
    value: Tag
    closers: tuple[str, ...]

    @property
    def markers(self) -> tuple[str, ...]:
        """All tags but attributes."""
        tags = (self.call, self.value)
        return (*(text for tag in tags for text in (tag.opens, tag.closes)), *self.closers)

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read the calls; the block's closing marker may be missing after the last."""
        before = calls.count
        while True:
            yield from source.space()
            found = yield from source.literal(self.call.opens, *self.closers)
            if found == self.call.opens:
                yield from _Call(source, calls, self).read()
                continue
            if found is not None:
                calls.settle()
            elif calls.count == before:
                raise MismatchError
            return


class _Call:
    """One call's element, after its tag's first characters, at work."""

    __slots__ = ("_calls", "_form", "_source")

    def __init__(self, source: Source, calls: Calls, form: ValuedCalls) -> None:
        self._source = source
        self._calls = calls
        self._form = form

    def read(self) -> Reading[None]:
        """Read the element; it also ends where its parent does, or where the next one begins."""
        name = self._form.call.name_in((yield from self._attributes("\n")))
        self._calls.named(name)
        self._calls.open()
        self._calls.settle()
        arguments = Arguments(self._calls, None)
        while (found := (yield from self._next())) == self._form.value.opens:
            attributes = yield from self._opened()
            arguments.key(_name(attributes))
            if not (yield from self._content(attributes, _DEEPEST)):
                self._calls.close(complete=False)
                return
        yield from self._source.literal(self._form.call.closes)
        arguments.close(complete=found is not None)

    def _attributes(self, *but: str) -> Reading[str]:
        text, _ = yield from self._source.text_until(">", *but)
        yield from self._source.expect(">")
        return text

    def _opened(self) -> Reading[str]:
        yield from self._source.expect(self._form.value.opens)
        return (yield from self._attributes())

    def _next(self) -> Reading[str | None]:
        """Return the next marker, unread; None when the text ended."""
        form = self._form
        tags = (form.value.opens, form.value.closes, form.call.closes, form.call.opens)
        wanted = self._source.markers(*tags, *form.closers)
        return (yield from self._source.known(wanted, self._calls.aside))

    def _content(self, attributes: str, depth: int) -> Reading[bool]:
        """Read a value and its closing tag; return False when the text ended in it."""
        kind = attribute(attributes, "type")
        if kind in _BRACKETS:
            return (yield from self._several(*_BRACKETS[kind], depth))
        return (yield from (self._held() if kind == "json" else self._text()))

    def _text(self) -> Reading[bool]:
        """Read a string as it comes."""
        source, calls, closes = self._source, self._calls, self._form.value.closes
        calls.arguments('"')
        wanted = source.markers(closes)
        if (yield from source.until(wanted, lambda t: calls.arguments(quoted(t)[1:-1]))) is None:
            return False
        calls.arguments('"')
        yield from source.expect(closes)
        return True

    def _held(self) -> Reading[bool]:
        """Read any other value, which is passed on when it is whole."""
        source, closes = self._source, self._form.value.closes
        text, found = yield from source.text_until(closes)
        if found is None:
            self._calls.arguments(text)
            return False
        yield from source.expect(closes)
        self._calls.arguments(json_of(text, ()))
        return True

    def _several(self, begin: str, end: str, depth: int) -> Reading[bool]:
        """Read the values of an object or a list; it also ends where the call does."""
        if depth == 0:
            raise MismatchError
        self._calls.arguments(begin)
        separator = ""
        while (found := (yield from self._next())) == self._form.value.opens:
            attributes = yield from self._opened()
            key = f"{quoted(_name(attributes))}: " if end == "}" else ""
            self._calls.arguments(separator + key)
            separator = ", "
            if not (yield from self._content(attributes, depth - 1)):
                return False
        if found is None:
            return False
        yield from self._source.literal(self._form.value.closes)
        self._calls.arguments(end)
        return True


def _name(attributes: str) -> str:
    """Return the name in a value's tag, where the characters of markup are entities."""
    return html.unescape(attribute(attributes, "name") or "")
