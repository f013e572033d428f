"""What a backend's spec says about choosing the worker of a request."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

from sglr_proto.duration import Duration, refuse_outside, seconds

HeaderName = Annotated[
    str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
]
"""A header's name, in any case."""

LoadFactor = Annotated[int, Meta(ge=100, le=1000)]


class PolicyName(enum.StrEnum):
    """How the worker of a request is chosen."""

    CACHE_AWARE = "CacheAware"
    """Where the prompt costs least: tokens that were not seen there against jobs in flight."""
    LEAST_REQUEST = "LeastRequest"
    """The less busy of two random workers."""
    ROUND_ROBIN = "RoundRobin"
    """Each worker in turn."""
    RANDOM = "Random"
    """Any worker."""
    PREFIX_HASH = "PrefixHash"
    """By the beginning of the prompt, alike in every router."""
    CONSISTENT_HASH = "ConsistentHash"
    """By a header or a field of the request, alike in every router."""
    SESSION_STICKY = "SessionSticky"
    """The worker that had the session's last request."""


class BodyField(enum.StrEnum):
    """A field of the request's body that a policy may go by."""

    USER = "user"
    PROMPT_CACHE_KEY = "prompt_cache_key"


class ZonePreference(enum.StrEnum):
    """Whether it matters in which zone a worker is."""

    NONE = "None"
    """It does not."""
    PREFER = "Prefer"
    """Workers of the router's zone are used as long as one of them is well and has room."""


class CacheSource(enum.StrEnum):
    """How CacheAware knows what is in a worker's cache."""

    AUTO = "Auto"
    """By the worker's own events where it offers them, else by what was sent there."""
    SENT = "Sent"
    """By what this router process sent there."""


class CacheAware(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What CacheAware remembers and how it weighs; per router process."""

    block_tokens: Annotated[
        int,
        Meta(
            ge=4,
            le=1024,
            description="Tokens that are remembered together. Default: 32, small enough that a "
            "short question after a long system prompt fills one.",
        ),
    ] = 32
    max_blocks: Annotated[
        int,
        Meta(
            ge=1000,
            le=10_000_000,
            description="Blocks that are remembered, about 150 bytes each, and as many again of "
            "those that workers tell of, about 400 bytes each. Default: 200000, six million tokens "
            "in 30 MB: what eight workers hold in their caches.",
        ),
    ] = 200_000
    ttl: Annotated[
        Duration,
        Meta(
            description="How long a block that nobody uses is remembered, at most; half of it at "
            "least. 1s to 24h. Default: 20m: by then a busy worker has evicted it."
        ),
    ] = "20m"
    load_tokens: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Tokens that one request more in flight weighs as much as. Default: 384: "
            "computing 768 tokens elsewhere is worth two requests less to wait for. Tuned by "
            "bench/policies.py.",
        ),
    ] = 384
    slack: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="Requests in flight by which workers may differ and still count as "
            "equally busy. Default: 2, so that routers agree on where a new conversation goes.",
        ),
    ] = 2
    source: Annotated[
        CacheSource,
        Meta(
            description="How it is known what is in a worker's cache. Auto: by the worker's own "
            "events where it offers them (SGLang with --kv-events-config), else by what was sent "
            "there. Sent: never by events. Default: Auto."
        ),
    ] = CacheSource.AUTO

    def __post_init__(self) -> None:
        """Refuse times outside their bounds."""
        refuse_outside(1, 86400, ttl=self.ttl)


class PrefixHash(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What PrefixHash goes by."""

    prefix_tokens: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="Tokens at the beginning of the prompt that decide. Default: 256, a "
            "system prompt of two paragraphs.",
        ),
    ] = 256
    load_factor_percent: Annotated[
        LoadFactor,
        Meta(
            description="Requests in flight that a worker may have, as a share of the mean; what "
            "is above goes to the next in the prompt's order. Default: 125."
        ),
    ] = 125


class ConsistentHash(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What ConsistentHash goes by: a header, a field of the body, or both, the header first."""

    header: Annotated[
        HeaderName | None,
        Meta(description="A request header. Default: none is looked at."),
    ] = None
    body_field: Annotated[
        BodyField | None,
        Meta(description="A field of the body. Default: none is looked at."),
    ] = None
    load_factor_percent: Annotated[
        LoadFactor,
        Meta(
            description="Requests in flight that a worker may have, as a share of the mean; what "
            "is above goes to the next in the key's order. Default: 125."
        ),
    ] = 125

    def __post_init__(self) -> None:
        """Refuse nothing to go by."""
        if self.header is None and self.body_field is None:
            raise ValueError("header is missing; expected header, bodyField or both")


class SessionSticky(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What SessionSticky goes by and remembers; per router process."""

    header: Annotated[
        HeaderName,
        Meta(description="The request header with the session's name. Default: x-session-id."),
    ] = "x-session-id"
    idle: Annotated[
        Duration,
        Meta(
            description="How long a session that nobody uses is remembered; 1s to 24h. Default: "
            "20m, a pause in a conversation."
        ),
    ] = "20m"
    max_sessions: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Sessions that are remembered, about 300 bytes each; the one that was used "
            "longest ago goes first. Default: 100000.",
        ),
    ] = 100_000

    def __post_init__(self) -> None:
        """Refuse times outside their bounds."""
        refuse_outside(1, 86400, idle=self.idle)


class Routing(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How requests are spread over the workers."""

    policy: Annotated[
        PolicyName,
        Meta(
            description="How the worker of a request is chosen. Default: CacheAware, which finds "
            "what earlier requests left in the workers' caches and otherwise goes by load."
        ),
    ] = PolicyName.CACHE_AWARE
    load_interval: Annotated[
        Duration,
        Meta(
            description="How often workers are asked for their load (GetLoads), so that what other "
            "routers sent them counts too; for the policies that go by load. n router processes "
            "ask each worker n times as often; one asks 200 times a second at most, of all its "
            "workers. 0s never, else 100ms to 10m. Default: 500ms: by "
            "what is two seconds old every router runs to the same worker, worse than not asking."
        ),
    ] = "500ms"
    warm_up: Annotated[
        Duration,
        Meta(
            description="How long a worker that just became ready, or was started anew, takes to "
            "get its full share; it begins with a tenth. 0s to 1h. Default: 0s, at once: SGLang "
            "is warm before it says that it serves. With large caches 30s to 5m."
        ),
    ] = "0s"
    zone_preference: Annotated[
        ZonePreference,
        Meta(
            description="Whether workers in the router's own zone are preferred while they have "
            "room. Default: None."
        ),
    ] = ZonePreference.NONE
    cache_aware: Annotated[
        CacheAware, Meta(description="For policy CacheAware. Default: see there.")
    ] = CacheAware()
    prefix_hash: Annotated[
        PrefixHash, Meta(description="For policy PrefixHash. Default: see there.")
    ] = PrefixHash()
    consistent_hash: Annotated[
        ConsistentHash | None,
        Meta(description="For policy ConsistentHash, which needs it. Default: none."),
    ] = None
    session_sticky: Annotated[
        SessionSticky, Meta(description="For policy SessionSticky. Default: see there.")
    ] = SessionSticky()

    def __post_init__(self) -> None:
        """Refuse ConsistentHash with nothing to go by, and times outside their bounds."""
        refuse_outside(0, 3600, warmUp=self.warm_up)
        if seconds(self.load_interval):
            refuse_outside(0.1, 600, loadInterval=self.load_interval)
        if self.policy is PolicyName.CONSISTENT_HASH and self.consistent_hash is None:
            raise ValueError("consistentHash is missing; expected it with policy ConsistentHash")
