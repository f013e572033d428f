"""The data plane's metrics; every label has a bounded set of values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.multiprocess import MultiProcessCollector

# To 600 s: a long prompt behind a queue has its first token after minutes.
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class RouterMetrics:
    """One process's metrics, in a registry of their own."""

    def __init__(self, shared: Path | None = None) -> None:
        """Create every metric at zero, or where a process before this one left it.

        Args:
            shared: The folder that the router's processes count in; None: there is one process.
        """
        self.registry = CollectorRegistry()
        self.exposed = self.registry
        """What a scrape shows: the sum of all processes, the dead ones' counts included."""
        self._is_shared = shared is not None
        if shared is not None:
            self.exposed = CollectorRegistry()
            MultiProcessCollector(self.exposed, str(shared))  # type: ignore[no-untyped-call]  # the library's
        self.requests = Counter(
            "sglr_requests_total",
            "Requests answered, by route and by how they ended: a stream that failed after its "
            "status was sent counts as failed.",
            ["route", "outcome"],
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "sglr_requests_in_flight",
            "Requests being answered.",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.first_token = Histogram(
            "sglr_time_to_first_token_seconds",
            "From a streamed request's arrival to the first content sent; a keepalive is none.",
            ["model"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.duration = Histogram(
            "sglr_request_duration_seconds",
            "From a request's arrival to the last byte of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.tokens = Counter(
            "sglr_tokens_total",
            "Tokens by the workers' counters: prompt, cached, completion.",
            ["model", "kind"],
            registry=self.registry,
        )
        self.attempts = Counter(
            "sglr_worker_attempts_total",
            "Generations started on workers, by outcome: succeeded, failed, abandoned.",
            ["backend", "outcome"],
            registry=self.registry,
        )
        self.reloads = Counter(
            "sglr_manifest_reloads_total",
            "Looks at a changed manifest, by result: applied, refused.",
            ["result"],
            registry=self.registry,
        )
        self.intake_updates = Counter(
            "sglr_intake_updates_total",
            "Updates and removals of backends that the operator pushed and that were applied.",
            registry=self.registry,
        )
        self.intake_refusals = Counter(
            "sglr_intake_refusals_total",
            "Messages of an operator that were refused, by code.",
            ["code"],
            registry=self.registry,
        )
        self.intake_failures = Counter(
            "sglr_intake_failures_total",
            "Push streams that ended or could not be opened.",
            registry=self.registry,
        )

    def forget(self, backend_key: str, models: Iterable[str]) -> None:
        """Drop the series of a backend that is gone, and of the *models* nobody serves any more.

        Counts that several processes share stay: one process cannot take back what others counted.
        """
        if self._is_shared:
            return
        for outcome in ("succeeded", "failed", "abandoned"):
            _remove(self.attempts, backend_key, outcome)
        for model in models:
            _remove(self.first_token, model)
            for kind in ("prompt", "cached", "completion"):
                _remove(self.tokens, model, kind)


def _remove(metric: Counter | Histogram, *labels: str) -> None:
    with contextlib.suppress(KeyError):  # a series that never was
        metric.remove(*labels)
