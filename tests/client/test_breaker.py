"""The circuit breaker, with a clock of the test's."""

from __future__ import annotations

import pytest

from sglr_client.breaker import Breaker, BreakerPolicy, BreakerState, Outcome, Permit, outcome_of
from sglr_client.errors import (
    ClientError,
    ConnectFailedError,
    DeadlineError,
    InvalidAnswerError,
    LineTooLongError,
    TruncatedStreamError,
    refused_class,
)

POLICY = BreakerPolicy(threshold=3, cooldown=10.0)


def admitted(breaker: Breaker, now: float) -> Permit:
    """Return a permit that must be given."""
    permit = breaker.admit(now)
    assert permit is not None
    return permit


def opened(at: float = 0.0) -> Breaker:
    """Return a breaker that opened at that time."""
    breaker = Breaker(POLICY)
    for _ in range(3):
        admitted(breaker, at).end(Outcome.FAILED, at)
    return breaker


def test_failures_in_a_row_open_it() -> None:
    """Two do not, the third does."""
    breaker = Breaker(POLICY)
    for _ in range(2):
        admitted(breaker, 0).end(Outcome.FAILED, 0)
    before = breaker.state(0)
    admitted(breaker, 0).end(Outcome.FAILED, 0)

    assert (before, breaker.state(0)) == (BreakerState.CLOSED, BreakerState.OPEN)
    assert breaker.admit(9.9) is None


def test_a_success_begins_the_count_anew() -> None:
    """Failures that are not in a row do not open it."""
    breaker = Breaker(POLICY)
    for outcome in [Outcome.FAILED, Outcome.FAILED, Outcome.SUCCEEDED] * 3:
        admitted(breaker, 0).end(outcome, 0)

    assert breaker.state(0) is BreakerState.CLOSED


def test_abandoned_calls_count_for_nothing() -> None:
    """Neither as failures nor between them."""
    breaker = Breaker(POLICY)
    for outcome in [*[Outcome.FAILED, Outcome.ABANDONED] * 2, Outcome.FAILED]:
        admitted(breaker, 0).end(outcome, 0)

    assert breaker.state(0) is BreakerState.OPEN


def test_one_probe_goes_after_the_cooldown() -> None:
    """The second call has to wait for the first one's end."""
    breaker = opened()

    assert breaker.wait(4.0) == 6.0
    probe = admitted(breaker, 10.0)
    assert breaker.state(10.0) is BreakerState.HALF_OPEN
    assert breaker.admit(10.0) is None
    probe.end(Outcome.SUCCEEDED, 11.0)
    assert breaker.state(11.0) is BreakerState.CLOSED


def test_a_failed_probe_opens_it_again() -> None:
    """For a whole cooldown from then on."""
    breaker = opened()
    admitted(breaker, 10.0).end(Outcome.FAILED, 12.0)

    assert breaker.admit(21.9) is None
    assert breaker.admit(22.0) is not None


def test_an_abandoned_probe_gives_its_place_back() -> None:
    """The next call may probe at once."""
    breaker = opened()
    admitted(breaker, 10.0).end(Outcome.ABANDONED, 11.0)

    assert breaker.admit(11.0) is not None


def test_a_probe_that_streams_closes_it_at_its_first_content() -> None:
    """Others need not wait for the stream's end, and its failure then counts as one of three."""
    breaker = opened()
    probe = admitted(breaker, 10.0)
    probe.prove()
    proven = breaker.state(10.0)
    probe.end(Outcome.FAILED, 60.0)

    assert proven is BreakerState.CLOSED
    assert breaker.state(60.0) is BreakerState.CLOSED


def test_late_ends_say_nothing() -> None:
    """A call from before it opened neither closes it nor lengthens the cooldown."""
    breaker = Breaker(POLICY)
    slow = [admitted(breaker, 0) for _ in range(2)]
    for _ in range(3):
        admitted(breaker, 0).end(Outcome.FAILED, 0)
    slow[0].end(Outcome.SUCCEEDED, 5.0)
    slow[1].end(Outcome.FAILED, 6.0)

    assert breaker.state(9.9) is BreakerState.OPEN
    assert breaker.admit(10.0) is not None


def test_a_permit_ends_once() -> None:
    """The second end is not another failure."""
    breaker = Breaker(POLICY)
    permit = admitted(breaker, 0)
    for _ in range(5):
        permit.end(Outcome.FAILED, 0)

    assert breaker.state(0) is BreakerState.CLOSED


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (refused_class(500)(500, b""), Outcome.FAILED),
        (refused_class(502)(502, b""), Outcome.FAILED),
        (ConnectFailedError(""), Outcome.FAILED),
        (TruncatedStreamError(""), Outcome.FAILED),
        (DeadlineError("idle", ""), Outcome.FAILED),
        (DeadlineError("pool", ""), Outcome.ABANDONED),
        (refused_class(503)(503, b""), Outcome.ABANDONED),
        (refused_class(429)(429, b""), Outcome.ABANDONED),
        (refused_class(400)(400, b""), Outcome.ABANDONED),
        (refused_class(404)(404, b""), Outcome.ABANDONED),
        (LineTooLongError(""), Outcome.ABANDONED),
        (InvalidAnswerError(""), Outcome.ABANDONED),
    ],
)
def test_only_the_hosts_doing_is_a_failure(error: ClientError, expected: Outcome) -> None:
    """Bad requests and crowds say nothing about a host."""
    assert outcome_of(error) is expected
