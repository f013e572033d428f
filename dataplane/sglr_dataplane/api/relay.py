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
        only = answer.only
        self._plain = None if only is None else _PlainWay(answer, only, reply, escaped)
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
            if self._is_laid:
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
        if self._has_ended or self._outlet.is_full:
            return
        if self._is_laid:
            self._lift()
        self._hear()

    def _lay(self) -> None:
        """Let tokens pass by without a word, where they may: most of an answer goes so."""
        if self._plain is None:
            return
        if self._lane is None:
            self._lane = Lane(self._outlet, self._exchange, self._escaped)
        if self._plain.opens(self._lane):
            self._is_laid = True
            self._batches.lay(self._lane)

    def _lift(self) -> None:
        """Count what has passed, before anything else is read."""
        self._is_laid = False
        usage = self._batches.lift()
        if usage is not None and self._plain is not None:
            self._plain.passed(usage)

    def _take(self, run: Run | None, chunks: list[Chunk] | None) -> None:
        plain = self._plain
        frames = b""
        if run is not None and plain is not None:
            frames = plain.told(run)
        elif run is not None:
            chunks = [*run.chunks(), *(chunks or ())]
        if chunks is not None:
            frames += b"".join(map(self._reply.news, self._answer.read(chunks)))
        if self._answer.finished:
            self._held += frames
            return
        if chunks is not None and plain is not None:
            plain.look_again()
        if self._holds:
            self._held += frames
        else:
            self._write(frames)
            if run is None or len(run.token_ids) == 1:
                # What comes in heaps is better read in heaps.
                self._lay()

    def _write(self, frames: bytes) -> None:
        if frames:
            self._outlet.write(frames)
            self._exchange.spoke_at = self._now()


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
        self._must_look = True
        """Whether tokens were read since it was found out how others may pass."""
        self._passage: Passage | None = None
        self._before = self._between = self._after = b""
        self._has_passed = False

    def look_again(self) -> None:
        """Note that tokens were read: others may pass in another way, or not at all."""
        self._must_look = True
        self._has_passed = False

    def _look(self) -> Passage | None:
        """Return how tokens may pass now."""
        if not self._must_look:
            return self._passage
        self._must_look = False
        self._passage = None
        if any(map(self._escaped.__getitem__, self._choice.ends)):
            return None  # an end would be taken for text
        found = self._choice.passage()
        if found is None:
            return None
        if found.kind not in self._around:
            self._around[found.kind] = self._reply.around(found.kind)
        around = self._around[found.kind]
        if around is not None:
            self._before, self._after = around
            self._between = self._after + self._before
            self._passage = found
        return self._passage

    def opens(self, lane: Lane) -> bool:
        """Return whether tokens may pass by *lane*, which is told how."""
        passage = self._look()
        if passage is None:
            return False
        lane.before, lane.after, lane.blocked = self._before, self._after, passage.blocked
        return True

    def told(self, run: Run) -> bytes:
        """Return the frames of *run*, one for each token that becomes text."""
        passage = self._look()
        if passage is not None:
            pieces = [*map(self._escaped.__getitem__, run.token_ids)]
            if all(pieces) and (passage.blocked is None or passage.admits(pieces)):
                self.passed(run.usage)
                return self._before + self._between.join(pieces) + self._after
        return b"".join(map(self._told_alone, run.chunks()))

    def _told_alone(self, chunk: Chunk) -> bytes:
        passage = self._look()
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
