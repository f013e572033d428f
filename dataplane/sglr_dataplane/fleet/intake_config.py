"""What a router is told of its operator; needs no gRPC, which a router with a manifest never loads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class IntakeConfig:
    """How a router subscribes. Times are in seconds."""

    operator: str
    """``HOST:PORT``; a name with several addresses is tried address by address."""
    router: str
    """The pod's name."""
    pod_uid: str
    process: int = 0
    file: Path | None = None
    """Where the last-known-good snapshot is kept; None keeps none."""
    mounted: Path | None = None
    """A read-only copy, tried when the file is absent or damaged."""
    writes_file: bool = True
    """False in all but one process of a pod."""
    ca: Path | None = None
    """PEM bundle of the operator's certificate; None dials without TLS."""
    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None
    """Bearer token, read again at each connect; needs TLS."""
    first_backoff: float = 0.2
    most_backoff: float = 5.0
    """Doubling with full jitter: a restarted operator meets its routers spread over seconds."""
    write_interval: float = 5.0
    """Between two writes of the file: churn must not wear a disk."""
    health_interval: float = 5.0
    """Between two looks at the workers' health."""
    dial_deadline: float = 2.0
    """From dialling to a connection: a pod that is gone does not refuse, and its address stays in
    the DNS for a moment; the list must not grow old meanwhile."""
    welcome_deadline: float = 10.0
    """From a connection to the first message."""
