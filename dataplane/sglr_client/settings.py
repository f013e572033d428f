"""What a client is made with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypedDict

from sglr_client.breaker import Breaker, BreakerPolicy
from sglr_client.health import HealthRecord
from sglr_client.limits import Limits, Timeouts
from sglr_client.metrics import MetricsSink, NullSink
from sglr_client.retry import RetryBudget, RetryPolicy
from sglr_client.rules import Rules
from sglr_client.transport import Address, Tls, default_headers

GRACE: Final = 30.0
"""Seconds that closing a client waits for its calls in flight."""


class Settings(TypedDict, total=False):
    """The keywords of `Client` and `AsyncClient`.

    Attributes:
        api_key: Sent as a bearer token; None, the default: none is sent.
        timeout: Seconds for a whole call, 60 by default, or a `Timeouts`.
        limits: Connections and sizes.
        retry: When calls are tried again.
        breaker: When the host is left alone; a `Breaker` may be shared by clients of one host;
            None: never.
        headers: Sent with each request.
        metrics: Where to tell of calls; None, the default: nowhere.
        tls: A context (`ssl.create_default_context` takes authorities; load client certificates
            into it); True, the default: the system's authorities; False: no verification.
    """

    api_key: str | None
    timeout: float | Timeouts
    limits: Limits
    retry: RetryPolicy
    breaker: BreakerPolicy | Breaker | None
    headers: Mapping[str, str] | None
    metrics: MetricsSink | None
    tls: Tls


def rules_of(address: Address, settings: Settings) -> Rules:
    """Return the rules a client of *address* goes by."""
    retry = settings.get("retry", RetryPolicy())
    breaker = settings.get("breaker", BreakerPolicy())
    return Rules(
        host=address.host,
        limits=settings.get("limits", Limits()),
        timeouts=Timeouts.of(settings.get("timeout", Timeouts())),
        retry=retry,
        budget=RetryBudget(retry),
        breaker=Breaker(breaker) if isinstance(breaker, BreakerPolicy) else breaker,
        health=HealthRecord(),
        sink=settings.get("metrics") or NullSink(),
    )


def headers_of(settings: Settings) -> dict[str, str]:
    """Return the headers of each request."""
    return default_headers(settings.get("api_key"), settings.get("headers"))
