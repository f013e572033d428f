"""Each worker in its turn."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglr_dataplane.fleet.policies import C
    from sglr_dataplane.job import Job

_by_id = attrgetter("id")


class RoundRobin:
    """Takes the candidates by id, each after the one before.

    The place in the round is an id, not a count: workers that come, go or are left out of a retry
    do not make others lose or double their turn.
    """

    def __init__(self) -> None:
        self._last = ""

    def __repr__(self) -> str:
        return f"<RoundRobin after {self._last!r}>"

    def choose(self, job: Job, candidates: Sequence[C], key: str = "") -> C:  # noqa: ARG002  # takes any job
        """Return the candidate next in the round."""
        later = [candidate for candidate in candidates if candidate.id > self._last]
        chosen = min(later or candidates, key=_by_id)
        self._last = chosen.id
        return chosen
