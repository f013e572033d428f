"""One frozen configuration tree per router process; built by the command line, read by nobody else."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may use; each holds per request."""

    max_body_bytes: int = 32 * 1024 * 1024
    """Largest request body; OpenAI clients send images of several MiB inline, agents long histories."""
    max_header_bytes: int = 64 * 1024
    """Largest line, headers and trailers of a request; twice what common proxies pass on. Behind a
    proxy that adds much, such as the tokens of a single sign-on, more may be needed; each
    connection may have that much unread, before anybody has asked for its key."""
    max_prompt_chars: int = 8_000_000
    """Longest rendered prompt that is tokenized: about two million tokens, more than any context."""


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """How long a router takes to end, in seconds from the first signal; both hold per process."""

    settle: float = 5.0
    """While requests are still taken: endpoints and load balancers follow ``/readyz`` in seconds."""
    deadline: float = 25.0
    """Until streams are ended. Kubernetes kills after 30 s unless the pod says otherwise; whoever
    raises terminationGracePeriodSeconds raises this with it."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS towards clients; the files are read again when they change."""

    certificate: str
    """Path of a PEM chain."""
    key: str
    """Path of its key."""
    client_ca: str | None = None
    """Path of a PEM bundle: clients must show a certificate signed by it. None asks for none."""


@dataclass(frozen=True, slots=True)
class AdminConfig:
    """The port with ``/debug/workers``."""

    port: int
    """0 lets the kernel choose; 8081 by convention."""
    host: str = "127.0.0.1"
    """Loopback unless told otherwise: addresses of workers are shown here."""
    token_file: str | None = None
    """Path of a file with what callers must show; needed for any host but loopback."""


@dataclass(frozen=True, slots=True)
class GrpcConfig:
    """The port with ``inference.v1``."""

    host: str
    port: int
    """0 lets the kernel choose; 50051 by convention."""
    shared: bool = False
    """Whether the processes of one router listen on it together."""


@dataclass(frozen=True, slots=True)
class TracingConfig:
    """Where OpenTelemetry's traces go; how they are sampled is said by its own variables, OTEL_*."""

    endpoint: str | None = None
    """URL of an OTLP/HTTP collector; None: as OTEL_EXPORTER_OTLP_ENDPOINT says."""


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
    keepalive: float = 15.0
    """Seconds of silence after which a stream gets a comment: HAProxy cuts after 50 s, nginx after
    60 s, and a comment costs 15 bytes."""
    cache_dir: str | None = None
    """Where verdicts that are slow to find are kept; None keeps nothing."""
    log_level: str = "INFO"
    access_log: bool = True
    limits: Limits = field(default_factory=Limits)
    keys: str | None = None
    """Path of the file with callers' keys; None: requests need none."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call this router from a browser; ``*`` is any. None by default: a
    page that people happen to visit must not use a router inside their network."""
    tls: ServerTls | None = None
    """None serves plain text, as behind a proxy that ends TLS."""
    admin: AdminConfig | None = None
    """None serves no admin port."""
    grpc: GrpcConfig | None = None
    """None serves no inference.v1, and loads no gRPC stack for it: 15 MB."""
    tracing: TracingConfig | None = None
    """None makes no traces, and loads nothing for them."""
    drain: DrainSettings = field(default_factory=DrainSettings)
    zone: str = ""
    """Where this router is, for backends that prefer workers of its zone; empty: nobody knows."""
