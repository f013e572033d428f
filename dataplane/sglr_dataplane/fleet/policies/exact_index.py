"""Which blocks are in which worker's cache, by the workers' own word; pure.

Engines name blocks by hashes of their own and cut prompts where they like. Here each of their
blocks is put under the hash that :func:`prefix_index.block_hashes` gives the same tokens, so that
one look finds a prompt at every worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from sglr_dataplane.engine.telling import CacheBatch, Cleared, Removed, Stored
from sglr_dataplane.fleet.policies.prefix_index import WORD, block_hash, seed_of
from sglr_dataplane.job import words_of

_EVERY_TIER: Final = -1


class _Place(NamedTuple):
    """Where a block of an engine ends within our own cutting."""

    so_far: int
    """The hash up to the last of our blocks that is whole."""
    run: bytes
    """The words of the tokens that the block came with: one value for all blocks of the run."""
    begin: int
    """Where in *run* the tokens after that begin, less than a block of ours."""
    end: int
    """Where they end: what comes after this block goes on from there."""
    whole: tuple[int, ...]
    """The hashes of our blocks that become whole with this one."""
    tiers: int
    """A bit for each kind of memory that it is in."""


class _Cache:
    """One worker's blocks."""

    def __init__(self) -> None:
        self.places: dict[tuple[int, int], _Place] = {}
        """By rank and the engine's hash."""
        self.whole = Counter[int]()
        """Our blocks, and how many places hold each."""


class ExactIndex:
    """The blocks of the workers that tell; bounded: who has too many is known no more."""

    def __init__(self, *, block_tokens: int, most: int) -> None:
        """Know nobody.

        Args:
            block_tokens: The size of our blocks.
            most: Blocks of engines, of all workers together.
        """
        self._size = block_tokens
        self._most = most
        self._count = 0
        self._caches: dict[str, _Cache] = {}
        self._overflowed: set[str] = set()

    def __repr__(self) -> str:
        return f"<ExactIndex {self._count} blocks of {sorted(self._caches)}>"

    def __len__(self) -> int:
        return self._count

    def knows(self, worker: str) -> bool:
        """Return whether *worker* told all that is in its cache, and there was room for it."""
        return worker in self._caches

    def known(self, workers: Iterable[str]) -> list[str]:
        """Return those of *workers* that it knows."""
        return [worker for worker in workers if worker in self._caches]

    def depth(self, hashes: Iterable[int], worker: str) -> int:
        """Return how many of *hashes*, from the first on, are in *worker*'s cache."""
        whole, depth = self._caches[worker].whole, 0
        for block in hashes:
            if block not in whole:
                break
            depth += 1
        return depth

    def begin(self, worker: str) -> None:
        """Know that *worker*'s cache is empty: it is about to tell what is in it."""
        self.forget(worker)
        self._overflowed.discard(worker)
        self._caches[worker] = _Cache()

    def forget(self, worker: str) -> None:
        """Know nothing of *worker*."""
        cache = self._caches.pop(worker, None)
        self._count -= len(cache.places) if cache is not None else 0

    def apply(self, worker: str, batch: CacheBatch) -> None:
        """Take over what *worker* says has changed."""
        for change in batch.changes:
            cache = self._caches.get(worker)
            if cache is None:
                return  # nobody asked, or there was no room
            match change:
                case Stored():
                    self._store(cache, batch.rank, change)
                    if self._count > self._most:
                        self.forget(worker)
                        self._overflowed.add(worker)
                case Removed():
                    self._remove(cache, batch.rank, change)
                case Cleared():
                    self._clear(cache, batch.rank)

    def has_overflowed(self, worker: str) -> bool:
        """Return whether *worker* told more than there was room for."""
        return worker in self._overflowed

    def _store(self, cache: _Cache, rank: int, stored: Stored) -> None:
        so_far, run = seed_of(stored.adapter), b""
        if stored.parent is not None:
            parent = cache.places.get((rank, stored.parent))
            if parent is None:
                return  # what comes after something unknown cannot be found by its tokens
            so_far, run = parent.so_far, parent.run[parent.begin : parent.end]
        if not stored.is_plain:
            return
        size, tier = self._size * WORD, 1 << stored.tier
        begin, end = 0, len(run)
        run = b"".join((run, *(words_of(ids) for _, ids in stored.blocks)))
        for block, ids in stored.blocks:
            end += len(ids) * WORD
            whole = tuple[int, ...]()
            while end - begin >= size:
                so_far = block_hash(so_far, run[begin : begin + size])
                begin += size
                whole += (so_far,)
            self._put(cache, (rank, block), _Place(so_far, run, begin, end, whole, tier))

    def _put(self, cache: _Cache, key: tuple[int, int], place: _Place) -> None:
        known = cache.places.get(key)
        if known is not None:
            cache.places[key] = known._replace(tiers=known.tiers | place.tiers)
            return
        cache.places[key] = place
        self._count += 1
        for block in place.whole:
            cache.whole[block] += 1

    def _remove(self, cache: _Cache, rank: int, removed: Removed) -> None:
        tiers = _EVERY_TIER if removed.tier is None else 1 << removed.tier
        for block in removed.hashes:
            place = cache.places.get((rank, block))
            if place is None:
                continue
            left = place.tiers & ~tiers
            if left:
                cache.places[rank, block] = place._replace(tiers=left)
            else:
                self._drop(cache, (rank, block))

    def _clear(self, cache: _Cache, rank: int) -> None:
        for key in [key for key in cache.places if key[0] == rank]:
            self._drop(cache, key)

    def _drop(self, cache: _Cache, key: tuple[int, int]) -> None:
        for block in cache.places.pop(key).whole:
            cache.whole[block] -= 1
            if not cache.whole[block]:
                del cache.whole[block]
        self._count -= 1
