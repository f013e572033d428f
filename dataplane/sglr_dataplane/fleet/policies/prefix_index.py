"""Which workers have seen the beginning of a prompt, as far as this process knows; pure.

A prompt is cut into blocks; each block's hash stands for everything up to its end. For each hash
the index keeps one integer with a bit for each worker. There are two generations: what is used
moves to the young one, and when that is full or old it becomes the old one and what nobody used
since is gone. So memory is bounded, and nothing has to be swept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sglr_dataplane.fleet.policies.hashing import key_of
from sglr_dataplane.job import words_of

WORD: Final = 4
"""Bytes of an id."""
_MOST_WORKERS: Final = 4096
"""Workers, those that left included, before everything is forgotten: half a KiB for each block."""


def seed_of(adapter: str) -> int:
    """Return what the hashes of prompts under *adapter* start from: 0 for the model itself.

    Equal tokens give other cached values under another adapter.
    """
    return key_of(adapter) if adapter else 0


def block_hash(so_far: int, words: bytes) -> int:
    """Return the hash of what has the hash *so_far*, and the ids in *words* after it.

    Integers hash alike in every process, and so do tuples of them.
    """
    return hash((so_far, int.from_bytes(words, "little")))


def block_hashes(ids: Sequence[int], size: int, most: int, seed: int = 0) -> tuple[int, ...]:
    """Return the hash of *ids* up to the end of each whole block, at most *most* of them."""
    so_far, found, number = seed, list[int](), int.from_bytes
    words, step = words_of(ids[: size * most]), size * WORD
    for begin in range(0, len(words) - step + 1, step):
        # As block_hash says it, without a call for each.
        so_far = hash((so_far, number(words[begin : begin + step], "little")))
        found.append(so_far)
    return tuple(found)


class PrefixIndex:
    """The holders of blocks."""

    def __init__(self, *, most: int, ttl: float) -> None:
        """Hold at most *most* blocks, each for *ttl* to half of it after its last use, in seconds."""
        self._most = max(most // 2, 1)
        self._ttl = ttl / 2
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}
        self._born: float | None = None
        self._bits: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<PrefixIndex {len(self)} blocks, {len(self._bits)} workers>"

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def depths(self, hashes: Iterable[int], workers: Iterable[str]) -> dict[str, int]:
        """Return how many blocks each of *workers* holds from the start."""
        found = dict.fromkeys(workers, 0)
        bits = {self._bits[worker]: worker for worker in found if worker in self._bits}
        alive = sum(bits)
        depth = 0
        for block in hashes:
            holders = (self._young.get(block, 0) | self._old.get(block, 0)) & alive
            if holders != alive:
                self._at(found, bits, alive & ~holders, depth)
            if not holders:
                return found
            alive = holders
            depth += 1
        return self._at(found, bits, alive, depth)

    def add(self, hashes: Iterable[int], worker: str, now: float) -> None:
        """Note that *worker* holds the blocks *hashes* from *now* on."""
        self._turn(now)
        bit = self._bits.get(worker)
        if bit is None:
            bit = self._new_bit(worker)
        young, old = self._young, self._old
        for block in hashes:
            young[block] = young.get(block, 0) | old.pop(block, 0) | bit
            if len(young) >= self._most:
                self._begin_generation(now)
                young, old = self._young, self._old

    @staticmethod
    def _at(found: dict[str, int], bits: dict[int, str], which: int, depth: int) -> dict[str, int]:
        """Note *depth* for each worker whose bit is in *which*."""
        while which:
            lowest = which & -which
            found[bits[lowest]] = depth
            which ^= lowest
        return found

    def _new_bit(self, worker: str) -> int:
        """Return the bit of a worker that was never seen; forgets everything when there are many.

        Workers that left keep their bits: they are asked for no more, and cost little.
        """
        if len(self._bits) >= _MOST_WORKERS:
            self._bits.clear()
            self._young.clear()
            self._old.clear()
        bit = self._bits[worker] = 1 << len(self._bits)
        return bit

    def _turn(self, now: float) -> None:
        if self._born is None:
            self._born = now
        elif now - self._born >= 2 * self._ttl:
            self._begin_generation(now)
            self._begin_generation(now)
        elif now - self._born >= self._ttl:
            self._begin_generation(now)

    def _begin_generation(self, now: float) -> None:
        self._old, self._young = self._young, {}
        self._born = now
