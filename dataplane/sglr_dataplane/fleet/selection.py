"""Selection: which workers may take a job at all, before a policy chooses among them; pure.

The best group with anybody in it is offered, and nobody of a worse one:

1. ready, and nothing speaks against it;
2. ready, but its last probe or connection failed, its queue was full a moment ago, or its breaker
   is open and no more workers may be left alone;
3. ready, but the control plane wants no new jobs there;
4. as the last resort, if the backend allows it: left alone by its breaker;
5. then: failing its probes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sglr_dataplane.fleet.worker import Worker, WorkerState
from sglr_proto.backend import LastResort, OutlierDetection
from sglr_proto.snapshot import EndpointState

_GROUPS = 5


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


def candidates(
    workers: Collection[Worker], wanted: OutlierDetection, now: float, without: Collection[str]
) -> tuple[Worker, ...]:
    """Return those of *workers* that may take a job at *now*; *without* are ids to leave out."""
    ejected = ejections(workers, wanted.max_ejection_percent, now)
    groups: tuple[list[Worker], ...] = tuple([] for _ in range(_GROUPS))
    for worker in workers:
        if worker.id not in without:
            group = _group(worker, ejected, now)
            if group is not None:
                groups[group].append(worker)
    allowed = groups if wanted.last_resort is LastResort.FAIL_OPEN else groups[:3]
    return tuple(next(filter(None, allowed), ()))


def usable(workers: Iterable[Worker]) -> int:
    """Return how many of *workers* are ready and wanted by the control plane."""
    return sum(
        worker.is_ready and worker.endpoint.state is EndpointState.READY for worker in workers
    )


def _group(worker: Worker, ejected: Ejections, now: float) -> int | None:
    """Return the place of *worker*'s group, from 0; None when it may take nothing."""
    if worker.endpoint.state is EndpointState.UNREADY:
        return None
    if worker.state is WorkerState.UNHEALTHY and worker.may_still_serve:
        return 4
    if not worker.is_ready:
        return None
    if worker.id in ejected.alone:
        return 3
    if worker.endpoint.state is EndpointState.DRAINING:
        return 2
    doubtful = worker.suspect or worker.id in ejected.avoided or worker.is_busy(now)
    return 1 if doubtful else 0
