"""OpenTelemetry: a span for each request, one for each attempt on a worker, and what they say.

Loaded only where tracing is on: the SDK and its exporter take 40 ms and 15 MB. Never in a span:
prompts, answers, keys, addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sglr_dataplane.api.access import route_of
from sglr_dataplane.fleet.breaker import Outcome
from sglr_proto import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.config import TracingConfig
    from sglr_dataplane.fleet.worker import Worker
    from sglr_dataplane.job import Job

logger = logging.getLogger(__name__)

_SERVICE: Final = "sglr"
_UNNAMED: Final = "unknown_service"
"""What the SDK calls a service whose name nobody gave, with more behind it."""
_PATH: Final = "/v1/traces"
_FACTS: Final = {
    # The names are those of OpenTelemetry's conventions for generative models, where they have one.
    "model": "gen_ai.request.model",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "sglr.cached_tokens",
    "first_token_seconds": "sglr.first_token_seconds",
    "stream": "sglr.stream",
    "job": "sglr.job",
}
"""What is known of a request at its end, and what it is called in a span."""
_LAST_SECONDS: Final = 3.0
"""For sending the last spans at the end: the process is about to be killed."""
_FAILED: Final = 500
"""The status from which on it is ours or a worker's fault."""
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class Tracing:
    """Makes spans and sends them in batches, from a thread of its own; to be closed."""

    def __init__(self, config: TracingConfig, exporter: SpanExporter | None = None) -> None:
        """Send spans to *exporter*; None: by OTLP over HTTP, to where *config* says."""
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        chosen = exporter or OTLPSpanExporter(endpoint=_endpoint(config.endpoint))
        self._provider.add_span_processor(BatchSpanProcessor(chosen))
        self._tracer = self._provider.get_tracer("sglr_dataplane", __version__)

    def request(self, exchange: Exchange) -> Traced:
        """Begin the span of a request, in its client's trace if it names one; all else is within it."""
        carrier = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers
        }
        route = route_of(exchange.path)
        attributes = {"http.request.method": exchange.method, "http.route": route}
        span = self._tracer.start_span(
            f"{exchange.method} {route}",
            context=_PROPAGATOR.extract(carrier, context=context.Context()),
            kind=SpanKind.SERVER,
            attributes=attributes,
        )
        return Traced(span, exchange)

    def attempt(self, worker: Worker, job: Job) -> Attempt:
        """Begin the span of *job*'s attempt on *worker*, within the request's."""
        attributes = {
            "rpc.system": "grpc" if job.forward is None else "http",
            "gen_ai.request.model": job.model,
            "sglr.backend": worker.backend_key,
            "sglr.worker": worker.endpoint.pod,
            "sglr.job": job.id,
        }
        span = self._tracer.start_span(job.task, kind=SpanKind.CLIENT, attributes=attributes)
        return Attempt(span)

    async def aclose(self) -> None:
        """Send what is left, for a while, and send no more."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop did not wait so long
                loop.call_soon_threadsafe(ended.set)

        # A thread that the process does not wait for: a collector may be gone.
        threading.Thread(target=shut_down, name="traces", daemon=True).start()
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await ended.wait()
        except TimeoutError:
            logger.warning("traces left unsent", extra={"after": _LAST_SECONDS})


class Attempt:
    """The span of one attempt."""

    def __init__(self, span: Span) -> None:
        """Hold *span*, which runs."""
        self._span = span

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """What the worker is told."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(self._span))
        return tuple(carrier.items())

    def answered(self) -> None:
        """Note that the first chunk came."""
        self._span.add_event("first chunk")

    def end(self, outcome: Outcome) -> None:
        """Note how it ended."""
        self._span.set_attribute("sglr.outcome", outcome.value)
        if outcome is Outcome.FAILED:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


class Traced:
    """The span of one request, in which it is answered; its trace's id is on the log line."""

    def __init__(self, span: Span, exchange: Exchange) -> None:
        """Put what follows in this task into *span*, that of *exchange*."""
        self._span = span
        self._exchange = exchange
        exchange.facts["trace"] = f"{span.get_span_context().trace_id:032x}"
        self._token = context.attach(trace.set_span_in_context(span))

    def end(self) -> None:
        """End the span, with how the request was answered."""
        context.detach(self._token)
        span, exchange = self._span, self._exchange
        for name, value in exchange.facts.items():
            if name in _FACTS and value is not None:
                span.set_attribute(_FACTS[name], value)  # type: ignore[arg-type]  # facts named there are plain
        span.set_attribute("sglr.request_id", exchange.request_id)
        if exchange.status:
            span.set_attribute("http.response.status_code", exchange.status)
        if exchange.failure is not None:
            span.set_attribute("error.type", exchange.failure)
        # A stream fails with its status sent: then what it failed with is all there is to go by.
        is_ours = exchange.failure in _OURS and exchange.status
        if exchange.status >= _FAILED or is_ours:
            span.set_status(StatusCode.ERROR)
        span.end()


_OURS: Final = frozenset(
    {"internal_error", "request_timeout", "truncated_stream", "worker_error", "worker_unavailable"}
)


def _resource() -> Resource:
    """Return who we are: what the environment says, else our own name."""
    found = Resource.create()
    mine = {SERVICE_VERSION: __version__}
    if str(found.attributes.get(SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED):
        mine[SERVICE_NAME] = _SERVICE
    return found.merge(Resource(mine))


def _endpoint(given: str | None) -> str | None:
    """Return the URL to post to; None leaves it to the SDK's own variables."""
    if given is None or urlsplit(given).path.strip("/"):
        return given
    return given.rstrip("/") + _PATH
