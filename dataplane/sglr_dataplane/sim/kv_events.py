"""The news of the simulated prefix cache, as ``SubscribeKvEvents`` tells them.

Blocks are whole pages of what the cache holds, hashed over everything before them. The last batches
are kept: who asks for one of them goes on from there, anybody else is told a snapshot first.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sglr_proto.sglang import common_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    Load = Callable[[], pb.EngineLoad]

_KEPT = 256
"""Batches that can be asked for again."""
_PIECE = 64
"""Blocks of one piece of a snapshot: small, so that a test's cache has several."""

Block = tuple[int, int | None, tuple[int, ...]]
"""Its hash, its parent's, its tokens."""


class KvEvents:
    """What has come into a cache and gone out of it, batch by batch."""

    def __init__(self, page_size: int, load: Load) -> None:
        """Begin with an empty cache.

        Args:
            page_size: Tokens of a block.
            load: Returns how busy the worker is; told with each batch.
        """
        self._page_size = page_size
        self._load = load
        self._blocks: dict[int, Block] = {}
        self._uses = Counter[int]()
        self._newest = 0
        self._kept = deque[pb.KvEventBatch](maxlen=_KEPT)
        self._listeners: set[asyncio.Queue[pb.KvEventBatch]] = set()

    def __repr__(self) -> str:
        return f"KvEvents(blocks={len(self._blocks)}, newest={self._newest})"

    @property
    def blocks(self) -> int:
        """How many blocks are in the cache."""
        return len(self._blocks)

    def added(self, ids: tuple[int, ...]) -> None:
        """Tell of a sequence that came into the cache."""
        fresh: list[Block] = []
        for block in _pages(ids, self._page_size):
            self._uses[block[0]] += 1
            if block[0] not in self._blocks:
                self._blocks[block[0]] = block
                fresh.append(block)
        if fresh:
            self._tell(pb.KvCacheEvent(stored=_stored(fresh)))

    def removed(self, ids: tuple[int, ...]) -> None:
        """Tell of a sequence that went out, as far as no other needs its blocks."""
        gone: list[int] = []
        for block, _, _ in _pages(ids, self._page_size):
            self._uses[block] -= 1
            if not self._uses[block]:
                del self._uses[block], self._blocks[block]
                gone.append(block)
        if gone:
            # Leaves first, as an engine evicts.
            removed = pb.KvBlocksRemoved(block_hashes=gone[::-1], tier=pb.KV_CACHE_TIER_DEVICE)
            self._tell(pb.KvCacheEvent(removed=removed))

    def cleared(self) -> None:
        """Tell that everything went out."""
        self._blocks.clear()
        self._uses.clear()
        self._tell(pb.KvCacheEvent(cleared=pb.KvCacheCleared()))

    def lose(self) -> None:
        """Lose a batch, as a queue that is full does."""
        self._newest += 1

    @contextmanager
    def listening(self, start: int) -> Generator[asyncio.Queue[pb.KvEventBatch]]:
        """Return a queue with the batches from *start* on, a snapshot first if they are gone."""
        queue: asyncio.Queue[pb.KvEventBatch] = asyncio.Queue()
        oldest = self._kept[0].sequence_number if self._kept else self._newest + 1
        if start and oldest <= start <= self._newest + 1:
            before = [batch for batch in self._kept if batch.sequence_number >= start]
        else:
            before = list(self._snapshot())
        for batch in before:
            queue.put_nowait(batch)
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)

    def _tell(self, event: pb.KvCacheEvent) -> None:
        self._newest += 1
        event.event_id = self._newest
        batch = self._batch(self._newest, event)
        self._kept.append(batch)
        for queue in self._listeners:
            queue.put_nowait(batch)

    def _batch(self, number: int, *events: pb.KvCacheEvent) -> pb.KvEventBatch:
        return pb.KvEventBatch(
            sequence_number=number, timestamp=time.time(), events=events, load=self._load()
        )

    def _snapshot(self) -> Iterator[pb.KvEventBatch]:
        """Yield all that is in the cache, parents before children, in pieces."""
        # Blocks came in after their parents, and leave before them.
        blocks = list(self._blocks.values())
        pieces = [blocks[at : at + _PIECE] for at in range(0, len(blocks), _PIECE)] or [[]]
        for index, piece in enumerate(pieces):
            events = [pb.KvCacheEvent(stored=_stored([block])) for block in piece]
            batch = self._batch(self._newest, *events)
            batch.snapshot.index, batch.snapshot.count = index, len(pieces)
            batch.snapshot.blocks, batch.snapshot.unknown_before = len(blocks), self._newest
            yield batch


def _pages(ids: tuple[int, ...], size: int) -> Iterator[Block]:
    """Yield the whole pages of *ids*."""
    parent: int | None = None
    for begin in range(0, len(ids) - size + 1, size):
        tokens = ids[begin : begin + size]
        digest = hashlib.sha256(repr((parent, tokens)).encode()).digest()
        block = int.from_bytes(digest[:8], "big", signed=True)
        yield block, parent, tokens
        parent = block


def _stored(blocks: list[Block]) -> pb.KvBlocksStored:
    """Return a run of *blocks* as the wire has it."""
    stored = pb.KvBlocksStored(tier=pb.KV_CACHE_TIER_DEVICE, medium="GPU")
    if blocks[0][1] is not None:
        stored.parent_block_hash = blocks[0][1]
    for block, _, tokens in blocks:
        stored.blocks.add(block_hash=block, token_ids=tokens, block_size=len(tokens))
    return stored
