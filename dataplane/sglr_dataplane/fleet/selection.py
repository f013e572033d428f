"""Selection: which workers may take a job at all, before a policy chooses among them; pure.

The best group with anybody in it is offered, and nobody of a worse one:

1. ready, and nothing speaks against it;
2. ready, but its last probe or connection failed, its queue was full a moment ago, or its breaker
   is open and no more workers may be left alone;
3. ready, but the control plane wants no new jobs there;
4. as the last resort, if the backend allows it: left alone by its breaker;
5. then: failing its probes.

Of a group, those of the lowest tier, and of those the ones in the router's zone if that matters.
Who is full is in no group: so a tier or a zone without room spills over to the next.

In no group either: a worker whose connection was lost, until it has said again what it serves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from sglr_dataplane.fleet.breaker import CLOSED
from sglr_dataplane.fleet.worker import Worker, WorkerState
from sglr_proto.backend import LastResort, OutlierDetection
from sglr_proto.snapshot import EndpointState

_LAST_RESORT: Final = 3
"""Where the groups of the last resort begin."""
_NOWHERE: Final = 5
"""Where those are that may take nothing."""

_READY: Final = WorkerState.READY
_WANTED: Final = EndpointState.READY


Groups = tuple[list[Worker], ...]


@dataclass(frozen=True, slots=True)
class Ejections:
    """The workers that are left alone now, and whose breaker is open without that."""

    alone: frozenset[str]
    avoided: frozenset[str]


def ejections(workers: Collection[Worker], percent: int, now: float) -> Ejections:
    """Return who is left alone: at most *percent* of *workers*, those that failed first."""
    failing = [worker for worker in workers if not worker.breaker.admits(now)]
    failing.sort(key=lambda worker: (worker.breaker.opened_at, worker.id))
    most = len(workers) * percent // 100
    ids = [worker.id for worker in failing]
    return Ejections(frozenset(ids[:most]), frozenset(ids[most:]))


class Offer(msgspec.Struct, frozen=True, gc=False):
    """Who may take a job now."""

    candidates: tuple[Worker, ...] = ()
    is_full: bool = False
    """True when there is nobody only because those who could have as many jobs as they take."""
    room: int = 0
    """How many jobs more are taken, by these and by those that they would spill over to."""


NOBODY: Final = Offer()


class Rules(msgspec.Struct, frozen=True):
    """What a backend says of whom its jobs go to."""

    outliers: OutlierDetection
    """How many may be left alone, and what is done when all are."""
    limit: int | None = None
    """Jobs that one worker is given; None: as many as it says it runs."""
    zone: str = ""
    """Whose workers are preferred; ``""``: nobody's."""


def offer(
    workers: Collection[Worker],
    rules: Rules,
    now: float,
    without: Collection[str] = (),
    enough: float = math.inf,
) -> Offer:
    """Return those of *workers* that may take a job at *now*.

    Args:
        workers: A backend's.
        rules: That backend's.
        now: Seconds of the breakers' clock.
        without: Ids to leave out.
        enough: Nobody more is looked at once there is more room than that; then some are missing.
    """
    groups: Groups = ([], [], [], [], [], [])
    limit, outliers = rules.limit, rules.outliers
    room, is_full, ejected = 0, False, None
    for worker in workers:
        if worker.id in without:
            continue
        if (  # nothing speaks against it, as against hardly anybody; who is lost is suspect, too
            worker.state is _READY
            and not worker.suspect
            and worker.full_at is None
            and worker.breaker.state is CLOSED
            and worker.endpoint.state is _WANTED
        ):
            place, left = 0, (worker.most_jobs if limit is None else limit) - worker.in_flight
        else:
            ejected = ejected or ejections(workers, outliers.max_ejection_percent, now)
            place, left = _group(worker, ejected, now), worker.room(limit, now)
        if left <= 0:
            is_full = is_full or place < _LAST_RESORT
            continue
        groups[place].append(worker)
        if place < _LAST_RESORT:
            room += left
            if room > enough:
                break
    # Nobody is sent to a bad worker because the good ones are busy.
    fails_open = outliers.last_resort is LastResort.FAIL_OPEN and not is_full
    last = _NOWHERE if fails_open else _LAST_RESORT
    best = next(filter(None, groups[:last]), groups[0])
    room = room or sum(worker.room(limit, now) for worker in best)
    chosen = tuple(best) if len(best) == 1 else _preferred(best, rules.zone)
    return Offer(chosen, is_full and not best, room)


def _preferred(group: Sequence[Worker], zone: str) -> tuple[Worker, ...]:
    """Return those of *group* in its lowest tier, and in *zone* as far as anybody is there."""
    tiers = {worker.endpoint.priority for worker in group}
    if len(tiers) > 1:
        lowest = min(tiers)
        group = [worker for worker in group if worker.endpoint.priority == lowest]
    tier = tuple(group)
    near = tuple([worker for worker in tier if worker.endpoint.zone == zone]) if zone else ()
    return near or tier


def having(adapter: str, workers: Collection[Worker]) -> Collection[Worker]:
    """Return those of *workers* that list *adapter*; all when it is ``""``."""
    return [each for each in workers if adapter in each.adapters] if adapter else workers


def is_coming(workers: Iterable[Worker], without: Collection[str] = ()) -> bool:
    """Return whether one of *workers* may take jobs in a moment: its probe is on the way."""
    return any(
        worker.is_unjudged
        and worker.endpoint.state is EndpointState.READY
        and worker.id not in without
        for worker in workers
    )


def usable(workers: Iterable[Worker]) -> int:
    """Return how many of *workers* are ready, reached and wanted by the control plane."""
    return sum(
        worker.is_ready
        and not worker.is_unreachable
        and worker.endpoint.state is EndpointState.READY
        for worker in workers
    )


def _group(worker: Worker, ejected: Ejections, now: float) -> int:
    """Return the place of *worker*'s group, from 0."""
    if worker.endpoint.state is EndpointState.UNREADY or worker.is_lost:
        return _NOWHERE
    if worker.state is WorkerState.UNHEALTHY and worker.may_still_serve:
        return 4
    if not worker.is_ready:
        return _NOWHERE
    if worker.id in ejected.alone:
        return 3
    if worker.endpoint.state is EndpointState.DRAINING:
        return 2
    doubtful = worker.suspect or worker.id in ejected.avoided or worker.is_busy(now)
    return 1 if doubtful else 0
