"""Calls written as a name and pairs of keys and values: ``f<arg_key>k</arg_key><arg_value>…``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sglr_dataplane.output.arguments import Arguments
from sglr_dataplane.output.bodies.headed import NAME
from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.json_text import begins_object, json_value
from sglr_dataplane.output.source import MismatchError, Reading, Source
from sglr_dataplane.output.values import Kinds

_KEY = re.compile(r"[^<\n]")
_BREAK = "\\n"  # some checkpoints write the two characters instead of the line break


@dataclass(frozen=True, slots=True)
class PairCalls:
    """Calls as a name and tagged pairs, alone or in a section."""

    closes: str
    """The marker that ends a call."""
    key: tuple[str, str] = ("<arg_key>", "</arg_key>")
    value: tuple[str, str] = ("<arg_value>", "</arg_value>")
    kind: tuple[str, str] | None = None
    """Markers around the type some models give each value."""
    separators: tuple[str, ...] = ()
    """Markers that may stand after the name."""
    opens: str = ""
    """The marker that begins a call inside a section; ``""`` when the opening marker does."""
    closers: tuple[str, ...] = ()
    """Markers that end the section."""

    @property
    def markers(self) -> tuple[str, ...]:
        """All markers after the opening one."""
        opens = (self.opens,) if self.opens else ()
        pairs = (*self.key, *self.value, *(self.kind or ()))
        return (*opens, self.closes, *pairs, *self.separators, *self.closers)

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read one call, or a section of them."""
        if not self.opens:
            yield from self._call(source, calls)
            return
        before = calls.count
        while True:
            yield from source.space()
            found = yield from source.literal(self.opens, *self.closers)
            if found == self.opens:
                yield from self._call(source, calls)
                continue
            if found is not None:
                calls.settle()
            elif calls.count == before:
                raise MismatchError
            return

    def _call(self, source: Source, calls: Calls) -> Reading[None]:
        yield from source.space()
        name = yield from source.run(NAME)
        if not name:
            raise MismatchError
        ends = ("\n", _BREAK, *self.separators, self.key[0], self.closes, "{")
        yield from self._blanks(source)
        found = yield from source.ahead(*ends)
        if found is None:
            raise MismatchError
        calls.named(name)
        if found in self.separators:
            yield from source.expect(found)
        yield from self._gap(source)
        if (yield from source.ahead(self.key[0], self.closes, "{")) is None:
            raise MismatchError
        calls.open()
        calls.settle()
        yield from self._body(source, calls, Arguments(calls, calls.parameters(name)))

    def _body(self, source: Source, calls: Calls, arguments: Arguments) -> Reading[None]:
        if (yield from begins_object(source)):
            begun = source.recorded()
            whole = yield from json_value(source, calls.arguments, (self.closes,), begun=begun)
            yield from source.space()
            yield from source.literal(self.closes)
            calls.close(complete=whole)
            return
        calls.aside(source.recorded().strip())
        wanted = source.markers(self.key[0], self.closes, *self.closers)
        while (found := (yield from source.known(wanted, calls.aside))) is not None:
            if found != self.key[0]:
                yield from source.literal(self.closes)
                arguments.close(complete=True)
                return
            if not (yield from self._pair(source, arguments)):
                return
            yield from self._gap(source)
            calls.settle()
        arguments.close(complete=False)

    def _pair(self, source: Source, arguments: Arguments) -> Reading[bool]:
        """Read a key and its value; return False when the text ended in them."""
        yield from source.expect(self.key[0])
        key = yield from source.run(_KEY)
        yield from source.literal(self.key[1])
        yield from self._gap(source)
        kinds = yield from self._kinds(source)
        yield from source.expect(self.value[0])
        arguments.begin(key.strip(), kinds)
        ends = (self.value[1], self.key[0], self.closes, *self.closers)
        if (yield from source.until(source.markers(*ends), arguments.add)) is None:
            arguments.cut()
            return False
        yield from source.literal(self.value[1])
        arguments.end()
        return True

    def _kinds(self, source: Source) -> Reading[Kinds | None]:
        if self.kind is None or (yield from source.literal(self.kind[0])) is None:
            return None
        said, _ = yield from source.text_until(self.kind[1], self.value[0])
        yield from source.literal(self.kind[1])
        yield from self._gap(source)
        return (said.strip(),) if said.strip() else None

    def _blanks(self, source: Source) -> Reading[None]:
        while (yield from source.literal(" ", "\t")) is not None:
            pass

    def _gap(self, source: Source) -> Reading[None]:
        yield from source.space()
        while (yield from source.literal(_BREAK)) is not None:
            yield from source.space()
