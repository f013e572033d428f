"""Where a prompt is cheapest: tokens to compute against jobs to wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sglr_dataplane.fleet.policies.exact_index import ExactIndex
from sglr_dataplane.fleet.policies.hashing import best, weigh_alike
from sglr_dataplane.fleet.policies.prefix_index import (
    PrefixIndex,
    block_hash,
    block_hashes,
    seed_of,
)
from sglr_dataplane.job import words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglr_dataplane.fleet.policies import C
    from sglr_dataplane.job import Job

_LONGEST: Final = 1024
"""Blocks of a prompt that are looked at: what comes later hardly ever differs in its worker."""


_UNDER_WAY: Final = 10.0
"""Seconds for which a prompt counts as cached where it was sent, although the worker, which tells
what it has, has not said so yet: queueing and a prefill."""


class CacheAware:
    """Takes the worker with the least to do for the job.

    What is in a worker's cache is known by its own word where it tells (:attr:`told`), else by what
    this process sent there before.

    A worker's cost is the tokens of the prompt that it has not seen, and *load_tokens* for each job
    that it has more than the least busy one and *slack* others. So a hot prefix spreads to more
    workers as soon as waiting costs more than computing it there, and no threshold is needed.

    Among equals the first block that nobody has seen decides by rendezvous hashing: the turns of a
    new conversation meet on one worker, whichever routers they come through.
    """

    def __init__(
        self,
        *,
        block_tokens: int,
        load_tokens: int,
        slack: int,
        most_blocks: int,
        ttl: float,
        clock: Callable[[], float],
    ) -> None:
        """Know nothing yet.

        Args:
            block_tokens: Tokens that are remembered together.
            load_tokens: Tokens that a job more in flight weighs as much as.
            slack: Jobs by which workers may differ and still count as equally busy.
            most_blocks: Blocks that are remembered, and as many again of those that workers tell.
            ttl: Seconds for which what was sent is remembered.
            clock: Seconds that only go up.
        """
        self._block_tokens = block_tokens
        self._load_tokens = load_tokens
        self._slack = slack
        self._sent = PrefixIndex(most=most_blocks, ttl=ttl)
        self._under_way = PrefixIndex(most=most_blocks, ttl=2 * _UNDER_WAY)
        self.told = ExactIndex(block_tokens=block_tokens, most=most_blocks)
        """What workers tell of their caches; whoever follows them writes it."""
        self._clock = clock

    def __repr__(self) -> str:
        return f"<CacheAware sent={self._sent!r} told={self.told!r}>"

    def choose(self, job: Job, candidates: Sequence[C], key: str = "") -> C:  # noqa: ARG002  # the prompt is the key
        """Return the cheapest candidate and remember that it will hold the prompt."""
        seed = seed_of(job.adapter)
        hashes = block_hashes(job.input_ids, self._block_tokens, _LONGEST, seed)
        chosen = candidates[0]
        if len(candidates) > 1:
            depths = self._depths(hashes, [candidate.id for candidate in candidates])
            longest = max(depths.values())
            is_seen = longest == len(hashes)
            unseen = block_hash(seed, words_of(job.input_ids)) if is_seen else hashes[longest]
            chosen = self._cheapest(candidates, depths, unseen)
        index = self._under_way if self.told.knows(chosen.id) else self._sent
        index.add(hashes, chosen.id, self._clock())
        return chosen

    def _depths(self, hashes: tuple[int, ...], workers: Sequence[str]) -> dict[str, int]:
        """Return how many of *hashes*, from the first on, each of *workers* holds."""
        telling = self.told.known(workers)
        if not telling:
            return self._sent.depths(hashes, workers)
        depths = self._sent.depths(hashes, dict.fromkeys(workers).keys() - telling)
        under_way = self._under_way.depths(hashes, telling)
        for worker in telling:
            depths[worker] = max(self.told.depth(hashes, worker), under_way[worker])
        return depths

    def _cheapest(self, candidates: Sequence[C], depths: dict[str, int], key: int) -> C:
        loads: list[float] = [candidate.load for candidate in candidates]
        if not weigh_alike(candidates):
            # A worker of half the weight counts as twice as busy.
            weights = [candidate.weight for candidate in candidates]
            heaviest = max(weights)
            loads = [load * heaviest / each for load, each in zip(loads, weights, strict=True)]
        least = min(loads) + self._slack
        costs = [
            self._load_tokens * max(load - least, 0) - self._block_tokens * depths[candidate.id]
            for candidate, load in zip(candidates, loads, strict=True)
        ]
        lowest = min(costs)
        pairs = zip(candidates, costs, strict=True)
        return best(key, [candidate for candidate, cost in pairs if cost == lowest])
