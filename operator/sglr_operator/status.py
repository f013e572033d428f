"""The status of a SGLangBackend, as it stands in the API server.

Every field is in the CRD's schema (generated from here), so nothing is pruned. No field ticks: a
status changes only when something changed that a person would want to know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Truth = Literal["True", "False", "Unknown"]

ACCEPTED = "Accepted"
RESOLVED_REFS = "ResolvedRefs"
ENDPOINTS_AVAILABLE = "EndpointsAvailable"
PROGRAMMED = "Programmed"
READY = "Ready"
CONDITION_TYPES = (ACCEPTED, RESOLVED_REFS, ENDPOINTS_AVAILABLE, PROGRAMMED, READY)

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One observation, in the form of ``metav1.Condition``.

    Every field is written, ``message`` also when it is empty: metav1 requires it. Reading takes a
    condition without one, because an older operator left it out.
    """

    type: Annotated[str, Meta(min_length=1, max_length=316, description="What is observed.")]
    status: Annotated[Truth, Meta(description="Whether it holds.")]
    reason: Annotated[
        str,
        Meta(min_length=1, max_length=1024, description="Why, in one CamelCase word."),
    ]
    message: Annotated[
        str, Meta(max_length=32768, description="What a person can do about it.")
    ] = ""
    last_transition_time: Annotated[
        str,
        Meta(
            max_length=64,
            description="When status last changed, RFC 3339.",
            extra_json_schema={"format": "date-time"},
        ),
    ]
    observed_generation: Annotated[
        int, Meta(ge=0, description="The metadata.generation this is about.")
    ] = 0


class EndpointCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many addresses the backend has, by what may be sent to them."""

    total: Annotated[Count, Meta(description="Endpoints of any state.")] = 0
    ready: Annotated[Count, Meta(description="Endpoints that take new requests.")] = 0
    draining: Annotated[
        Count, Meta(description="Endpoints that finish their streams and take no new ones.")
    ] = 0


class SnapshotRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which version of the backend the operator has made for routers."""

    version: Annotated[Count, Meta(description="Rises within an epoch.")] = 0
    epoch: Annotated[
        str, Meta(max_length=64, description="The leadership the version was made under.")
    ] = ""


class RouterCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What routers say about the newest version, counted by router pod."""

    connected: Annotated[Count, Meta(description="Router pods subscribed.")] = 0
    synced: Annotated[Count, Meta(description="Router pods that acknowledged it.")] = 0
    rejected: Annotated[Count, Meta(description="Router pods that refused it.")] = 0


class WorkerCounts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Worker health as routers see it; a worker is unhealthy when any router says so."""

    healthy: Annotated[Count, Meta(description="Every reporting router can use them.")] = 0
    unhealthy: Annotated[Count, Meta(description="Some router cannot use them.")] = 0


class BackendStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything the operator says about one backend."""

    observed_generation: Annotated[
        int, Meta(ge=0, description="The metadata.generation this status is about.")
    ] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        Meta(
            max_length=16,
            description="Accepted, ResolvedRefs, EndpointsAvailable, Programmed and Ready.",
            extra_json_schema={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        ),
    ] = ()
    endpoints: EndpointCounts = msgspec.field(default_factory=EndpointCounts)
    snapshot: SnapshotRef = msgspec.field(default_factory=SnapshotRef)
    routers: RouterCounts = msgspec.field(default_factory=RouterCounts)
    workers: WorkerCounts = msgspec.field(default_factory=WorkerCounts)
    operator: Annotated[
        str,
        Meta(max_length=320, description="Lease of the operator that wrote this: namespace/name."),
    ] = ""
    models: Annotated[
        tuple[Annotated[str, Meta(max_length=256)], ...],
        Meta(max_length=32, description="Names clients can send as `model`."),
    ] = ()


@dataclass(frozen=True, slots=True)
class RefProblem:
    """Something that a backend names cannot be used: what its ResolvedRefs will say."""

    reason: str
    message: str


def condition(status: BackendStatus, kind: str) -> Condition | None:
    """Return the condition of type *kind*; None before the operator has said anything."""
    return next((c for c in status.conditions if c.type == kind), None)
