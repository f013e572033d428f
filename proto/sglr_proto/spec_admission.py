"""What a backend's spec says about how much it takes at once, and who waits."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

from sglr_proto.duration import Duration, refuse_outside

Rate = Annotated[int, Meta(ge=1, le=10**12)]
Jobs = Annotated[int, Meta(ge=1, le=1_000_000)]


class RateScope(enum.StrEnum):
    """Whose use a rate limit counts."""

    ROUTER = "Router"
    """Everybody's together."""
    API_KEY = "APIKey"
    """Each caller's by itself; those without a key are one caller."""


class RateLimit(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What may be used of the backend in a minute; above it requests are answered 429.

    Each limit holds per router, whose processes divide it: n routers let n times as much through.
    """

    requests_per_minute: Annotated[
        Jobs | None, Meta(description="Requests. Default: unlimited.")
    ] = None
    input_tokens_per_minute: Annotated[
        Rate | None, Meta(description="Tokens of prompts. Default: unlimited.")
    ] = None
    output_tokens_per_minute: Annotated[
        Rate | None,
        Meta(
            description="Tokens of answers. They are counted when an answer ends, so that one may "
            "go beyond; the next waits longer. Default: unlimited."
        ),
    ] = None
    per: Annotated[
        RateScope, Meta(description="Whose use is counted. Default: Router, everybody's together.")
    ] = RateScope.ROUTER


class Admission(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How many requests run and wait; each limit holds per router, whose processes divide it."""

    max_inflight: Annotated[
        Jobs | None,
        Meta(
            description="Requests of the backend that run at once. Default: as many as its "
            "workers take."
        ),
    ] = None
    max_inflight_per_endpoint: Annotated[
        Jobs | None,
        Meta(
            description="Requests that one worker is given at once. Default: the worker's own "
            "max_running_requests: what is above would wait in its queue, where it can neither "
            "go elsewhere nor wait fairly."
        ),
    ] = None
    max_queue_depth: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000,
            description="Requests that wait; one more is answered 429, or takes the place of one "
            "whose caller has more waiting. 0: nobody waits. Default: 100, some seconds of "
            "traffic.",
        ),
    ] = 100
    max_queue_wait: Annotated[
        Duration,
        Meta(
            description="How long a request waits, then it is answered 429; 0s to 1h. Default: "
            "60s, what most clients and proxies put up with."
        ),
    ] = "60s"
    no_endpoint_wait: Annotated[
        Duration,
        Meta(
            description="How long a request waits while the backend has no worker at all, as "
            "when it is scaled to zero, then it is answered 503; 0s to 1h. Default: 0s: 503 at "
            "once."
        ),
    ] = "0s"

    def __post_init__(self) -> None:
        """Refuse times outside their bounds."""
        refuse_outside(
            0, 3600, maxQueueWait=self.max_queue_wait, noEndpointWait=self.no_endpoint_wait
        )
