"""Whether requests are traced; what traces them is loaded only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.middleware import Middleware

if TYPE_CHECKING:
    from sglr_dataplane.api.tracing import Tracing
    from sglr_dataplane.config import TracingConfig


class TracingMissingError(Exception):
    """Traces are asked for, and what makes them is not installed."""


def new_tracing(config: TracingConfig | None) -> Tracing | None:
    """Return what makes traces, to be closed; None when nobody asks for them.

    Raises:
        TracingMissingError: It is not installed.
    """
    if config is None:
        return None
    try:
        from sglr_dataplane.api.tracing import Tracing
    except ImportError as error:
        raise TracingMissingError(
            "Traces need OpenTelemetry's SDK: install sglang-k8s-router[tracing]."
        ) from error
    return Tracing(config)


def traced(tracing: Tracing | None) -> list[Middleware]:
    """Return the middleware that puts every request into a span; none without *tracing*."""
    if tracing is None:
        return []
    from sglr_dataplane.api.tracing import Traced

    return [Middleware(Traced, tracing=tracing)]
