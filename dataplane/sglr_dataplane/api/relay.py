"""The hot path: from what a read of the worker's connection brought to one write to the client's.

Chunks are read, and their frames written, in the very call that brought them; the task that answers
the request sleeps until the end. Where that is possible ordinary tokens become frames without being
decoded, parsed or rendered one by one: their text as JSON writes it, between a beginning and an end
that are the same in every frame. Everything else goes the general way, by the same
:class:`sglr_dataplane.api.answer.Answer` and reply that iterating uses, and gives the same bytes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sglr_dataplane.api.follow import Follower
from sglr_dataplane.engine.lanes import Lane

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglr_dataplane.api.answer import Answer, Choice
    from sglr_dataplane.api.dialect import Reply
    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.api.follow import Batches
    from sglr_dataplane.api.outlet import Outlet
    from sglr_dataplane.job import Chunk, Run, Usage
    from sglr_dataplane.output.deltas import Reasoning, Text
    from sglr_dataplane.output.passage import Passage


class Relay(Follower):
    """Writes a stream's frames as its chunks arrive; the last ones are left to be sent."""

    def __init__(
        self,
        batches: Batches,
        answer: Answer,
        reply: Reply,
        exchange: Exchange,
        outlet: Outlet,
        escaped: Mapping[int, bytes],
    ) -> None:
        """Write to *outlet* what *reply* says of *answer*.

        Args:
            batches: The worker's stream.
            answer: Reads them; its first news may have been told.
            reply: Renders news.
            exchange: Hears that something was sent.
            outlet: Where frames go.
            escaped: Tokens as JSON writes them; empty for those that must be read.
        """
        super().__init__(batches, answer)
        self._reply = reply
        self._exchange = exchange
        self._outlet = outlet
        self._plain = _plain_way(answer, reply, escaped)
        self._escaped = escaped
        self._lane: Lane | None = None
        """What was laid last."""
        self._is_laid = False
        self._held = b""
        self._holds = True
        self._now = asyncio.get_running_loop().time

    async def run(self) -> None:
        """Return when the answer is complete and all but what is held is written.

        Call when the answer's beginning was sent.

        Raises:
            RouterError: The worker failed; what came before is written.
        """
        self._holds = False
        self._outlet.on_room = self.hear
        try:
            if not self._answer.finished:
                self._write(self.held())
                self._lay()
            await super().run()
        finally:
            self._outlet.on_room = None
            self._lift()

    def held(self) -> bytes:
        """Return, once, the frames that are not written, because something goes with them.

        Until :meth:`run` these are all frames, which go with the answer's beginning; at last those
        that go with its end.
        """
        held, self._held = self._held, b""
        return held

    def hear(self) -> None:
        """Take what has arrived; nothing while the client does not read.

        What is not taken stops the worker, and costs no memory.
        """
        if not self._outlet.is_full:
            self._lift()
            super().hear()

    def _lay(self) -> None:
        """Let tokens pass by without a word, where they may: most of an answer goes so."""
        if self._plain is None or not self._plain.is_open:
            return
        if self._lane is None:
            self._lane = Lane(self._outlet, self._exchange, self._escaped)
        self._plain.show(self._lane)
        self._is_laid = True
        self._batches.lay(self._lane)

    def _lift(self) -> None:
        """Count what has passed, before anything else is read."""
        if not self._is_laid:
            return
        self._is_laid = False
        usage = self._batches.lift()
        if usage is not None and self._plain is not None:
            self._plain.passed(usage)

    def _take(self, run: Run | None, chunks: list[Chunk] | None) -> None:
        plain = self._plain
        frames = b""
        if run is not None:
            frames = self._told(run.chunks()) if plain is None else plain.told(run)
        if chunks is not None:
            frames += self._told(chunks)
        if self._answer.finished:
            self._held += frames
            return
        if chunks is not None and plain is not None:
            plain.look_again()
        if self._holds:
            self._held += frames
        else:
            self._write(frames)
            if (
                run is None or len(run.token_ids) == 1
            ):  # what comes in heaps is better read in heaps
                self._lay()

    def _write(self, frames: bytes) -> None:
        if frames:
            self._outlet.write(frames)
            self._exchange.spoke_at = self._now()

    def _told(self, chunks: list[Chunk]) -> bytes:
        return b"".join(map(self._reply.news, self._answer.read(chunks)))


class _PlainWay:
    """Makes the frames of ordinary tokens of an answer's only choice."""

    def __init__(
        self, answer: Answer, choice: Choice, reply: Reply, escaped: Mapping[int, bytes]
    ) -> None:
        self._answer = answer
        self._choice = choice
        self._reply = reply
        self._escaped = escaped
        self._around: dict[type[Text | Reasoning], tuple[bytes, bytes] | None] = {}
        self._passage: Passage | None = None
        self._before = self._between = self._after = b""
        self._has_passed = False

    def look_again(self) -> None:
        """Find out how tokens may pass, after some were read."""
        self._has_passed = False
        self._passage = self._choice.passage()
        if self._passage is None:
            return
        kind = self._passage.kind
        if kind not in self._around:
            self._around[kind] = self._reply.around(kind)
        around = self._around[kind]
        if around is None:
            self._passage = None
        else:
            self._before, self._after = around
            self._between = self._after + self._before

    @property
    def is_open(self) -> bool:
        """Whether tokens may pass."""
        return self._passage is not None

    def show(self, lane: Lane) -> None:
        """Tell *lane* how tokens pass."""
        lane.before, lane.after = self._before, self._after
        lane.blocked = None if self._passage is None else self._passage.blocked

    def told(self, run: Run) -> bytes:
        """Return the frames of *run*, one for each token that becomes text."""
        passage = self._passage
        if passage is not None:
            pieces = [*map(self._escaped.__getitem__, run.token_ids)]
            if all(pieces) and (passage.blocked is None or passage.admits(pieces)):
                self.passed(run.usage)
                return self._before + self._between.join(pieces) + self._after
        return b"".join(map(self._told_alone, run.chunks()))

    def _told_alone(self, chunk: Chunk) -> bytes:
        passage = self._passage
        piece = self._escaped[chunk.token_ids[0]]
        if passage is not None and piece and passage.admits([piece]):
            self.passed(chunk.usage)
            return self._before + piece + self._after
        frames = b"".join(map(self._reply.news, self._answer.read([chunk])))
        self.look_again()
        return frames

    def passed(self, usage: Usage) -> None:
        """Note that tokens passed, which came to *usage*; the first may change the choice's state."""
        if self._has_passed:
            self._choice.counted = usage
        else:
            self._choice.passed(usage)
            self._has_passed = True


def _plain_way(answer: Answer, reply: Reply, escaped: Mapping[int, bytes]) -> _PlainWay | None:
    """Return the plain way of *answer*; None if tokens that end it could be taken for text."""
    choice = answer.only
    if choice is None or any(escaped[token_id] for token_id in choice.ends):
        return None
    return _PlainWay(answer, choice, reply, escaped)
