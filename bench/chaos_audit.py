"""Whether each failure of a chaos run was forced by a fault; pure, by the clock of the machine.

Three witnesses are heard: the proxies before the workers, which saw every attempt of every job; the
list of faults; and the router's access log, which says how each job ended. A failure is forced when
a fault hit the worker that it was running on, and, before the first content, every worker that it
was sent to: as long as one that no fault hit was asked, the router should have been answered.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

MARGIN = 3.0
"""Seconds after a fault within which what it did may still come to light: a connection that was cut
off is noticed by its next use or by a probe, which comes every half second and has one second."""
DEADLINE = "request_timeout"
"""What is never sent a second time: the time it has is over."""
LEFT = "client_closed_request"


@dataclass(frozen=True)
class Fault:
    """Something that was done to one worker."""

    kind: str
    worker: int
    began: float
    ended: float


@dataclass(frozen=True)
class Attempt:
    """A job as it was sent to one worker."""

    worker: int
    at: float


@dataclass(frozen=True)
class Ended:
    """A request as the router's log has it."""

    job: str
    failure: str | None
    ended: float
    has_begun: bool
    """Whether its first content was sent."""


@dataclass
class Verdict:
    """What the audit found."""

    failed: Counter[str] = field(default_factory=Counter)
    forced: Counter[str] = field(default_factory=Counter)
    """By the kind of the fault that hit the last attempt."""
    unforced: list[str] = field(default_factory=list)
    """Failures that no fault explains, each in a sentence."""
    hit: int = 0
    """Requests with an attempt that a fault hit: so many could have failed."""
    saved: int = 0
    """Those of them that were complete."""


def read_log(lines: Iterable[str]) -> list[Ended]:
    """Return the requests in a router's access log that had a job."""
    found: list[Ended] = []
    for line in lines:
        if '"message":"request"' not in line:
            continue
        said = json.loads(line)
        if "job" not in said:
            continue
        at = datetime.fromisoformat(said["time"]).timestamp()
        begun = "first_token_seconds" in said
        found.append(Ended(said["job"], said.get("failure"), at, begun))
    return found


def add_unseen(
    attempts: dict[str, list[Attempt]], lines: Iterable[str], workers: dict[str, int]
) -> None:
    """Add to *attempts* those that came to no proxy: the worker could not even be connected to.

    Args:
        attempts: What the proxies saw; each job is sent to a worker once.
        lines: The router's log.
        workers: The number of each worker by the router's name for it.
    """
    for line in lines:
        if '"message":"attempt failed"' not in line:
            continue
        said = json.loads(line)
        seen, number = attempts.setdefault(said["job"], []), workers[said["worker"]]
        if all(attempt.worker != number for attempt in seen):
            seen.append(Attempt(number, datetime.fromisoformat(said["time"]).timestamp()))
            seen.sort(key=lambda attempt: attempt.at)


def judge(
    ended: Iterable[Ended], attempts: dict[str, list[Attempt]], faults: Iterable[Fault]
) -> Verdict:
    """Return what became of the requests that *ended*."""
    by_worker: dict[int, list[Fault]] = {}
    for fault in faults:
        by_worker.setdefault(fault.worker, []).append(fault)
    verdict = Verdict()
    for request in ended:
        if request.failure == LEFT:
            continue
        hits = _hits(request, attempts.get(request.job, []), by_worker)
        verdict.hit += any(hits)
        if request.failure is None:
            verdict.saved += any(hits)
            continue
        verdict.failed[request.failure] += 1
        if _is_forced(request, hits):
            verdict.forced[str(hits[-1])] += 1
        else:
            verdict.unforced.append(f"{request.failure}, {_where(request)}, hit by {hits}")
    return verdict


def _hits(
    request: Ended, attempts: list[Attempt], faults: dict[int, list[Fault]]
) -> list[str | None]:
    """Return, for each attempt, the kind of a fault that hit it; None for none."""
    if not attempts:
        return []  # it never came to a worker
    found: list[str | None] = []
    ends = [attempt.at for attempt in attempts[1:]] + [request.ended]
    for attempt, end in zip(attempts, ends, strict=True):
        kinds = (
            fault.kind
            for fault in faults.get(attempt.worker, [])
            if fault.began <= end and attempt.at <= fault.ended + MARGIN
        )
        found.append(next(kinds, None))
    return found


def _is_forced(request: Ended, hits: list[str | None]) -> bool:
    if not hits:
        return False
    if request.has_begun:
        return hits[-1] is not None
    # A job that a worker went down under is tried once more: two must have been hit.
    return all(hits) and (len(hits) > 1 or request.failure == DEADLINE)


def _where(request: Ended) -> str:
    return "after the first content" if request.has_begun else "before the first content"
