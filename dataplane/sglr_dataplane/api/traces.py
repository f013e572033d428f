"""Whether requests are traced; what traces them is loaded only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
