"""From a worker's chunks to what the client learns, for one choice.

Chunk → decoded pieces → stop strings → reasoning and tool calls → deltas. Streaming feeds chunk by
chunk; an answer in one piece feeds everything and collects. There is no second way (R3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sglr_dataplane.job import Chunk, FinishReason, Usage
from sglr_dataplane.output.deltas import Delta, Finished
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.formats import grammar
from sglr_dataplane.output.ids import call_ids
from sglr_dataplane.output.machine import Machine, Start
from sglr_dataplane.output.sink import Calls, Sink, ToolSignature
from sglr_dataplane.output.source import Source, TextPiece
from sglr_dataplane.output.stop import StopMatcher


class Decoder(Protocol):
    """Turns token ids into text, keeping incomplete characters back (R13)."""

    def feed(self, ids: Sequence[int]) -> Sequence[TextPiece]:
        """Return the text that *ids* complete; an added token is a piece of its own."""
        ...

    def flush(self) -> Sequence[TextPiece]:
        """Return what is left when nothing follows."""
        ...


class Pipeline:
    """One choice's way from chunks to deltas. Never raises for model text."""

    __slots__ = (
        "_calls",
        "_decoder",
        "_hidden",
        "_machine",
        "_read",
        "_sink",
        "_stop",
        "_trim",
        "finished",
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
            new_call_id: Returns an id no other call has.
        """
        rules = grammar(tool_format, reasoning_format)
        source = Source(tokens)
        self._decoder = decoder
        self._hidden = hidden
        self._read = rules.markers()
        self._stop = StopMatcher(stop, trim=trim_stop)
        self._trim = trim_stop
        self._sink = Sink(
            holds_space=bool(rules.openers or rules.wrappers or rules.drops or rules.has_tools)
        )
        ids = call_ids(tool_format.ids if tool_format else "random", new_call_id, calls_before)
        self._calls = Calls(source, self._sink, {tool.name: tool for tool in tools}, ids)
        self._machine = Machine(source, self._sink, self._calls, rules, starts)
        self.finished = False
        """True once ``Finished`` was returned: what the worker still sends is of no interest."""

    def feed(self, chunk: Chunk) -> list[Delta]:
        """Return what *chunk* tells the client; the last delta of a choice is ``Finished``."""
        if self.finished:
            return []
        if chunk.finish is None:
            pieces = self._decoder.feed(chunk.token_ids)
            if len(pieces) == 1 and pieces[0].token_id is None and self._stop.is_idle:
                delta = self._machine.plainly(pieces[0].text)
                if delta is not None:
                    return [delta]
        else:
            pieces = [*self._decoder.feed(self._kept_ids(chunk)), *self._decoder.flush()]
        shown = [p for p in pieces if p.token_id not in self._hidden or self._reads(p)]
        text = self._stop.feed(shown)
        if text:
            self._machine.push(text)
        if self._stop.matched is not None:
            self._finish(())
            return self._end("stop", self._stop.matched, chunk.usage)
        if chunk.finish is not None:
            self._finish(self._stop.flush())
            return self._end(chunk.finish.reason, chunk.finish.matched, chunk.usage)
        return self._sink.drain()

    def _kept_ids(self, chunk: Chunk) -> tuple[int, ...]:
        """Return the chunk's ids without the stop token that ended it."""
        ids = chunk.token_ids
        matched = chunk.finish.matched if chunk.finish is not None else None
        if self._trim and isinstance(matched, int) and ids and ids[-1] == matched:
            return ids[:-1]
        return ids

    def _reads(self, piece: TextPiece) -> bool:
        """Return whether *piece* is a marker, or the part of one that is a token."""
        return any(piece.text in marker for marker in self._read)

    def _finish(self, rest: Sequence[TextPiece]) -> None:
        if rest:
            self._machine.push(rest)
        self._machine.finish()

    def _end(self, reason: FinishReason, matched: int | str | None, usage: Usage) -> list[Delta]:
        # OpenAI and SGLang: tool_calls only replaces stop, and only for a whole call (R7).
        if reason == "stop" and self._calls.complete:
            reason = "tool_calls"
        self.finished = True
        return [*self._sink.drain(), Finished(reason, matched, usage)]
