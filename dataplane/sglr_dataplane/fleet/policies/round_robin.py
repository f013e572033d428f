"""Each worker in its turn."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from sglr_dataplane.fleet.policies.hashing import weigh_alike

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglr_dataplane.fleet.policies import C
    from sglr_dataplane.job import Job

_by_id = attrgetter("id")


class RoundRobin:
    """Takes the candidates by id, each after the one before.

    The place in the round is an id, not a count: workers that come, go or are left out of a retry
    do not make others lose or double their turn. With different weights each saves up its own, and
    the richest pays for everybody's: heavy ones come more often, but not all at once.
    """

    def __init__(self) -> None:
        self._last = ""
        self._saved: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<RoundRobin after {self._last!r}>"

    def choose(self, job: Job, candidates: Sequence[C], key: str = "") -> C:  # noqa: ARG002  # takes any job
        """Return the candidate next in the round."""
        if len(candidates) == 1:
            self._last = candidates[0].id
            return candidates[0]
        if not weigh_alike(candidates):
            return self._richest(candidates)
        later = [candidate for candidate in candidates if candidate.id > self._last]
        chosen = min(later or candidates, key=_by_id)
        self._last = chosen.id
        return chosen

    def _richest(self, candidates: Sequence[C]) -> C:
        """Return whose turn it is by weight (nginx's smooth weighted round robin)."""
        self._saved = {each.id: self._saved.get(each.id, 0.0) + each.weight for each in candidates}
        chosen = max(candidates, key=lambda each: (self._saved[each.id], each.id))
        self._saved[chosen.id] -= sum(each.weight for each in candidates)
        self._last = chosen.id
        return chosen
