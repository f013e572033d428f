"""The walk of one call, without network and with the test's clock."""

from __future__ import annotations

from functools import partial

import pytest

from sglr_client import asked, calls
from sglr_client.breaker import Breaker, BreakerPolicy, BreakerState
from sglr_client.errors import ConnectFailedError, DeadlineError
from sglr_client.health import HealthRecord
from sglr_client.limits import Limits, Timeouts
from sglr_client.metrics import DictSink
from sglr_client.results import ChatChunk
from sglr_client.retry import RetryBudget, RetryPolicy
from sglr_client.rules import Rules
from sglr_client.steps import Emit, Flow, Head, Read, Send, Sleep
from support.client_doors import HI

ANSWER = b'{"choices":[{"message":{"content":"well"}}]}'
SSE = {"content-type": "text/event-stream"}


class Clock:
    """Shows what it is set to."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def rules(clock: Clock, breaker: Breaker | None = None) -> Rules:
    """Return the default rules, without chance."""
    retry = RetryPolicy(jitter=0.0)
    return Rules(
        "host",
        Limits(),
        Timeouts(),
        retry,
        RetryBudget(retry),
        breaker,
        HealthRecord(),
        DictSink(),
        clock=clock,
        wall=lambda: 0.0,
        chance=lambda: 0.0,
    )


def chat(given: Rules) -> Flow:
    """Return a chat's flow."""
    return asked.chat(calls.chat("m", HI), given).flow


def stream(given: Rules) -> Flow:
    """Return a streamed chat's flow."""
    ask = partial(asked.chunks, kind=ChatChunk, raw=False, skip_invalid=False)
    return ask(calls.chat("m", HI, stream=True), given).flow


def test_a_walk_step_by_step() -> None:
    """Send, be refused, sleep as told, send again with the time that is left, read, emit."""
    clock = Clock()
    flow = chat(rules(clock))

    first = next(flow)
    refused = flow.send(Head(503, {"retry-after": "2"}))
    slept = flow.send(b"")
    clock.now += 2.0
    second = flow.send(None)
    read = flow.send(Head(200, {}))
    more = flow.send(ANSWER)
    emitted = flow.send(b"")

    assert isinstance(first, Send)
    assert first.seconds == 60.0
    assert refused == Read(60.0)
    assert slept == Sleep(2.0)
    assert isinstance(second, Send)
    assert second.seconds == 58.0
    assert read == more == Read(58.0)
    assert isinstance(emitted, Emit)
    assert emitted.item.text == "well"
    with pytest.raises(StopIteration):
        next(flow)


def test_time_that_has_passed_ends_it() -> None:
    """Nothing more is sent or read."""
    clock = Clock()
    flow = chat(rules(clock))
    next(flow)
    clock.now += 60.0

    with pytest.raises(DeadlineError):
        flow.send(Head(200, {}))


def test_after_its_first_content_a_streams_time_is_open() -> None:
    """The total is for the first content; later reads have no limit but the idle time."""
    flow = stream(rules(Clock()))
    next(flow)
    before = flow.send(Head(200, SSE))
    emitted = flow.send(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
    after = flow.send(None)

    assert before == Read(60.0)
    assert isinstance(emitted, Emit)
    assert after == Read(None)


def test_a_failure_is_the_breakers_and_an_end_by_the_caller_is_not() -> None:
    """Closing a flow half-way abandons it; only the thrown failure counts."""
    breaker = Breaker(BreakerPolicy(threshold=1))
    clock = Clock()
    left = stream(rules(clock, breaker))
    next(left)
    left.close()
    closed = breaker.state(clock.now)
    failed = chat(rules(clock, breaker))
    next(failed)
    step = failed.throw(ConnectFailedError("refused"))

    assert closed is BreakerState.CLOSED
    assert step == Sleep(0.5)
    assert breaker.state(clock.now) is BreakerState.OPEN


def test_a_probe_that_streams_lets_others_through() -> None:
    """At its first content, long before its end."""
    clock = Clock()
    breaker = Breaker(BreakerPolicy(threshold=1, cooldown=5.0))
    failing = chat(rules(clock, breaker))
    next(failing)
    failing.throw(ConnectFailedError("refused"))
    clock.now += 5.0
    probe = stream(rules(clock, breaker))
    next(probe)
    probe.send(Head(200, SSE))
    during = breaker.state(clock.now)
    probe.send(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')

    assert during is BreakerState.HALF_OPEN
    assert breaker.state(clock.now) is BreakerState.CLOSED
