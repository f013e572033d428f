"""Random workers, and the less busy of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        """Return a random candidate."""
        return candidates[int(self._chance() * len(candidates))]


class LeastRequest:
    """Takes the less busy of two random candidates.

    Nearly as even as the least busy of all, and routers that cannot see each other's jobs do not
    all run to the same worker.
    """

    def __init__(self, chance: Callable[[], float]) -> None:
        """Draw with *chance*, a number in ``[0, 1)``."""
        self._chance = chance

    def choose(self, job: Job, candidates: Sequence[C], key: str = "") -> C:  # noqa: ARG002  # takes any job
        """Return the less busy of two candidates that differ."""
        count = len(candidates)
        if count == 1:
            return candidates[0]
        one = int(self._chance() * count)
        other = (one + 1 + int(self._chance() * (count - 1))) % count
        return min(candidates[one], candidates[other], key=lambda each: each.load)
