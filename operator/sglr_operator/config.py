"""The operator's settings: one frozen tree, built in ``cli`` and handed down.

Times are in seconds. Each default carries its reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sglr_operator.errors import ConfigError

PushAuth = Literal["none", "mtls", "token-review", "token-keys"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens; port 0 lets the kernel choose."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class WatchConfig:
    """How one resource is followed."""

    page: int = 500
    """Objects per page of a list: an unpaged list of 5,000 slices peaks in memory on both ends."""
    server_timeout: float = 270.0
    """The API server ends a watch after this; each end brings a full list, so a list is never
    older than this. Jittered by 10 %, so that streams do not end together."""
    silence: float = 75.0
    """A watch that delivers nothing this long is dead: bookmarks come every 60 s."""
    connect_timeout: float = 5.0
    """A healthy API server accepts at once, and another replica may be behind the same name."""
    list_timeout: float = 30.0
    """For one page; a page of 500 objects takes well under a second."""
    backoff_first: float = 0.5
    backoff_most: float = 15.0
    """Doubling with full jitter between these, unless the server names its own Retry-After."""
    steady_after: float = 10.0
    """A list and watch that lasted this long were healthy, and the backoff starts from the first
    step again; shorter ones count as failures, however they ended."""
    dead_after: float = 180.0
    """Liveness fails when a reflector has not even tried anything for this long: two silences and
    a page fit in."""


@dataclass(frozen=True, slots=True)
class DebounceConfig:
    """When a dirty backend is composed again."""

    quiet: float = 0.1
    """A rollout touches a slice many times within milliseconds; one push says it all."""
    most: float = 1.0
    """Constant churn must not postpone a push for ever."""


@dataclass(frozen=True, slots=True)
class PushConfig:
    """The push server that routers subscribe to."""

    address: Address = Address("0.0.0.0", 9443)  # noqa: S104  # a pod is reached from other pods
    certificate: str | None = None
    """Path of the server's PEM chain; None serves without TLS."""
    key: str | None = None
    client_ca: str | None = None
    """Path of the PEM bundle that router certificates must chain to; required by ``mtls``."""
    auth: PushAuth = "none"
    audience: str = "sglr-operator"
    """What a router's projected token must be made for."""
    router_accounts: tuple[str, ...] = ()
    """``namespace:name`` of the service accounts that may subscribe; () allows any that the API
    server vouches for with the right audience."""
    heartbeat: float = 15.0
    """Twice within the 30 s after which most network boxes forget a silent connection."""
    ack_deadline: float = 30.0
    """A router that has not answered an update for this long is cut off and starts afresh."""
    syncing_grace: float = 10.0
    """How long missing acknowledgements count as "Syncing" rather than "RoutersLagging"."""
    accepts_per_second: float = 50.0
    """After a restart all routers come at once; their first full lists are spread over time."""
    max_update: int = 8 * 1024 * 1024
    """In bytes, for one backend: about 60,000 endpoints. Half a message, so that a batch with a
    large backend in it stays below ``max_message``; what is larger is refused by its status."""
    max_message: int = 16 * 1024 * 1024
    """In bytes, both ways: gRPC's 4 MiB would refuse a backend of about 30,000 endpoints."""

    @property
    def is_private(self) -> bool:
        """Whether nobody but routers that prove themselves can hear what is pushed."""
        return self.certificate is not None and self.auth != "none"


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """Leadership by a ``coordination.k8s.io/v1`` Lease."""

    namespace: str = "default"
    name: str = "sglr-operator"
    identity: str = "sglr-operator"
    """Unique per replica: the pod's name."""
    duration: float = 10.0
    """A dead leader is replaced after this at the latest, plus one retry."""
    renew_deadline: float = 6.0
    """A leader that could not renew for this long steps down by itself, before anyone else can
    be elected."""
    retry: float = 2.0
    """Between attempts to renew or to acquire."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class StatusConfig:
    """How often status and Events are written."""

    interval: float = 1.0
    """At most one status write per backend within this time."""
    yield_interval: float = 60.0
    """How long a status is left to another operator that writes it as well, before another try:
    one that has gone is noticed after this, and one that is there is disturbed once in it."""
    event_interval: float = 60.0
    """The same Event of the same backend is posted at most once within this time."""


@dataclass(frozen=True, slots=True)
class CopyConfig:
    """The ConfigMap that routers mount, in the Lease's namespace."""

    name: str = "sglr-last-known-good"
    interval: float = 10.0
    """Between two writes: kubelets take a minute to show them, and each is a write to etcd."""


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """Everything ``sglr-operator run`` is told."""

    namespaces: tuple[str, ...] = ()
    """The namespaces to watch; () watches the whole cluster."""
    kubeconfig: str | None = None
    """None: the pod's service account, or else the user's own kubeconfig."""
    watch: WatchConfig = field(default_factory=WatchConfig)
    debounce: DebounceConfig = field(default_factory=DebounceConfig)
    push: PushConfig = field(default_factory=PushConfig)
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    status: StatusConfig = field(default_factory=StatusConfig)
    copy: CopyConfig | None = None
    """Where the last good list is kept for routers; None keeps none."""
    references: bool = False
    """Whether Secrets and ConfigMaps that are labelled for it are read; it takes permissions that
    an operator without such backends has no use for."""
    http: Address = Address("0.0.0.0", 8081)  # noqa: S104  # the kubelet probes from the node
    debug: Address | None = None
    """Where /debug/snapshot is served; None serves it nowhere. Loopback only."""
    shutdown: float = 25.0
    """Stays below the 30 s after which Kubernetes kills a pod."""


def validated(config: OperatorConfig) -> OperatorConfig:
    """Return *config*.

    Raises:
        ConfigError: Its settings contradict each other.
    """
    push = config.push
    if (push.certificate is None) != (push.key is None):
        raise ConfigError("--push-certificate and --push-key come together, but only one is set.")
    if push.auth == "mtls" and (push.certificate is None or push.client_ca is None):
        raise ConfigError(
            "--push-auth mtls needs --push-certificate, --push-key and --push-client-ca."
        )
    if push.auth in {"token-review", "token-keys"} and push.certificate is None:
        raise ConfigError(
            f"--push-auth {push.auth} needs --push-certificate and --push-key:"
            " a token must not travel in the clear."
        )
    if push.auth == "token-review" and config.namespaces:
        raise ConfigError(
            "--push-auth token-review asks the whole cluster's API, but --namespace limits this"
            " operator to namespaces; use --push-auth token-keys or mtls."
        )
    lease = config.lease
    if not lease.retry < lease.renew_deadline < lease.duration:
        raise ConfigError(
            f"A lease needs retry < renew deadline < duration, but has {lease.retry},"
            f" {lease.renew_deadline} and {lease.duration} seconds."
        )
    if config.debug is not None and config.debug.host not in {"127.0.0.1", "::1", "localhost"}:
        raise ConfigError(
            f"--debug-address {str(config.debug)!r} is not on loopback; the debug pages show"
            " what routers are told."
        )
    return config
