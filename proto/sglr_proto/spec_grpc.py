"""What a backend's spec says about the connections to workers that speak gRPC."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from sglr_proto.duration import Duration, refuse_outside


class GrpcWorkers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How workers with `protocol: GRPC` are connected to; per worker and router process."""

    keepalive: Annotated[
        Duration,
        Meta(
            description="Silence on a connection with requests on it after which the worker is "
            "pinged; 1s to 1h. A worker that forbids it is pinged half as often. Default: 20s: "
            "SGLang allows a ping every 10s, other gRPC servers one every 300s."
        ),
    ] = "20s"
    keepalive_timeout: Annotated[
        Duration,
        Meta(
            description="For the answer to a ping, and for the kernel's acknowledgement of what "
            "was sent; then the connection is given up and its requests with it. 1s to 10m. "
            "Default: 20s, a switch that starts anew."
        ),
    ] = "20s"
    close_timeout: Annotated[
        Duration,
        Meta(
            description="For closing a connection; 100ms to 1m. Default: 5s: nothing but the "
            "kernel is waited for."
        ),
    ] = "5s"
    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="Connections to one worker. There is more than one only while the worker "
            "limits the streams of a connection; requests beyond wait for one. Default: 8.",
        ),
    ] = 8
    idle_timeout: Annotated[
        Duration,
        Meta(
            description="How long a connection beyond the first is kept with nothing on it; 1s to "
            "1h. Default: 60s: the next peak is as near as the last one."
        ),
    ] = "60s"
    stream_buffer_bytes: Annotated[
        int,
        Meta(
            ge=16 * 1024,
            le=16 * 1024 * 1024,
            description="What a stream may hold that its client has not read; then the worker is "
            "stopped. Default: 32768, about 650 messages of one token: a client that never reads "
            "costs about twice as much.",
        ),
    ] = 32 * 1024
    max_message_bytes: Annotated[
        int,
        Meta(
            ge=1024 * 1024,
            le=2**31 - 1,
            description="Longest message, both ways. Default: 268435456 (256 MiB), what SGLang's "
            "own server takes.",
        ),
    ] = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        """Refuse times outside their bounds."""
        refuse_outside(1, 3600, keepalive=self.keepalive, idleTimeout=self.idle_timeout)
        refuse_outside(1, 600, keepaliveTimeout=self.keepalive_timeout)
        refuse_outside(0.1, 60, closeTimeout=self.close_timeout)
