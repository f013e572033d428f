"""Where a prompt is cheapest: tokens to compute against jobs to wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sglr_dataplane.fleet.policies.hashing import best
from sglr_dataplane.fleet.policies.prefix_index import PrefixIndex, block_hashes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglr_dataplane.fleet.policies import C
    from sglr_dataplane.job import Job

_LONGEST: Final = 1024
"""Blocks of a prompt that are looked at: what comes later hardly ever differs in its worker."""


class CacheAware:
    """Takes the worker with the least to do for the job, by what this process sent there before.

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
        index: PrefixIndex,
        clock: Callable[[], float],
    ) -> None:
        """Learn into *index*, which is this policy's own."""
        self._block_tokens = block_tokens
        self._load_tokens = load_tokens
        self._slack = slack
        self._index = index
        self._clock = clock

    def __repr__(self) -> str:
        return f"<CacheAware {self._index!r}>"

    def choose(self, job: Job, candidates: Sequence[C], key: str = "") -> C:  # noqa: ARG002  # the prompt is the key
        """Return the cheapest candidate and remember that it will hold the prompt."""
        hashes = tuple(block_hashes(job.input_ids, self._block_tokens, _LONGEST))
        ids = [candidate.id for candidate in candidates]
        depths, unseen = self._index.depths(hashes, ids)
        chosen = self._cheapest(candidates, depths, unseen or hash(job.input_ids))
        self._index.add(hashes, chosen.id, self._clock())
        return chosen

    def _cheapest(self, candidates: Sequence[C], depths: dict[str, int], key: int) -> C:
        least = min(candidate.in_flight for candidate in candidates) + self._slack
        costs = [
            self._load_tokens * max(candidate.in_flight - least, 0)
            - self._block_tokens * depths.get(candidate.id, 0)
            for candidate in candidates
        ]
        lowest = min(costs)
        pairs = zip(candidates, costs, strict=True)
        return best(key, [candidate for candidate, cost in pairs if cost == lowest])
