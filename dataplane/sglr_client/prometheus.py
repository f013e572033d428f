"""A sink for the metrics of a client in Prometheus; needs the ``prometheus-client`` package."""

from __future__ import annotations

from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from sglr_client.metrics import CallReport

# To 600 s: a long prompt behind a queue has its first token after minutes. 0.5 is the bound of the
# objective for the first token, 0.05 that for the ones after it: both are edges of buckets.
_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TOKEN_SECONDS: Final = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1)


class PrometheusSink:
    """Metrics named ``sglr_client_…``; one sink may serve clients of several hosts."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        """Create every metric in *registry*."""
        labels = ["operation", "model"]
        self._requests = Counter(
            "sglr_client_requests_total", "Calls that began.", labels, registry=registry
        )
        self._ended = Counter(
            "sglr_client_requests_ended_total",
            "Calls that ended, by outcome: ok, abandoned, or the kind of the error.",
            ["operation", "outcome"],
            registry=registry,
        )
        self._retries = Counter(
            "sglr_client_retries_total",
            "Attempts after the first, by the kind of the error before.",
            ["operation", "kind"],
            registry=registry,
        )
        self._tokens = Counter(
            "sglr_client_tokens_total",
            "Tokens by the server's counters: prompt, completion.",
            ["model", "kind"],
            registry=registry,
        )
        self._latency = Histogram(
            "sglr_client_request_duration_seconds",
            "From a call to its end, waits between attempts included.",
            labels,
            buckets=_SECONDS,
            registry=registry,
        )
        self._first = Histogram(
            "sglr_client_time_to_first_token_seconds",
            "From a call to a stream's first content.",
            labels,
            buckets=_SECONDS,
            registry=registry,
        )
        self._per_token = Histogram(
            "sglr_client_time_per_output_token_seconds",
            "Of a stream, per token after the first.",
            labels,
            buckets=_TOKEN_SECONDS,
            registry=registry,
        )
        self._pool = Gauge(
            "sglr_client_pool_connections",
            "Connections in use, and how many may be.",
            ["host", "state"],
            registry=registry,
        )

    def begin(self, operation: str, model: str, /) -> None:
        """Count a request."""
        self._requests.labels(operation, model).inc()

    def retry(self, operation: str, kind: str, /) -> None:
        """Count a retry."""
        self._retries.labels(operation, kind).inc()

    def end(self, report: CallReport, /) -> None:
        """Count how it ended, its tokens and its times."""
        operation, model = report.operation, report.model
        self._ended.labels(operation, report.outcome).inc()
        self._latency.labels(operation, model).observe(report.seconds)
        if report.prompt_tokens:
            self._tokens.labels(model, "prompt").inc(report.prompt_tokens)
        if report.completion_tokens:
            self._tokens.labels(model, "completion").inc(report.completion_tokens)
        if report.first_content is not None:
            self._first.labels(operation, model).observe(report.first_content)
        if report.per_token is not None:
            self._per_token.labels(operation, model).observe(report.per_token)

    def pool(self, host: str, in_use: int, limit: int, /) -> None:
        """Show the newest."""
        self._pool.labels(host, "in_use").set(in_use)
        self._pool.labels(host, "limit").set(limit)
