"""From what is known about one backend to its status; pure.

Reasons are words for machines, messages are for the person who can act. The time of a condition
changes only when its status does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sglr_operator.endpoints import Found
from sglr_operator.status import (
    ACCEPTED,
    ENDPOINTS_AVAILABLE,
    PROGRAMMED,
    READY,
    RESOLVED_REFS,
    BackendStatus,
    Condition,
    EndpointCounts,
    RouterCounts,
    SnapshotRef,
    Truth,
    WorkerCounts,
    condition,
)
from sglr_proto.snapshot import Endpoint, EndpointState, Epoch

_NAMED = 3
"""Obstacles and routers named in one message; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A router that refused the newest version."""

    router: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class RouterView:
    """What routers say about the newest version of one backend, counted by pod."""

    connected: int = 0
    synced: int = 0
    rejections: tuple[Rejection, ...] = ()
    """Sorted by router."""
    lagging: tuple[str, ...] = ()
    """Routers that have not answered within the grace, sorted."""
    unprepared: tuple[str, ...] = ()
    """What routers lack to serve the backend, such as its tokenizer; sorted, with their names."""
    healthy: int = 0
    unusable: Mapping[str, str] = field(default_factory=dict[str, str])
    """By endpoint id: why a router cannot use it; empty when it does not say."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the status of one backend is made from."""

    generation: int
    found: Found
    routers: RouterView
    epoch: Epoch
    version: int
    """Of what was composed last; 0 when nothing ever was."""
    operator: str = ""
    """Who says so: namespace and name of the Lease."""
    crd_problem: str = ""
    """Why parts of the spec may be missing; empty when none are."""
    oversize: str = ""
    """Why the newest version cannot be sent; empty when it can."""
    spec_problem: str = ""
    """Why the spec is refused; empty when it is accepted."""
    conflict: str = ""
    """Why another backend has its model's name; empty when none has."""
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Claim:
    kind: str
    status: Truth
    reason: str
    message: str


def status_of(facts: Facts, previous: BackendStatus | None, now: str) -> BackendStatus:
    """Return the whole status, with the previous times of conditions that still hold.

    Args:
        facts: What is known.
        previous: The status in the API server; None when there is none.
        now: The time, RFC 3339, for conditions that change.
    """
    claims = [_accepted(facts), _resolved(facts), _available(facts), _programmed(facts)]
    claims.append(_ready(claims))
    found = facts.found
    return BackendStatus(
        observed_generation=facts.generation,
        conditions=tuple(_dated(claim, facts, previous, now) for claim in claims),
        endpoints=EndpointCounts(
            total=len(found.endpoints),
            ready=found.count(EndpointState.READY),
            draining=found.count(EndpointState.DRAINING),
        ),
        snapshot=SnapshotRef(
            version=facts.version,
            epoch=f"{facts.epoch[0]}.{facts.epoch[1]}" if facts.version else "",
        ),
        routers=RouterCounts(
            connected=facts.routers.connected,
            synced=facts.routers.synced,
            rejected=len(facts.routers.rejections),
        ),
        operator=facts.operator,
        workers=WorkerCounts(healthy=facts.routers.healthy, unhealthy=len(facts.routers.unusable)),
        models=facts.models,
    )


def _accepted(facts: Facts) -> _Claim:
    if facts.spec_problem:
        keeps = " Routers keep the last good version." if facts.version else ""
        return _Claim(ACCEPTED, "False", "InvalidSpec", facts.spec_problem + keeps)
    if facts.conflict:
        return _Claim(ACCEPTED, "False", "ModelConflict", facts.conflict)
    # It stays accepted: what is there works, and what the definition drops nobody can see here.
    return _Claim(ACCEPTED, "True", "Accepted", facts.crd_problem or "The spec is valid.")


def _resolved(facts: Facts) -> _Claim:
    problem = facts.found.problem
    if problem is not None:
        return _Claim(RESOLVED_REFS, "False", problem.reason, problem.message)
    return _Claim(RESOLVED_REFS, "True", "ResolvedRefs", "Everything that the spec names exists.")


def _available(facts: Facts) -> _Claim:
    found = facts.found
    ready = [each for each in found.endpoints if each.state is EndpointState.READY]
    if ready:
        return _usable(ready, facts.routers.unusable)
    if not found.matched:
        return _Claim(ENDPOINTS_AVAILABLE, "False", "NoEndpoints", "No pod or address is matched.")
    return _Claim(
        ENDPOINTS_AVAILABLE,
        "False",
        "NoReadyEndpoints",
        f"{_pods(found.matched)}, 0 ready: {_some(found.obstacles)}.",
    )


def _usable(ready: list[Endpoint], unusable: Mapping[str, str]) -> _Claim:
    """Return what routers say of endpoints that Kubernetes calls ready; silence is consent."""
    bad = tuple(
        f"{each.address}: {unusable[each.id].removesuffix('.') or 'not usable'}"
        for each in ready
        if each.id in unusable
    )
    if not bad:
        return _Claim(ENDPOINTS_AVAILABLE, "True", "EndpointsReady", f"{len(ready)} ready.")
    words = f"{len(ready)} ready, but routers cannot use {len(bad)}: {_some(bad)}."
    if len(bad) < len(ready):
        return _Claim(ENDPOINTS_AVAILABLE, "True", "EndpointsReady", words)
    return _Claim(ENDPOINTS_AVAILABLE, "False", "NoUsableEndpoints", words)


def _programmed(facts: Facts) -> _Claim:
    return _unsent(facts) or _answered(facts.routers)


def _unsent(facts: Facts) -> _Claim | None:
    """Return why routers were not told the newest version; None when they were."""
    if facts.oversize:
        return _Claim(PROGRAMMED, "False", "TooLarge", facts.oversize)
    if not facts.version:
        return _Claim(PROGRAMMED, "Unknown", "Pending", "Nothing was sent to routers yet.")
    return None


def _answered(routers: RouterView) -> _Claim:
    if not routers.connected:
        return _Claim(PROGRAMMED, "False", "NoRouters", "No router is connected to the operator.")
    if routers.rejections:
        first = routers.rejections[0]
        names = _some(tuple(rejection.router for rejection in routers.rejections))
        return _Claim(
            PROGRAMMED,
            "False",
            "RouterRejected",
            f"Rejected by {names}; {first.router} says {first.code}: {first.message}",
        )
    if routers.lagging:
        return _Claim(
            PROGRAMMED, "False", "RoutersLagging", f"No answer yet from {_some(routers.lagging)}."
        )
    if routers.synced < routers.connected:
        return _Claim(PROGRAMMED, "Unknown", "Syncing", "Routers are applying the newest version.")
    if routers.unprepared:
        words = f"{_some(tuple(each.removesuffix('.') for each in routers.unprepared))}."
        return _Claim(PROGRAMMED, "False", "RoutersNotPrepared", words)
    return _Claim(
        PROGRAMMED, "True", "AllRoutersSynced", "Every router acknowledged the newest version."
    )


def _ready(claims: list[_Claim]) -> _Claim:
    """Return the roll-up: the first claim that is False, else the first Unknown one, says why."""
    for bad in ("False", "Unknown"):
        for claim in claims:
            if claim.status == bad:
                return _Claim(READY, claim.status, claim.reason, claim.message)
    return _Claim(READY, "True", "Ready", "Routers send requests to this backend's workers.")


def _dated(claim: _Claim, facts: Facts, previous: BackendStatus | None, now: str) -> Condition:
    before = condition(previous, claim.kind) if previous is not None else None
    same = before is not None and before.status == claim.status
    return Condition(
        type=claim.kind,
        status=claim.status,
        reason=claim.reason,
        message=claim.message,
        last_transition_time=before.last_transition_time if before is not None and same else now,
        observed_generation=facts.generation,
    )


def _some(names: tuple[str, ...]) -> str:
    """Return the first few of *names*, and how many more there are."""
    shown = "; ".join(names[:_NAMED])
    rest = len(names) - _NAMED
    return f"{shown}; and {rest} more" if rest > 0 else shown


def _pods(number: int) -> str:
    return "1 pod matches" if number == 1 else f"{number} pods match"
