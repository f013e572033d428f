"""Every metric of the operator, with bounded labels."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_CONVERGENCE = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """The operator's metrics in *registry*; labels are resources, causes and outcomes.

    No label holds a backend's or a router's name: 1,000 backends would be 1,000 series each.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register everything, so that series exist from the start."""
        self.registry = registry
        self.lists = Counter(
            "sglr_operator_lists_total",
            "Full lists read, by resource and cause.",
            ["resource", "cause"],
            registry=registry,
        )
        self.watch_failures = Counter(
            "sglr_operator_watch_failures_total",
            "Lists and watches that failed, by resource and kind of failure.",
            ["resource", "failure"],
            registry=registry,
        )
        self.objects = Gauge(
            "sglr_operator_objects", "Objects held, by resource.", ["resource"], registry=registry
        )
        self.stale_seconds = Gauge(
            "sglr_operator_stale_seconds",
            "Seconds since the API server last said anything about a resource.",
            ["resource"],
            registry=registry,
        )
        self.composed = Counter(
            "sglr_operator_composed_total",
            "Backends composed, by outcome: changed, unchanged, invalid, unresolved, too large or bug.",
            ["outcome"],
            registry=registry,
        )
        self.endpoints = Gauge(
            "sglr_operator_endpoints",
            "Endpoints of all backends, by state.",
            ["state"],
            registry=registry,
        )
        self.mass_losses = Counter(
            "sglr_operator_mass_losses_total",
            "Updates that took away more than half of a backend's ready endpoints.",
            registry=registry,
        )
        self.routers = Gauge(
            "sglr_operator_routers", "Router streams subscribed now.", registry=registry
        )
        self.pushes = Counter(
            "sglr_operator_pushes_total",
            "Messages sent to routers, by kind.",
            ["kind"],
            registry=registry,
        )
        self.answers = Counter(
            "sglr_operator_answers_total",
            "Answers of routers, by outcome: ack, nack or unknown.",
            ["outcome"],
            registry=registry,
        )
        self.refusals = Counter(
            "sglr_operator_refusals_total",
            "Routers that were not let in or were cut off, by reason.",
            ["reason"],
            registry=registry,
        )
        self.convergence = Histogram(
            "sglr_operator_push_convergence_seconds",
            "From the first event about a backend to the last router's acknowledgement.",
            buckets=_CONVERGENCE,
            registry=registry,
        )
        self.status_writes = Counter(
            "sglr_operator_status_writes_total",
            "Statuses written, by outcome: ok, conflict or failed.",
            ["outcome"],
            registry=registry,
        )
        self.crd_outdated = Gauge(
            "sglr_operator_crd_outdated",
            "1 while the served CRD lacks fields that this operator knows, else 0.",
            registry=registry,
        )
        self.foreign_writes = Counter(
            "sglr_operator_foreign_status_writes_total",
            "Statuses that another operator wrote over ours.",
            registry=registry,
        )
        self.leader = Gauge(
            "sglr_operator_leader", "1 while this replica leads, else 0.", registry=registry
        )
        self.leaderships = Counter(
            "sglr_operator_leaderships_total",
            "Times this replica became leader.",
            registry=registry,
        )
