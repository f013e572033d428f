"""What a backend's spec says about failure: whom to avoid, for how long, and what then."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

from sglr_proto.duration import Duration, refuse_outside

Percent = Annotated[int, Meta(ge=0, le=100)]


class LastResort(enum.StrEnum):
    """What happens to a request when every worker that is left is a bad choice."""

    FAIL_OPEN = "FailOpen"
    """The least bad worker gets it."""
    REFUSE = "Refuse"
    """It is answered 503 at once."""


class OutlierDetection(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """When a worker that fails real requests is left alone for a while; per router process.

    Refusals (4xx), clients that leave and full queues are neither failures nor successes.
    """

    consecutive_failures: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="Failures in a row after which a worker is left alone; 0 never. Default: "
            "5, which a crash reaches in a second and bad luck does not.",
        ),
    ] = 5
    failure_percent: Annotated[
        Percent,
        Meta(
            description="Share of failed requests within `window` after which a worker is left "
            "alone; 0 never. Default: 50, for a worker that fails now and then, never in a row."
        ),
    ] = 50
    minimum_requests: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Requests within `window` below which `failurePercent` says nothing. "
            "Default: 20, so that one failure weighs 5 %.",
        ),
    ] = 20
    window: Annotated[
        Duration,
        Meta(
            description="How far back `failurePercent` looks; 1s to 1h. Default: 60s: generations "
            "take tens of seconds, so that less would hold too few."
        ),
    ] = "60s"
    base_ejection: Annotated[
        Duration,
        Meta(
            description="How long a worker is left alone before one request tries it; doubles "
            "each time that one fails; 100ms to 1h. Default: 10s: health checks every 5s tell "
            "earlier about a process that died."
        ),
    ] = "10s"
    max_ejection: Annotated[
        Duration,
        Meta(
            description="Longest time that a worker is left alone; at least `baseEjection`, at "
            "most 24h. Default: 300s, the time a large model takes to load."
        ),
    ] = "300s"
    max_ejection_percent: Annotated[
        Percent,
        Meta(
            description="Share of a backend's workers that may be left alone at once, rounded "
            "down; the others are only avoided. Default: 50: when most fail, the cause is "
            "elsewhere, and the few that are left would drown."
        ),
    ] = 50
    last_resort: Annotated[
        LastResort,
        Meta(
            description="What happens to a request when every worker is left alone or fails its "
            "health checks. FailOpen gives it to the least bad one, Refuse answers 503. Default: "
            "FailOpen: an attempt may succeed, a refusal cannot."
        ),
    ] = LastResort.FAIL_OPEN

    def __post_init__(self) -> None:
        """Refuse times outside their bounds, and a longest ejection below the shortest."""
        refuse_outside(1, 3600, window=self.window)
        refuse_outside(0.1, 3600, baseEjection=self.base_ejection)
        refuse_outside(0.1, 86400, maxEjection=self.max_ejection)
