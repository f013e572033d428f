"""From a worker's chunks to what the client learns, for one choice.

Chunk → decoded pieces → stop strings → reasoning and tool calls → deltas. Streaming feeds chunk by
chunk; an answer in one piece feeds everything and collects. There is no second way (R3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sglr_dataplane.job import Chunk, FinishReason, Usage
from sglr_dataplane.output.calls import Calls, ToolSignature, UnknownTools
from sglr_dataplane.output.deltas import Delta, Finished, Reasoning, Text
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.formats import grammar
from sglr_dataplane.output.grammar import Start
from sglr_dataplane.output.ids import call_ids
from sglr_dataplane.output.machine import Machine
from sglr_dataplane.output.passage import Passage, blocked
from sglr_dataplane.output.prose import Prose
from sglr_dataplane.output.sink import Sink
from sglr_dataplane.output.source import Source, TextPiece
from sglr_dataplane.output.stop import StopMatcher
from sglr_dataplane.output.stripping import StrippingSink


class Decoder(Protocol):
    """Turns token ids into text, keeping incomplete characters back (R13)."""

    def feed(self, ids: Sequence[int]) -> Sequence[TextPiece]:
        """Return the text that *ids* complete; an added token is a piece of its own."""
        ...

    def flush(self) -> Sequence[TextPiece]:
        """Return what is left when nothing follows."""
        ...

    @property
    def is_clean(self) -> bool:
        """Whether the next token's text depends on nothing before it."""
        ...


class Pipeline:
    """One choice's way from chunks to deltas. Never raises for model text."""

    __slots__ = (
        "_calls",
        "_decoder",
        "_hidden",
        "_machine",
        "_markers",
        "_sink",
        "_stop",
        "_trim",
        "_unstoppable",
        "finished",
        "is_prose",
        "may_think",
    )

    def __init__(
        self,
        decoder: Decoder,
        *,
        tool_format: ToolFormat | None = None,
        reasoning_format: ReasoningFormat | None = None,
        starts: Start = "outside",
        tools: tuple[ToolSignature, ...] = (),
        stop: tuple[str, ...] = (),
        trim_stop: bool = True,
        hidden: frozenset[int] = frozenset(),
        tokens: frozenset[str] = frozenset(),
        calls_before: int = 0,
        unknown_tools: UnknownTools = "forward",
        strip_thoughts: bool = False,
        min_tokens: int = 0,
        new_call_id: Callable[[], str],
    ) -> None:
        """Prepare for the first chunk.

        Args:
            decoder: This choice's own.
            tool_format: How the model writes calls; None leaves everything content.
            reasoning_format: How the model marks its thinking; None leaves it in the content.
            starts: Where the answer begins, from the rendered prompt's end.
            tools: What the client offered; values are typed by their schemas.
            stop: Stop strings, none empty.
            trim_stop: Whether the stop string or token that matched is dropped from the text.
            hidden: Ids that never show, such as the end of a turn; markers of the formats are read
                nevertheless.
            tokens: The texts of the tokenizer's added tokens: a marker among them is recognised
                only as that token (R4).
            calls_before: Tool calls in the conversation so far; some families count on (Kimi).
            unknown_tools: What becomes of calls to tools the client did not offer.
            strip_thoughts: Whether whitespace around thoughts is left out.
            min_tokens: Tokens within which no stop string is complete.
            new_call_id: Returns an id no other call has.
        """
        self._decoder = decoder
        self._hidden = hidden
        self._stop = StopMatcher(stop, trim=trim_stop) if stop else None
        self._trim = trim_stop
        self._unstoppable = min_tokens if stop else 0
        sink = StrippingSink if strip_thoughts else Sink
        self.is_prose = tool_format is None and reasoning_format is None
        """Whether all is content: no thought and no call is looked for."""
        self._calls: Calls | None = None
        self._machine: Machine | Prose
        if self.is_prose:
            self._markers: frozenset[str] = frozenset()
            self._sink = sink(holds_space=False)
            self._machine = Prose(self._sink)
        else:
            rules = grammar(tool_format, reasoning_format)
            source = Source(tokens)
            self._markers = rules.markers()
            self._sink = sink(
                holds_space=bool(rules.openers or rules.wrappers or rules.drops or rules.has_tools)
            )
            ids = call_ids(tool_format.ids if tool_format else "random", new_call_id, calls_before)
            offered = {tool.name: tool for tool in tools}
            self._calls = Calls(source, self._sink, offered, ids, unknown_tools)
            self._machine = Machine(source, self._sink, self._calls, rules, starts)
        self.may_think = reasoning_format is not None and starts != "off"
        """Whether thoughts are told apart from the answer."""
        self.finished = False
        """True once ``Finished`` was returned: what the worker still sends is of no interest."""

    @property
    def thinks(self) -> bool:
        """Whether what comes next is thought, as far as can be told."""
        return self._machine.thinks

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return what *chunk* tells the client; the last delta of a choice is ``Finished``."""
        if self.finished:
            return []
        ids: Sequence[int] = chunk.token_ids
        ids = self._kept_ids(chunk) if ids and chunk.finish is not None else ids
        if self._unstoppable > 0:
            ids = self._without_stops(ids)
        pieces = self._decoder.feed(ids) if ids else ()
        finish, stop = chunk.finish, self._stop
        if finish is not None:
            pieces = [*pieces, *self._decoder.flush()]
        elif len(pieces) == 1 and pieces[0].token_id is None and stop is None:
            delta = self._machine.plainly(pieces[0].text)
            if delta is not None:
                return [delta]
        shown: Sequence[TextPiece] = self._shown(pieces) if pieces else ()
        if stop is not None:
            shown = stop.last(shown) if finish is not None else stop.feed(shown)
        if shown:
            self._machine.push(shown)
        if stop is not None and stop.matched is not None:
            return self._end("stop", stop.matched, chunk.usage)
        if finish is not None:
            return self._end(finish.reason, finish.matched, chunk.usage)
        return self._sink.drain()

    def passage(self) -> Passage | None:
        """Return how ordinary tokens may pass without being fed, until the next that is fed.

        Each of them would become one delta, of its own text; then :meth:`passed` must hear of it.
        None when none may pass.
        """
        firsts = self._stop.firsts if self._stop is not None else ""
        if self.finished or self._unstoppable > 0 or firsts is None or not self._decoder.is_clean:
            return None
        found = self._machine.passage()
        if found is None:
            return None
        is_thought, begins, holds_space = found
        kind = Reasoning if is_thought else Text
        return Passage(kind, blocked(firsts + begins, space_at_end=holds_space))

    def passed(self) -> None:
        """Note that tokens passed as :meth:`passage` allowed."""
        self._machine.passed()

    def _kept_ids(self, chunk: Chunk) -> Sequence[int]:
        """Return the chunk's ids without the stop token that ended it."""
        ids = chunk.token_ids
        matched = chunk.finish.matched if chunk.finish is not None else None
        if self._trim and isinstance(matched, int) and ids and ids[-1] == matched:
            return ids[:-1]
        return ids

    def _without_stops(self, ids: Sequence[int]) -> Sequence[int]:
        """Read the ids before which no stop string counts; return the others."""
        free = ids[: self._unstoppable]
        self._unstoppable -= len(free)
        shown: Sequence[TextPiece] = self._shown(self._decoder.feed(free))
        if self._stop is not None:
            shown = self._stop.pass_over(shown)
        if shown:
            self._machine.push(shown)
        return ids[len(free) :]

    def _shown(self, pieces: Sequence[TextPiece]) -> list[TextPiece]:
        """Return *pieces* without the hidden ones: of those only markers, or parts, are read."""
        return [p for p in pieces if p.token_id not in self._hidden or self._reads(p)]

    def _reads(self, piece: TextPiece) -> bool:
        return any(piece.text in marker for marker in self._markers)

    def _end(self, reason: FinishReason, matched: int | str | None, usage: Usage) -> list[Delta]:
        self._machine.finish()
        # OpenAI and SGLang: tool_calls only replaces stop, and only for a whole call (R7).
        if reason == "stop" and self._calls is not None and self._calls.complete:
            reason = "tool_calls"
        self.finished = True
        return [*self._sink.drain(), Finished(reason, matched, usage)]
