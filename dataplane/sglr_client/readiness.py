"""Questions about the host itself: is it up, is a model ready, and waiting for that; pure.

They go past the breaker, the retries and the metrics: those are about calls, and an open breaker is
no reason not to look.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, Final

from sglr_client import calls, decoding, flows
from sglr_client.errors import ClientError, ModelNotReadyError
from sglr_client.health import Health
from sglr_client.results import Models
from sglr_client.rules import Account, Rules
from sglr_client.steps import Emit, Flow, Head, Send, Sleep, Step

LOOK_TIMEOUT: Final = 5.0
"""Seconds a look may take: it costs a healthy server milliseconds."""
POLL: Final = 2.0
"""Seconds between two looks while waiting: models load for minutes."""


def health(rules: Rules, seconds: float) -> Flow:
    """Emit what a look at ``/health`` finds within *seconds*."""
    yield Emit((yield from _look(rules, seconds)))


def is_ready(rules: Rules, model: str) -> Flow:
    """Emit whether *model* is ready."""
    yield Emit(not (yield from _why_not(rules, model, LOOK_TIMEOUT)))


def wait(rules: Rules, model: str, seconds: float, interval: float) -> Flow:
    """Emit None when *model* is ready; look every *interval* seconds.

    Raises:
        ModelNotReadyError: It was not after *seconds*; says what was found last.
    """
    end = rules.clock() + seconds
    left = seconds
    while True:
        reason = yield from _why_not(rules, model, min(left, LOOK_TIMEOUT))
        if not reason:
            break
        yield Sleep(max(0.0, min(interval, end - rules.clock())))
        left = end - rules.clock()
        if left <= 0:
            raise ModelNotReadyError(f"Model {model!r} is not ready: {reason}.")
    yield Emit(None)


def _look(rules: Rules, seconds: float) -> Generator[Step, Any, Health]:
    account = Account(calls.health(seconds), rules)
    account.begin()
    try:
        head: Head = yield Send(account.call, account.timeouts, account.left())
    except ClientError as error:
        return Health.unreachable(error)
    yield from flows.drain()
    return Health.answered(head.status)


def _why_not(rules: Rules, model: str, seconds: float) -> Generator[Step, Any, str]:
    """Return why *model* is not ready, as a clause; ``""`` if it is."""
    found = yield from _look(rules, seconds)
    if not found.is_up:
        return found.reason
    account = Account(calls.models(seconds), rules)
    account.begin()
    try:
        models: Models = yield from flows.whole(account, partial(decoding.decoded, kind=Models))
    except ClientError as error:
        return f"/v1/models failed: {str(error).rstrip('.')}"
    ids = [entry.id for entry in models.data]
    # Alive is not ready: the server may be up and still load the model, or have another one.
    return "" if model in ids else f"the server is up and lists {ids}"
