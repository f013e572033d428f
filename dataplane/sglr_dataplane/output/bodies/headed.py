"""Calls written as a name, a marker, and the arguments as JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sglr_dataplane.output.bodies.json_calls import JsonCall, JsonCalls
from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.json_text import json_value
from sglr_dataplane.output.source import MismatchError, Reading, Source

NAME = re.compile(r"[\w.\-:/]")
_BARE_ID = re.compile(r"\d+|call[_-]\w+")
_FENCE = "```"


@dataclass(frozen=True, slots=True)
class HeadedCalls:
    """Calls of the form name, marker, JSON object; alone or in a section."""

    opens: tuple[str, ...] = ()
    """Markers that begin a call inside the section; none when the opening marker does."""
    kind_end: str = ""
    """The marker between the kind of a call, which says nothing, and the name."""
    ends: tuple[str, ...] = ()
    """Markers between name and arguments; none: the arguments follow directly."""
    id_marker: str = ""
    """A marker between the name and the id the model gives the call."""
    closes: tuple[str, ...] = ()
    """Markers that end a call."""
    closers: tuple[str, ...] = ()
    """Markers that end the section."""
    fenced: bool = False
    """Whether the arguments stand in a code fence."""
    counted: bool = False
    """Whether the name is followed by ``:`` and a number, the model's own count."""
    begun: bool = False
    """Whether the opening marker begins a call itself."""
    array: bool = False
    """Whether a JSON array of calls may stand there instead."""

    @property
    def markers(self) -> tuple[str, ...]:
        """All markers after the opening one."""
        one = (self.id_marker,) if self.id_marker else ()
        kind = (self.kind_end,) if self.kind_end else ()
        return (*self.opens, *kind, *self.ends, *one, *self.closes, *self.closers)

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read the section up to its end, which may be missing after the last call."""
        before = calls.count
        if self.array:
            yield from source.space()
            if (yield from source.peek()) == "[" and (yield from source.ahead(*self.ends)) is None:
                yield from JsonCalls(separators=()).read(source, calls)
                return
        if self.begun:
            yield from self._call(source, calls)
        while True:
            yield from source.space()
            found = yield from source.literal(*self.opens, *self.closers)
            if found in self.opens:
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
        if self.kind_end and (yield from source.literal(self.kind_end)) is not None:
            name = yield from source.run(NAME)
        model_id = yield from self._model_id(source)
        yield from self._header_end(source)
        if self.counted:
            name = re.sub(r":\d+$", "", name).removeprefix("functions.")
            if _BARE_ID.fullmatch(name) and not calls.declares(name):
                yield from self._named_inside(source, calls)
                return
        if not name:
            raise MismatchError
        calls.named(name, model_id)
        yield from self._arguments(source, calls)

    def _named_inside(self, source: Source, calls: Calls) -> Reading[None]:
        """Read a call whose header is only an id: the name stands with the arguments."""
        yield from source.space()
        yield from source.expect("{")
        yield from JsonCall(source, calls, JsonCalls(closers=self.closes)).read()
        yield from self._close(source, calls)

    def _model_id(self, source: Source) -> Reading[str | None]:
        if not self.id_marker or (yield from source.literal(self.id_marker)) is None:
            return None
        return (yield from source.run(NAME)) or None

    def _header_end(self, source: Source) -> Reading[None]:
        if self.fenced:  # the name's line ends, then the fence begins
            yield from source.expect("\n", _FENCE + "json", *self.closes)
            yield from source.space()
            yield from source.literal(_FENCE + "json", _FENCE)
            yield from source.space()
            return
        yield from source.space()
        found = yield from source.ahead(*self.ends, *self.closes, "{")
        if found is None:
            raise MismatchError
        if found in self.ends:
            yield from source.expect(found)

    def _arguments(self, source: Source, calls: Calls) -> Reading[None]:
        yield from source.space()
        found = yield from source.ahead("{", *self.closes)
        if found is None:
            raise MismatchError
        whole = True
        if found == "{":
            calls.open()
            closers = (*self.closes, *self.closers, *((_FENCE,) if self.fenced else ()))
            whole = yield from json_value(source, calls.arguments, closers)
        calls.close(complete=whole)
        yield from self._close(source, calls)

    def _close(self, source: Source, calls: Calls) -> Reading[None]:
        yield from source.space()
        if self.fenced and (yield from source.literal(_FENCE)) is not None:
            yield from source.space()
        if (yield from source.literal(*self.closes)) is not None:
            calls.settle()
