"""What is told of every request at its end: its metrics and its line in the log."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from sglr_dataplane.api.faults import CLIENT_GONE
from sglr_dataplane.log import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.metrics import RouterMetrics

logger = logging.getLogger("sglr_dataplane.access")

QUIET: Final = frozenset({"/livez", "/readyz", "/health", "/metrics"})
"""Paths that probes and scrapes ask for, every few seconds; they say nothing about users."""
# Metric labels must be bounded: whatever is not a route shares one value.
_ROUTES: Final = (
    frozenset(
        {
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/responses",
            "/v1/embeddings",
            "/v1/tokenize",
            "/v1/detokenize",
            "/tokenize",
            "/detokenize",
            "/v1/rerank",
            "/rerank",
            "/v1/score",
            "/score",
            "/v1/classify",
            "/classify",
            "/v1/models",
            "/generate",
            "/openapi.json",
            "/version",
        }
    )
    | QUIET
)
_BAD_REQUEST: Final = HTTPStatus.BAD_REQUEST.value
_UNAVAILABLE: Final = HTTPStatus.SERVICE_UNAVAILABLE.value
_UNHEARD: Final = 499
"""nginx's status for a client that left; nobody receives it."""


def route_of(path: str) -> str:
    """Return the route of *path*; ``other`` for what is none."""
    if path in _ROUTES:
        return path
    return "/v1/models/{id}" if path.startswith("/v1/models/") else "other"


class Access:
    """Counts and times every request and writes one line about it: never its content."""

    def __init__(self, metrics: RouterMetrics, *, clock: Callable[[], float], log: bool) -> None:
        """Count in *metrics*; *clock* gives seconds from any fixed point."""
        self._metrics = metrics
        self._log = log
        self.clock = clock
        self.in_flight = metrics.in_flight

    def tell(self, exchange: Exchange, *, is_quiet: bool = False) -> None:
        """Count *exchange*, which is over, and log it unless it *is_quiet*."""
        seconds = self.clock() - exchange.arrived
        status, failure = exchange.status, exchange.failure
        if not status and failure == CLIENT_GONE:
            status = _UNHEARD
        route = exchange.path if exchange.path in _ROUTES else route_of(exchange.path)
        is_ok = failure is None and 0 < status < _BAD_REQUEST
        self._metrics.answered(route, "ok" if is_ok else failure or _problem(status), seconds)
        if self._log and not is_quiet:
            tell(
                logger,
                "request",
                {
                    "request_id": exchange.request_id,
                    "method": exchange.method,
                    "path": route,
                    "status": status,
                    "seconds": round(seconds, 4),
                    "failure": failure,
                    **exchange.facts,
                },
            )


def _problem(status: int) -> str:
    """Return how a request ended that failed, and that no error class speaks for."""
    # A probe's honest answer is no failure of a request.
    return "not_ready" if status == _UNAVAILABLE else "internal_error"
