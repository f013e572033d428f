"""A worker's stream by batches, as a script has it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from sglr_dataplane.engine.lanes import Lane
from sglr_dataplane.errors import RouterError
from sglr_dataplane.job import Chunk, Run, Usage


class ScriptedBatches:
    """What a worker's connection brings, read by read."""

    def __init__(self, reads: Sequence[Sequence[Chunk]], failure: RouterError | None) -> None:
        """Bring *reads* one after the other, and *failure* with the last of them."""
        self._reads = deque(list(read) for read in reads)
        self._failure = failure
        self.on_news: Callable[[], None] = lambda: None

    def follow(self, on_news: Callable[[], None]) -> None:
        """Tell *on_news* from now on."""
        self.on_news = on_news

    @property
    def has_failed(self) -> bool:
        """Whether nothing but the failure is left."""
        return self._failure is not None and not self._reads

    @property
    def are_quiet(self) -> bool:
        """Whether nothing is there to be pulled: never said, as an HTTP worker's stream does."""
        return False

    @property
    def left(self) -> int:
        """How many chunks nobody has pulled."""
        return sum(map(len, self._reads))

    def pull(self) -> tuple[Run | None, list[Chunk] | None]:
        """Return the next read; as a run what can be one, as the transport does."""
        if self.has_failed and self._failure is not None:
            raise self._failure
        chunks = self._reads.popleft() if self._reads else []
        ids: list[int] = []
        for chunk in chunks:
            if len(chunk.token_ids) != 1 or chunk.finish is not None or chunk.extras is not None:
                break
            ids += chunk.token_ids
        if not ids:
            return None, chunks
        rest = chunks[len(ids) :] or ([] if self.has_failed else None)
        return Run(ids, chunks[len(ids) - 1].usage), rest

    def lay(self, lane: Lane) -> None:
        """Let nothing pass; ``test_lanes`` holds what does against what does not."""

    def lift(self) -> Usage | None:
        """Return that nothing has passed."""
        return None

    async def singly(self) -> AsyncIterator[Chunk]:
        """Yield the chunks that are asked for one by one, which the reads then lack."""
        while self._reads:
            read = self._reads[0]
            if not read:
                self._reads.popleft()
                continue
            yield read.pop(0)
        if self._failure is not None:
            raise self._failure
