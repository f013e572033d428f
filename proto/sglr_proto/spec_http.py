"""What a backend's spec says about workers that serve OpenAI's API over HTTP."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

from sglr_proto.duration import Duration, refuse_outside


class Protocol(enum.StrEnum):
    """What a worker speaks."""

    GRPC = "GRPC"
    """``sglang.grpc.scheduler``."""
    HTTP = "HTTP"
    """OpenAI's HTTP API, as SGLang's own server and vLLM have it."""


class HttpWorkers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How workers with `protocol: HTTP` are connected to, over HTTP/1.1."""

    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="Connections to one worker at a time, per router process; requests beyond "
            "wait for one. Each request takes one. Default: 4096: far above what an engine runs "
            "at once, so that the limits of `admission` are what holds, and below the files a "
            "process may open.",
        ),
    ] = 4096
    idle_timeout: Annotated[
        Duration,
        Meta(
            description="How long a connection that nobody uses is kept; 0s to 10m, 0s for not at "
            "all. Stay below the worker's own limit, or requests meet connections that it is "
            "closing. Default: 4s: SGLang and vLLM close after 5s."
        ),
    ] = "4s"
    max_line_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=268_435_456,
            description="Longest line of a worker's stream. Default: 16777216 (16 MiB): log "
            "probabilities and images pass 1 MiB, a runaway does not get far.",
        ),
    ] = 16_777_216

    def __post_init__(self) -> None:
        """Refuse times outside their bounds."""
        refuse_outside(0, 600, idleTimeout=self.idle_timeout)
