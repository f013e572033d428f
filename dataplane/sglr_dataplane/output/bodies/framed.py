"""What a message to a tool holds, when the message's header names the tool."""

from __future__ import annotations

from dataclasses import dataclass

from sglr_dataplane.output.arguments import Arguments
from sglr_dataplane.output.bodies import Body
from sglr_dataplane.output.bodies.tagged import Tag
from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.json_text import json_value
from sglr_dataplane.output.source import Reading, Source
from sglr_dataplane.output.values import STRING, properties_of


@dataclass(frozen=True, slots=True)
class JsonMessage:
    """The arguments of the tool *name*, as JSON."""

    name: str
    ends: tuple[str, ...]
    """What ends the message; it stays unread."""

    @property
    def markers(self) -> tuple[str, ...]:
        """None of its own."""
        return ()

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read the arguments; what is no JSON is passed on, and makes no whole call."""
        calls.named(self.name)
        calls.open()
        yield from source.space()
        if (yield from source.peek()) == "{":
            whole = yield from json_value(source, calls.arguments, self.ends)
        else:
            raw: list[str] = []
            yield from source.until(source.markers(*self.ends), raw.append)
            calls.arguments("".join(raw))
            whole = not raw
        calls.close(complete=whole)


@dataclass(frozen=True, slots=True)
class TextMessage:
    """The only argument of the tool *name*, as plain text."""

    name: str
    ends: tuple[str, ...]
    """What ends the message; it stays unread."""
    key: str = "text"
    """The argument's name, where the tool's schema has no other."""

    @property
    def markers(self) -> tuple[str, ...]:
        """None of its own."""
        return ()

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read the text."""
        calls.named(self.name)
        calls.open()
        properties = properties_of(calls.parameters(self.name))
        key = self.key if self.key in properties else next(iter(properties), self.key)
        arguments = Arguments(calls, None)
        arguments.begin(key, STRING)
        if (yield from source.until(source.markers(*self.ends), arguments.add)) is None:
            arguments.cut()
            return
        arguments.end()
        arguments.close(complete=True)


@dataclass(frozen=True, slots=True)
class TaggedMessage:
    """The arguments of the tool *name*, each in an element of its own."""

    name: str
    parameter: Tag
    ends: tuple[str, ...]
    """What ends the message; it stays unread."""

    @property
    def markers(self) -> tuple[str, ...]:
        """The elements' tags."""
        return (self.parameter.opens, self.parameter.closes)

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read the elements; one also ends where the next begins, or the message does."""
        calls.named(self.name)
        calls.open()
        arguments = Arguments(calls, calls.parameters(self.name))
        begins = source.markers(self.parameter.opens, *self.ends)
        ends = source.markers(*self.markers, *self.ends)
        while (found := (yield from source.known(begins, calls.aside))) == self.parameter.opens:
            yield from source.expect(self.parameter.opens)
            attributes, _ = yield from source.text_until(">")
            yield from source.expect(">")
            arguments.begin(self.parameter.name_in(attributes))
            if (yield from source.until(ends, arguments.add)) is None:
                arguments.cut()
                return
            yield from source.literal(self.parameter.closes)
            arguments.end()
        arguments.close(complete=found is not None)


@dataclass(frozen=True, slots=True)
class MarkedMessage:
    """A block of calls, after its opening marker."""

    opens: str
    body: Body

    @property
    def markers(self) -> tuple[str, ...]:
        """The opening marker and the block's own."""
        return (self.opens, *self.body.markers)

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read the block."""
        yield from source.space()
        yield from source.expect(self.opens)
        yield from self.body.read(source, calls)
