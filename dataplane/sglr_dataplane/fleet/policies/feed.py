"""A worker's news of its cache, put in order: a snapshot first, then batch by batch; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sglr_dataplane.engine.telling import CacheBatch
    from sglr_dataplane.fleet.policies.exact_index import ExactIndex

SNAPSHOT: Final = 0
"""The number to ask from when all that is in the cache is to be told."""


class CacheFeed:
    """What one worker tells into an index, however often the telling is cut."""

    def __init__(self, index: ExactIndex, worker: str) -> None:
        """Have heard nothing of *worker*."""
        self._index = index
        self._worker = worker
        self._piece: int | None = None
        """The next piece of a snapshot that is being told; None when none is."""
        self.next = SNAPSHOT
        """The number to go on from; SNAPSHOT when everything must be told anew."""

    def __repr__(self) -> str:
        return f"<CacheFeed of {self._worker} from {self.next}>"

    def take(self, batch: CacheBatch) -> bool:
        """Take *batch* over; return False when something was lost: ask anew, from `next` on.

        What was known stays until the snapshot begins: old news are better than none.
        """
        if batch.is_load_only:
            return True
        if batch.piece is not None:
            return self._take_piece(batch, *batch.piece)
        if self._piece is not None:
            return self._lost()
        if self.next == SNAPSHOT:
            # It has no snapshots: from here on it is known what comes and goes.
            self._index.begin(self._worker)
        elif batch.sequence < self.next:
            return True  # told before
        elif batch.sequence > self.next:
            return self._lost()
        self._index.apply(self._worker, batch)
        self.next = batch.sequence + 1
        return True

    def restart(self) -> None:
        """Ask for everything the next time: another process may be there."""
        self._lost()

    def _take_piece(self, batch: CacheBatch, piece: int, count: int) -> bool:
        if piece == 0:
            self._index.begin(self._worker)
        elif piece != self._piece:
            return self._lost()
        self._index.apply(self._worker, batch)
        is_last = piece + 1 >= count
        self._piece = None if is_last else piece + 1
        self.next = batch.sequence + 1 if is_last else SNAPSHOT
        return True

    def _lost(self) -> bool:
        self._piece = None
        self.next = SNAPSHOT
        return False
