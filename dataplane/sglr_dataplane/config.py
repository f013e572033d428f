"""One frozen configuration tree per router process; built by the command line, read by nobody else."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may use; each holds per request."""

    max_body_bytes: int = 32 * 1024 * 1024
    """Largest request body; OpenAI clients send images of several MiB inline, agents long histories."""
    max_prompt_chars: int = 8_000_000
    """Longest rendered prompt that is tokenized: about two million tokens, more than any context."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a worker may take, in seconds."""

    first_token: float = 600.0
    """From dispatch to the first token: a 100k-token prompt behind a queue takes minutes."""
    idle: float = 120.0
    """Between two tokens; a running batch never pauses this long."""
    total: float = 3600.0
    """The whole generation."""
    disconnect_grace: float = 2.0
    """How long cleaning up after a client that left may take before it is cut off."""


@dataclass(frozen=True, slots=True)
class Probing:
    """How workers are asked for their health."""

    interval: float = 2.0
    """Seconds between two checks of a worker, each jittered by up to a fifth; a check is one small
    RPC without GPU work."""
    timeout: float = 3.0
    """Seconds one check may take."""
    failures: int = 2
    """Failed checks in a row that take a worker out."""
    successes: int = 1
    """Successful checks in a row that bring it back."""


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """Everything a router process is told at its start."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0 lets the kernel choose; the address is logged and written to ``ready_file``."""
    manifest: str = "backends.yaml"
    """Path of the file with SGLangBackend documents."""
    reload_interval: float = 1.0
    """Seconds between two looks at the manifest; a mounted ConfigMap changes within a minute anyway."""
    cache_dir: str | None = None
    """Where verdicts that are slow to find are kept; None keeps nothing."""
    log_level: str = "INFO"
    access_log: bool = True
    limits: Limits = field(default_factory=Limits)
    deadlines: Deadlines = field(default_factory=Deadlines)
    probing: Probing = field(default_factory=Probing)
