"""Random workers, and the less busy of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglr_dataplane.fleet.policies.hashing import weigh_alike

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglr_dataplane.fleet.policies import C
    from sglr_dataplane.job import Job


class Random:
    """Takes any candidate, each as often as the others."""

    def __init__(self, chance: Callable[[], float]) -> None:
        """Draw with *chance*, a number in ``[0, 1)``."""
        self._chance = chance

    def choose(self, job: Job, candidates: Sequence[C], key: str = "") -> C:  # noqa: ARG002  # takes any job
        """Return a random candidate, each as often as it weighs."""
        return candidates[_drawn(candidates, self._chance())]


class LeastRequest:
    """Takes the less busy of two random candidates.

    Nearly as even as the least busy of all, and routers that cannot see each other's jobs do not
    all run to the same worker.
    """

    def __init__(self, chance: Callable[[], float]) -> None:
        """Draw with *chance*, a number in ``[0, 1)``."""
        self._chance = chance

    def choose(self, job: Job, candidates: Sequence[C], key: str = "") -> C:  # noqa: ARG002  # takes any job
        """Return the less busy of two candidates that differ, for what each weighs."""
        if len(candidates) == 1:
            return candidates[0]
        one = _drawn(candidates, self._chance())
        others = [*candidates[one + 1 :], *candidates[:one]]
        other = others[_drawn(others, self._chance())]
        return min(candidates[one], other, key=lambda each: (each.load + 1) / each.weight)


def _drawn(candidates: Sequence[C], chance: float) -> int:
    """Return the place of the candidate that *chance* in ``[0, 1)`` falls on, by their weights."""
    if weigh_alike(candidates):
        return int(chance * len(candidates))
    left = chance * sum(candidate.weight for candidate in candidates)
    for place, candidate in enumerate(candidates):
        left -= candidate.weight
        if left < 0:
            return place
    return len(candidates) - 1
