"""What a backend's spec says about failure: whom to avoid, for how long, and what then."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

from sglr_proto.duration import Duration, refuse_outside, seconds

Percent = Annotated[int, Meta(ge=0, le=100)]


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How long what may take; each holds per request."""

    connect: Annotated[
        Duration,
        Meta(
            description="For a connection to a worker; 10ms to 60s. Default: 2s: inside a cluster "
            "it takes a millisecond, two seconds bridge one lost SYN."
        ),
    ] = "2s"
    first_token: Annotated[
        Duration,
        Meta(
            description="From sending a request to a worker to its first token; 10ms to 1h. "
            "Default: 120s, for queueing and a long prefill."
        ),
    ] = "120s"  # noqa: S105  # a time, no password
    stream_idle: Annotated[
        Duration,
        Meta(
            description="Between two tokens of a stream; 10ms to 1h. Default: 60s, far above the "
            "slowest decode step, preemption included."
        ),
    ] = "60s"
    request: Annotated[
        Duration,
        Meta(
            description="For a whole request, its wait for a place and all attempts together; "
            "10ms to 24h. Default: 1800s: 32 000 tokens of reasoning at 20 tokens a second."
        ),
    ] = "1800s"

    def __post_init__(self) -> None:
        """Refuse times outside their bounds."""
        refuse_outside(0.01, 60, connect=self.connect)
        refuse_outside(0.01, 3600, firstToken=self.first_token, streamIdle=self.stream_idle)
        refuse_outside(0.01, 86400, request=self.request)


class Hedge(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """When a request is given to a second worker beside the first; whoever answers first has it."""

    after: Annotated[
        Duration,
        Meta(
            description="How long the first worker may take for its first token; 1ms to 1h. No "
            "default: above the slowest tenth of first tokens, or most requests run twice."
        ),
    ]

    def __post_init__(self) -> None:
        """Refuse times outside their bounds."""
        refuse_outside(0.001, 3600, after=self.after)


class Retry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is tried again, on another worker each time, and only before the first content.

    Tried again: connections that fail, workers that are full or went away. A worker's error has
    one second opinion, and so has a request that a worker went down under. Refusals have none.
    """

    attempts: Annotated[
        int,
        Meta(
            ge=0,
            le=10,
            description="Attempts after the first one. Default: 3: with half of the workers gone "
            "one request in sixteen meets four dead ones.",
        ),
    ] = 3
    budget_percent: Annotated[
        Percent,
        Meta(
            description="Attempts after the first, of all requests within `budgetWindow`, as a "
            "share of those requests; per router process. Default: 20: what retries may add to "
            "the load of a fleet that is in trouble."
        ),
    ] = 20
    budget_minimum: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            description="Attempts after the first within `budgetWindow` that are allowed however "
            "few requests there are; per router, whose processes divide it. Default: 10, so that a quiet backend "
            "retries at all.",
        ),
    ] = 10
    budget_window: Annotated[
        Duration,
        Meta(
            description="How far back the budget looks; 1s to 10m. Default: 10s, the length of "
            "an outage that retries can hide."
        ),
    ] = "10s"
    initial_backoff: Annotated[
        Duration,
        Meta(
            description="The longest wait before the second attempt; doubles with each. The wait "
            "is a random part of it. 0s to 10s. Default: 50ms: it goes to another worker, which "
            "has no reason to wait."
        ),
    ] = "50ms"
    max_backoff: Annotated[
        Duration,
        Meta(
            description="Longest wait between two attempts; at least `initialBackoff`, at most "
            "60s. Default: 2s, which a client waits anyway."
        ),
    ] = "2s"
    max_retry_after: Annotated[
        Duration,
        Meta(
            description="Longest time that a worker is avoided because it asks for it by "
            "Retry-After or retry-after-ms; 0s to 10m. Default: 10s: no worker takes itself out "
            "for longer."
        ),
    ] = "10s"

    hedge: Annotated[
        Hedge | None,
        Meta(
            description="A second worker for requests that are late; it counts as an attempt and "
            "on the budget, takes idle room only, and the loser is cancelled. Default: none, for "
            "it costs up to a fifth more work."
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse times outside their bounds, and a longest wait below the shortest."""
        refuse_outside(1, 600, budgetWindow=self.budget_window)
        refuse_outside(0, 10, initialBackoff=self.initial_backoff)
        refuse_outside(seconds(self.initial_backoff), 60, maxBackoff=self.max_backoff)
        refuse_outside(0, 600, maxRetryAfter=self.max_retry_after)


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How workers are asked for their health, by `grpc.health.v1` on both of their names.

    A worker that was never healthy is starting, however long that takes. One that answers requests
    is alive, even if it is late for a probe.
    """

    interval: Annotated[
        Duration,
        Meta(
            description="Between two probes of a worker, varied by a tenth; 50ms to 10m. Default: "
            "5s: Kubernetes' own probes come every 10s."
        ),
    ] = "5s"
    timeout: Annotated[
        Duration,
        Meta(
            description="For the answer to a probe; 10ms to 60s. Default: 2s: the health service "
            "answers without the GPU."
        ),
    ] = "2s"
    healthy_threshold: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Good probes in a row after which an unhealthy worker is ready. Default: "
            "1: SGLang itself waits for its warm-up.",
        ),
    ] = 1
    unhealthy_threshold: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Lost probes in a row after which a ready worker is unhealthy. Default: "
            "3: one lost packet is not a failure. NOT_SERVING is believed at once.",
        ),
    ] = 3

    generate_interval: Annotated[
        Duration | None,
        Meta(
            description="Between two probes by the scheduler's own HealthCheck, which generates a "
            "token; none while real requests are answered. 1s to 24h. gRPC workers only: HTTP ones "
            "are asked for GET /health, never /health_generate. Default: never: each router would "
            "take a step of every GPU."
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse times outside their bounds."""
        if self.generate_interval is not None:
            refuse_outside(1, 86400, generateInterval=self.generate_interval)
        refuse_outside(0.05, 600, interval=self.interval)
        refuse_outside(0.01, 60, timeout=self.timeout)


class DrainEnd(enum.StrEnum):
    """What happens to requests that still run on a worker when its time to drain is over."""

    ABORT = "Abort"
    """Those with no token yet go to another worker, streams end with an error frame."""
    KEEP = "Keep"
    """They run on, as long as the worker lets them."""


class Drain(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What becomes of the requests on a worker that terminates or is no longer listed."""

    timeout: Annotated[
        Duration,
        Meta(
            description="How long requests may go on there, from when the worker began to leave; "
            "0s to 24h. Default: 600s: ten minutes of tokens; what is longer holds up a rollout."
        ),
    ] = "600s"
    on_timeout: Annotated[
        DrainEnd,
        Meta(
            description="What happens then. Abort ends them: those with no token yet go to another "
            "worker, streams get an error frame. Keep lets them run. Default: Abort."
        ),
    ] = DrainEnd.ABORT

    def __post_init__(self) -> None:
        """Refuse times outside their bounds."""
        refuse_outside(0, 86400, timeout=self.timeout)


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
        refuse_outside(seconds(self.base_ejection), 86400, maxEjection=self.max_ejection)
