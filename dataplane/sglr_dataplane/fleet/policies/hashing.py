"""Rendezvous hashing: the same choice in every router and process, with no shared state.

Each pair of key and worker has a score, and the worker with the highest takes the key. When a
worker leaves, only its own keys move; when one comes, only the keys that it takes do.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglr_dataplane.fleet.policies import C

_MASK: Final = 2**64 - 1
_weight: Final = attrgetter("weight")


def key_of(text: str) -> int:
    """Return the 64-bit key of *text*, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def score(key: int, id: str) -> int:
    """Return the score of the worker *id* for *key*: uniform over 64 bits."""
    mixed = (key ^ _seed(id)) & _MASK
    # The finalizer of MurmurHash3: every bit of the input moves every bit of the output.
    mixed = ((mixed ^ (mixed >> 33)) * 0xFF51AFD7ED558CCD) & _MASK
    mixed = ((mixed ^ (mixed >> 33)) * 0xC4CEB9FE1A85EC53) & _MASK
    return mixed ^ (mixed >> 33)


def best(key: int, candidates: Sequence[C]) -> C:
    """Return the candidate that *key* belongs to; each has keys by its weight."""
    if len(candidates) == 1:
        return candidates[0]
    scores: list[float] = [score(key, candidate.id) for candidate in candidates]
    if not weigh_alike(candidates):
        # Thaler, Ravishankar; weights by Schindelhauer, Schomaker: the logarithm of a uniform
        # number over the weight has each candidate win by its share.
        scores = [
            -each.weight / math.log((found + 0.5) / 2.0**64)
            for each, found in zip(candidates, scores, strict=True)
        ]
    return candidates[scores.index(max(scores))]


def weigh_alike(candidates: Sequence[C]) -> bool:
    """Return whether all *candidates* are to have equally much."""
    return len(set(map(_weight, candidates))) == 1


def best_with_room(key: int, candidates: Sequence[C], factor_percent: int) -> C:
    """Return the candidate that *key* belongs to among those that are not overloaded.

    No worker has more than *factor_percent* of its share of the jobs, this one included (Mirrokni,
    Thorup, Zadimoghaddam: consistent hashing with bounded loads). What does not fit goes to the
    next in the key's own order, so that routers agree on that, too.
    """
    jobs = sum(candidate.in_flight for candidate in candidates) + 1
    whole = sum(candidate.weight for candidate in candidates)
    with_room = [
        candidate
        for candidate in candidates
        # Rounded up, so that somebody always has room.
        if candidate.in_flight < math.ceil(jobs * factor_percent * candidate.weight / (100 * whole))
    ]
    return best(key, with_room or candidates)


@lru_cache(maxsize=4096)
def _seed(id: str) -> int:
    return key_of(id)
