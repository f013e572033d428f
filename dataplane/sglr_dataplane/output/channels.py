"""Answers that are messages with headers: gpt-oss, Inkling, Muse.

A header says where its body goes: to reasoning, to the content, or to a tool. Any text is read:
what has no header is content.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from sglr_dataplane.output.bodies import Body
from sglr_dataplane.output.bodies.framed import MarkedMessage
from sglr_dataplane.output.bodies.json_calls import JsonCalls
from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.sink import Sink
from sglr_dataplane.output.source import Markers, MismatchError, Reading, Source


@dataclass(frozen=True, slots=True)
class Route:
    """Where a message's body goes."""

    kind: Literal["reasoning", "content", "call"]
    body: Body | None = None
    """How a call is read."""


@dataclass(frozen=True, slots=True)
class Channels:
    """How a family frames its messages."""

    starts: tuple[str, ...]
    """Markers that begin a header."""
    header_ends: tuple[str, ...]
    """Markers between header and body."""
    ends: tuple[str, ...]
    """Markers that end a message."""
    stops: tuple[str, ...]
    """Markers that end the answer: what follows is dropped."""
    restarts: tuple[str, ...]
    """What begins a message although the one before did not end."""
    route: Callable[[str, str], Route]
    """(header, the marker that ended it) → where the body goes."""
    header: re.Pattern[str]
    """A header, or the beginning of one: what the text may end in and still be markup."""
    inner: tuple[str, ...] = ()
    """Markers that may stand inside a header."""
    block: MarkedMessage | None = None
    """Calls that may stand without any header."""
    first: tuple[str, ...] = ()
    """What an answer may begin with when the prompt ended inside the header."""

    def markers(self) -> frozenset[str]:
        """Return all markers."""
        ends = (*self.header_ends, *self.ends, *self.stops)
        block = self.block.markers if self.block is not None else ()
        return frozenset((*self.starts, *self.inner, *ends, *block))

    def body_ends(self) -> tuple[str, ...]:
        """Return what ends a body."""
        return (*self.ends, *self.stops, *self.restarts)


class ReadUntil(Protocol):
    """How the machine reads thought or content up to a marker, which stays unread."""

    def __call__(self, wanted: Markers, *, is_thought: bool) -> Reading[str | None]:
        """Return the marker; None when the text ended first."""
        ...


@dataclass(frozen=True, slots=True)
class ChannelReader:
    """Reads an answer framed by *channels*."""

    source: Source
    sink: Sink
    calls: Calls
    channels: Channels
    read_until: ReadUntil
    has_tools: bool
    """Whether bodies for tools are calls; else they are content."""
    forced: bool
    """Whether content that begins as JSON is read as the calls that a grammar forced."""
    has_reasoning: bool
    """Whether reasoning is told apart; else it is content."""

    def read(self, *, inside: bool) -> Reading[None]:
        """Read the whole answer; *inside* when the prompt already opened reasoning."""
        source, channels = self.source, self.channels
        if inside:
            yield from self._body(Route("reasoning"))
        elif (yield from source.ahead(*channels.first)) is not None:
            yield from self._message()
        while (yield from source.more()):
            source.forget()
            yield from source.space()
            if self.has_tools and (yield from self._stands_block()):
                yield from self._call(channels.block)
                continue
            found = yield from source.literal(
                *channels.starts, *channels.ends, *channels.stops, *channels.header_ends
            )
            if found in channels.stops:
                yield from self._drop(())
            elif found in channels.header_ends:
                yield from self._body(channels.route("", found or ""))
            elif found in channels.starts:
                yield from self._message()
            elif found is None:
                self.sink.text(source.recorded())
                yield from self._unframed()

    def _unframed(self) -> Reading[None]:
        """Read text that no header announces, up to a message or a block of calls."""
        if self.channels.block is None or not self.has_tools:
            yield from self._body(Route("content"))
            return
        ends = (*self.channels.body_ends(), self.channels.block.opens)
        yield from self.read_until(self.source.markers(*ends), is_thought=False)

    def _message(self) -> Reading[None]:
        """Read the rest of a header, and the body."""
        source, channels = self.source, self.channels
        stops = (*channels.header_ends, *channels.ends, *channels.stops)
        _, found = yield from source.text_until(*stops)
        header = source.recorded()
        if found not in channels.header_ends:
            if not channels.header.fullmatch(header):
                self.sink.text(header)
            return
        yield from source.expect(found)
        source.forget()
        yield from self._body(channels.route(header, found))

    def _body(self, route: Route) -> Reading[None]:
        """Read a body up to what ends it, which stays unread."""
        wanted = self.source.markers(*self.channels.body_ends())
        kind = route.kind
        if kind == "reasoning" and self.has_reasoning:
            yield from self.read_until(wanted, is_thought=True)
        elif kind == "content" and self.forced and (yield from self._begins_json()):
            yield from self._call(_FORCED)
        elif kind == "call" and self.has_tools:
            yield from self._call(route.body)
        else:
            yield from self.read_until(wanted, is_thought=False)
        self.source.forget()

    def _stands_block(self) -> Reading[bool]:
        block = self.channels.block
        return block is not None and (yield from self.source.ahead(block.opens)) is not None

    def _begins_json(self) -> Reading[bool]:
        yield from self.source.space()
        self.sink.text(self.source.recorded())
        return (yield from self.source.ahead("[", "{")) is not None

    def _call(self, body: Body | None) -> Reading[None]:
        try:
            if body is not None:
                yield from body.read(self.source, self.calls)
        except MismatchError:
            self.calls.give_up(truncated=self.source.ended)
        left_over = self.source.recorded()
        if left_over.strip():
            self.sink.text(left_over)
        yield from self._drop(self.channels.body_ends())

    def _drop(self, ends: tuple[str, ...]) -> Reading[None]:
        """Read up to one of *ends*; whatever is no whitespace before it is content."""
        found = self.sink.text if ends else _ignore
        yield from self.source.space()
        self.source.forget()
        yield from self.source.until(self.source.markers(*ends), found)
        self.source.forget()


_FORCED = JsonCalls(separators=())


def _ignore(_text: str) -> None:
    """What follows the end of the answer says nothing."""
