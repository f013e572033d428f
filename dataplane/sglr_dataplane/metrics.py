"""The data plane's metrics; every label has a bounded set of values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from sglr_dataplane import tallies
from sglr_dataplane.tallies import Counts, Family, Level, Times

# To 600 s: a long prompt behind a queue has its first token after minutes.
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
# From what a small model takes per token to what an overloaded engine does.
_TOKEN_SECONDS: Final = (
    *(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5, 10, 60, 600),
)
_KINDS: Final = ("prompt", "cached", "completion")


@dataclass(frozen=True, slots=True)
class Stages:
    """How long the requests of one backend spend where; each request is observed once a stage."""

    prompt: Times
    queue: Times
    worker: Times
    answer: Times


@dataclass(frozen=True, slots=True)
class _Series:
    """The series of one model."""

    prompt: Counts
    cached: Counts
    completion: Counts
    first_token: Times
    token_time: Times


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
        self.requests = self._counter(
            "sglr_requests_total",
            "Requests answered, by route and by how they ended: a stream that failed after its "
            "status was sent counts as failed.",
            ["route", "outcome"],
        )
        self.in_flight = self._gauge("sglr_requests_in_flight", "Requests being answered.")
        self.first_token = self._histogram(
            "sglr_time_to_first_token_seconds",
            "From a streamed request's arrival to the first content sent; a keepalive is none.",
            ["model"],
            _SECONDS,
        )
        self.token_time = self._histogram(
            "sglr_time_per_output_token_seconds",
            "Mean time between two tokens of a streamed answer that is complete, first one left "
            "out.",
            ["model"],
            _TOKEN_SECONDS,
        )
        self._stage = self._histogram(
            "sglr_stage_seconds",
            "Where requests spend their time: prompt (template and tokenizer), queue (for a place), "
            "worker (to its first chunk, further attempts included), answer (from there to the end).",
            ["backend", "stage"],
            _SECONDS,
        )
        self._stages: dict[str, Stages] = {}
        self._series: dict[str, _Series] = {}
        self.duration = self._histogram(
            "sglr_request_duration_seconds",
            "From a request's arrival to the last byte of its answer.",
            ["route"],
            _SECONDS,
        )
        self.tokens = self._counter(
            "sglr_tokens_total",
            "Tokens by the workers' counters: prompt, cached, completion.",
            ["model", "kind"],
        )
        self.attempts = self._counter(
            "sglr_worker_attempts_total",
            "Generations started on workers, by outcome: succeeded, failed, abandoned.",
            ["backend", "outcome"],
        )
        self._attempts: dict[tuple[str, str], Counts] = {}
        self._answered: dict[tuple[str, str], tuple[Counts, Times]] = {}
        self.reloads = self._counter(
            "sglr_manifest_reloads_total",
            "Looks at a changed manifest, by result: applied, refused.",
            ["result"],
        )
        self.intake_updates = prometheus_client.Counter(
            "sglr_intake_updates_total",
            "Updates and removals of backends that the operator pushed and that were applied.",
            registry=self.registry,
        )
        self.intake_refusals = self._counter(
            "sglr_intake_refusals_total",
            "Messages of an operator that were refused, by code.",
            ["code"],
        )
        self.intake_failures = prometheus_client.Counter(
            "sglr_intake_failures_total",
            "Push streams that ended or could not be opened.",
            registry=self.registry,
        )

    def _counter(self, name: str, documentation: str, labels: Sequence[str]) -> Family[Counts]:
        kind = prometheus_client.Counter if self._is_shared else tallies.Counter
        return kind(name, documentation, labels, registry=self.registry)

    def _histogram(
        self, name: str, documentation: str, labels: Sequence[str], buckets: Sequence[float]
    ) -> Family[Times]:
        kind = prometheus_client.Histogram if self._is_shared else tallies.Histogram
        return kind(name, documentation, labels, buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, documentation: str) -> Level:
        if not self._is_shared:
            return tallies.Gauge(name, documentation, registry=self.registry)
        return prometheus_client.Gauge(
            name, documentation, registry=self.registry, multiprocess_mode="livesum"
        )

    def stages(self, backend_key: str) -> Stages:
        """Return where times of *backend_key*'s requests are observed."""
        found = self._stages.get(backend_key)
        if found is None:
            names = (each.name for each in fields(Stages))
            found = Stages(*(self._stage.labels(backend_key, name) for name in names))
            self._stages[backend_key] = found
        return found

    def answered(self, route: str, outcome: str, seconds: float) -> None:
        """Count a request of *route* by its *outcome*, and observe how long it took."""
        series = self._answered.get((route, outcome))
        if series is None:
            series = self.requests.labels(route, outcome), self.duration.labels(route)
            self._answered[route, outcome] = series
        requests, duration = series
        requests.inc()
        duration.observe(seconds)

    def attempted(self, backend_key: str, outcome: str) -> None:
        """Count a generation that was started on a worker of *backend_key*, by how it ended."""
        series = self._attempts.get((backend_key, outcome))
        if series is None:
            series = self._attempts[backend_key, outcome] = self.attempts.labels(
                backend_key, outcome
            )
        series.inc()

    def used(self, model: str, prompt: int, cached: int, completion: int) -> None:
        """Count the tokens of an answer of *model*, by the worker's counters."""
        series = self._series.get(model) or self._series_of(model)
        series.prompt.inc(prompt)
        series.completion.inc(completion)
        if cached:
            series.cached.inc(cached)

    def streamed(self, model: str, first: float, rest: float | None, tokens: int) -> None:
        """Observe a stream of *model*.

        Args:
            model: As the client named it.
            first: Seconds from its arrival to the first content.
            rest: Seconds from there to its end; None when it is not complete.
            tokens: Of one choice.
        """
        series = self._series.get(model) or self._series_of(model)
        series.first_token.observe(first)
        if rest is not None and tokens > 1:
            series.token_time.observe(rest / (tokens - 1))

    def _series_of(self, model: str) -> _Series:
        """Return new series of *model*, kept: finding one by its labels costs more than counting."""
        prompt, cached, completion = (self.tokens.labels(model, kind) for kind in _KINDS)
        times = self.first_token.labels(model), self.token_time.labels(model)
        found = self._series[model] = _Series(prompt, cached, completion, *times)
        return found

    def forget(self, backend_key: str, models: Iterable[str]) -> None:
        """Drop the series of a backend that is gone, and of the *models* nobody serves any more.

        Counts that several processes share stay: one process cannot take back what others counted.
        """
        if self._is_shared:
            return
        for outcome in ("succeeded", "failed", "abandoned"):
            self._attempts.pop((backend_key, outcome), None)
            self.attempts.remove(backend_key, outcome)
        self._stages.pop(backend_key, None)
        for stage in fields(Stages):
            self._stage.remove(backend_key, stage.name)
        for model in models:
            self._series.pop(model, None)
            self.first_token.remove(model)
            self.token_time.remove(model)
            for kind in _KINDS:
                self.tokens.remove(model, kind)
