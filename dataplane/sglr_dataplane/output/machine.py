"""The one machine: reasoning, then text and tool blocks, whatever the format.

What the formats declare (:mod:`sglr_dataplane.output.formats`) decides which markers it looks for
and which body lexer reads a block. It reads each character once, gives up on what is no markup as
soon as that is certain, and never raises for model text.
"""

from __future__ import annotations

from collections.abc import Sequence

from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.channels import ChannelReader, Channels
from sglr_dataplane.output.deltas import Delta
from sglr_dataplane.output.grammar import Grammar, Opener, Start
from sglr_dataplane.output.sink import Sink
from sglr_dataplane.output.source import Markers, MismatchError, Reading, Source, TextPiece


class Machine:
    """Reads one choice by a grammar; pieces in, recognised things into a sink."""

    __slots__ = (
        "_calls",
        "_calm",
        "_grammar",
        "_last",
        "_running",
        "_sink",
        "_source",
        "_start",
        "_thinks",
        "_waiting",
    )

    def __init__(
        self, source: Source, sink: Sink, calls: Calls, grammar: Grammar, start: Start
    ) -> None:
        self._source = source
        self._sink = sink
        self._calls = calls
        self._grammar = grammar
        self._start: Start = start if grammar.thought_closes else "off"
        self._last = "\n"
        if start == "inside":
            sink.text(grammar.restored)
        self._waiting: Markers | None = None
        self._calm: Markers | None = None
        """The markers waited for while nothing is unread; None while all text must be pushed."""
        self._thinks = self._start == "inside"
        self._running: Reading[None] | None = self._read()

    @property
    def thinks(self) -> bool:
        """Whether what comes next is thought, as far as can be told."""
        return self._thinks

    def plainly(self, text: str) -> Delta | None:
        """Return the one delta that ordinary *text* is, if nothing else is possible.

        Most text is in the middle of an answer or a thought, far from any marker; then this gives
        what ``push`` would, without its cost. None when *text* needs reading; nothing was done.
        """
        calm = self._calm
        if calm is None or not text or calm.may_begin_in(text) is not None:
            return None
        if self._thinks:
            return self._sink.plain_reasoning(text)
        delta = self._sink.plain_text(text)
        if delta is not None:
            self._last = text[-1]
        return delta

    def passage(self) -> tuple[bool, str, bool] | None:
        """Return how ordinary text may pass without being pushed, until the next push.

        Returns:
            Whether it is thought; the characters that must be read; whether whitespace at its end
            must be, too. None when all text must be.
        """
        calm = self._calm
        if calm is None:
            return None
        if not self._sink.passes(thought=self._thinks):
            return None
        return self._thinks, calm.firsts, self._sink.holds_space and not self._thinks

    def passed(self) -> None:
        """Note that text passed as :meth:`passage` allowed."""
        if not self._thinks:
            self._sink.passed()
            self._last = ""  # no line break: where that matters, none at the end passes

    def push(self, pieces: Sequence[TextPiece]) -> None:
        """Read *pieces*."""
        self._source.push(pieces)
        self._resume()

    def finish(self) -> None:
        """Nothing follows: whatever was kept back goes where it belongs."""
        self._source.ended = True
        self._resume()
        self._sink.finish()

    def _resume(self) -> None:
        if self._running is None:
            return
        try:
            next(self._running)
        except StopIteration:
            self._running = None
        self._calm = None if self._source.has_unread else self._waiting

    def _read(self) -> Reading[None]:
        if self._grammar.channels is not None:
            yield from self._framed(self._grammar.channels)
            return
        thinking = self._start == "inside"
        if thinking:  # a model may repeat the marker that the prompt ended with
            yield from self._thought_marker(self._grammar.thought_opens)
            self._sink.reasoning(self._source.recorded())
        else:
            thinking = self._start == "outside" and (yield from self._opens_thought())
        self._thinks = thinking
        while (yield from self._source.more()):
            thinking = (yield from self._think()) if thinking else (yield from self._answer())
            self._thinks = thinking

    def _framed(self, channels: Channels) -> Reading[None]:
        reader = ChannelReader(
            self._source,
            self._sink,
            self._calls,
            channels,
            self._until,
            has_tools=self._grammar.has_tools,
            forced=self._grammar.forced,
            has_reasoning=bool(self._grammar.thought_closes),
        )
        yield from reader.read(inside=self._start == "inside")

    def _thought_marker(self, wanted: tuple[str, ...]) -> Reading[str | None]:
        """Read whitespace and one of *wanted*; without the marker the whitespace stays recorded."""
        self._source.forget()
        yield from self._source.space()
        found = (yield from self._source.literal(*wanted)) if wanted else None
        if found is not None:
            self._source.forget()
        return found

    def _opens_thought(self) -> Reading[bool]:
        """Read a marker that opens reasoning, if one comes next."""
        found = yield from self._thought_marker(self._grammar.thought_opens)
        if found is None:
            self._text(self._source.recorded())
        return found is not None

    def _think(self) -> Reading[bool]:
        """Read reasoning up to what ends it; return whether it goes on."""
        openers = [o for o in self._grammar.openers if o.where == "anywhere"]
        wanted = self._markers(self._grammar.thought_closes, openers)
        while (marker := (yield from self._until(wanted, is_thought=True))) is not None:
            if marker in self._grammar.thought_closes:
                self._skip(marker)
                return False
            # A tool block ends reasoning, if it is one: a mere mention does not (rs-10).
            is_call = yield from self._block(self._grammar.opener(marker))
            if is_call and not self._grammar.calls_in_thought:
                return (yield from self._after_block(self._grammar.thought_closes))
            self._sink.reasoning(self._source.recorded())
        return True

    def _answer(self) -> Reading[bool]:
        """Read content and tool blocks; return True when reasoning was opened again."""
        if (opener := (yield from self._bare_opener())) is not None:
            if (yield from self._block(opener)):
                return (yield from self._after_block(()))
            self._text(self._source.recorded())
        openers = [o for o in self._grammar.openers if o.where != "start"]
        wraps = [m for wrapper in self._grammar.wrappers for m in (wrapper.opens, wrapper.closes)]
        wraps += self._grammar.drops
        wanted = self._markers(tuple(wraps), openers)
        while (marker := (yield from self._until(wanted, is_thought=False))) is not None:
            if marker in wraps:
                yield from self._wrapper(marker)
                continue
            opener = self._grammar.opener(marker)
            if opener.where == "line" and self._last != "\n":
                self._text(self._skip(marker))
            elif (yield from self._block(opener)):
                return (yield from self._after_block(()))
            else:
                self._text(self._source.recorded())
        return False

    def _until(self, wanted: Markers, *, is_thought: bool) -> Reading[str | None]:
        """Read thought or content up to the next of *wanted*; meanwhile text may pass plainly."""
        self._thinks = is_thought
        self._waiting = wanted
        emit = self._think_text if is_thought else self._text
        marker = yield from self._source.until(wanted, emit)
        self._waiting = None
        self._thinks = False
        return marker

    def _bare_opener(self) -> Reading[Opener | None]:
        """Return the opener that stands at the very start of the answer, after whitespace."""
        openers = self._grammar.openers
        bare = [opener.marker for opener in openers if opener.where == "start"]
        if not bare:
            return None
        self._source.forget()
        yield from self._source.space()
        self._text(self._source.recorded())
        # A longer marker may begin like a bare one: ``[TOOL_CALLS]`` is no array.
        marker = yield from self._source.ahead(*(opener.marker for opener in openers))
        return self._grammar.opener(marker) if marker in bare else None

    def _block(self, opener: Opener) -> Reading[bool]:
        """Read a tool block; return False when it is none, its text still recorded."""
        source = self._source
        before = self._calls.count
        source.forget()
        self._skip(opener.marker, keep=True)
        try:
            yield from opener.body.read(source, self._calls)
        except MismatchError:
            self._calls.give_up(truncated=source.ended)
            return self._calls.count > before
        self._sink.block()
        return True

    def _after_block(self, closes: tuple[str, ...]) -> Reading[bool]:
        """Read what belongs to a block just read; return whether reasoning is opened again."""
        left_over = self._source.recorded()
        self._last = "\n"
        opens = self._grammar.thought_opens if self._start != "off" else ()
        if left_over.strip():  # the block broke off behind a call
            opens = closes = ()
        found = yield from self._thought_marker((*opens, *closes))
        if found is None:
            self._text(left_over + self._source.recorded())
        return found in opens

    def _wrapper(self, marker: str) -> Reading[None]:
        """Read a wrapper's marker and the line break inside it, or markup that says nothing."""
        self._skip(marker)
        if any(marker == wrapper.opens for wrapper in self._grammar.wrappers):
            self._sink.drop_space()
            yield from self._source.literal("\n")
        elif any(marker == wrapper.closes for wrapper in self._grammar.wrappers):
            self._sink.wrapped()
        self._source.forget()

    def _markers(self, texts: tuple[str, ...], openers: Sequence[Opener]) -> Markers:
        return self._source.markers(*texts, *(opener.marker for opener in openers))

    def _skip(self, marker: str, *, keep: bool = False) -> str:
        """Read *marker*, which comes next; record it only to *keep* it."""
        _, at = self._source.unread()
        taken = self._source.take(at + len(marker))
        if not keep:
            self._source.forget()
        return taken

    def _text(self, text: str) -> None:
        if text:
            self._last = text[-1]
            self._sink.text(text)
            self._source.forget()

    def _think_text(self, text: str) -> None:
        self._sink.reasoning(text)
        self._source.forget()
