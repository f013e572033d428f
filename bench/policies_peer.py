"""SMG's cache_aware policy by its published rules, to be simulated next to ours.

Written from the description of its algorithm, not from its code: the tree is a dictionary of
blocks, unbounded and never evicted, which is in the peer's favour.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from sglr_dataplane.fleet.policies import C
from sglr_dataplane.fleet.policies.prefix_index import block_hashes
from sglr_dataplane.job import Job

_BLOCK = 16
_THRESHOLD = 0.3
_ABSOLUTE, _RELATIVE = 64, 1.5


class PeerCacheAware:
    """Above the match threshold the least loaded holder, else the least loaded worker.

    Newer rule (1.13): a holder that is loaded above 1.5 times the mean, and above the mean by the
    absolute margin (at most two standard deviations), is left for the least loaded worker. Older
    rule (0.3): with the fleet out of balance (max - min above 64, max above 1.5 times min) the
    shortest queue, whatever matches.
    """

    def __init__(self, *, newer: bool) -> None:
        """Know nothing yet."""
        self._newer = newer
        self._holders: dict[int, set[str]] = {}
        self._processed: dict[str, int] = {}

    def choose(self, job: Job, candidates: Sequence[C], key: str = "") -> C:
        """Return the peer's choice."""
        del key
        hashes = list(block_hashes(job.input_ids, _BLOCK, 10**6))
        chosen = self._chosen(job, candidates, hashes)
        self._processed[chosen.id] = self._processed.get(chosen.id, 0) + 1
        for block in hashes:
            self._holders.setdefault(block, set()).add(chosen.id)
        return chosen

    def _chosen(self, job: Job, candidates: Sequence[C], hashes: list[int]) -> C:
        idlest = min(
            candidates, key=lambda each: (each.in_flight, self._processed.get(each.id, 0), each.id)
        )
        loads = [each.in_flight for each in candidates]
        most, least = max(loads), min(loads)
        if not self._newer and most - least > _ABSOLUTE and most > _RELATIVE * least:
            return idlest
        matched, holders = 0, set[str]()
        for block in hashes:
            if block not in self._holders:
                break
            matched, holders = matched + _BLOCK, self._holders[block]
        if matched <= _THRESHOLD * len(job.input_ids):
            return idlest
        best = min(
            (each for each in candidates if each.id in holders), key=lambda each: each.in_flight
        )
        if self._newer and self._is_overloaded(best.in_flight, loads):
            return idlest
        return best

    @staticmethod
    def _is_overloaded(load: int, loads: list[int]) -> bool:
        mean = statistics.fmean(loads)
        margin = min(_ABSOLUTE, 2 * statistics.pstdev(loads))
        return load > _RELATIVE * mean and load > mean + margin
