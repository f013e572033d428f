"""Calls written as an array of objects with one member each: ``[{"f": {…}}, {"g": {}}]``."""

from __future__ import annotations

from dataclasses import dataclass

from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.json_text import expect_string, json_value
from sglr_dataplane.output.source import MismatchError, Reading, Source


@dataclass(frozen=True, slots=True)
class KeyedCalls:
    """An array of calls, each an object whose only key is the tool's name."""

    closers: tuple[str, ...]

    @property
    def markers(self) -> tuple[str, ...]:
        """The closing markers."""
        return self.closers

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read the array and its closing marker, which may be missing."""
        yield from source.space()
        yield from source.expect("[")
        while True:
            yield from source.space()
            sign = yield from source.expect("{", ",", "]")
            if sign == "{":
                yield from self._call(source, calls)
            if sign == "]":
                calls.settle()
                break
        yield from source.space()
        if (yield from source.literal(*self.closers)) is not None:
            calls.settle()

    def _call(self, source: Source, calls: Calls) -> Reading[None]:
        yield from source.space()
        name = yield from expect_string(source)
        yield from source.space()
        yield from source.expect(":")
        calls.named(name)
        yield from source.space()
        if not name or (yield from source.peek()) != "{":
            raise MismatchError
        calls.open()
        whole = yield from json_value(source, calls.arguments, self.closers)
        calls.close(complete=whole)
        yield from source.space()
        if (yield from source.literal("}")) is not None:
            calls.settle()
