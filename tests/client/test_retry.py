"""When a call is tried again, decided without any network."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_client.errors import (
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    DeadlineError,
    InvalidChunkError,
    LineTooLongError,
    TlsError,
    TruncatedStreamError,
    refused_class,
)
from sglr_client.retry import Attempts, RetryBudget, RetryPolicy, may_retry, retry_after

STEADY = RetryPolicy(jitter=0.0)


def refused(status: int, retry_after: float | None = None) -> ClientError:
    """Return an answer's error."""
    return refused_class(status)(status, b"", retry_after=retry_after)


def attempts(policy: RetryPolicy = STEADY, budget: RetryBudget | None = None) -> Attempts:
    """Return a call's attempts, with no chance in them."""
    return Attempts(policy, budget or RetryBudget(policy), lambda: 0.0)


def test_delays_double_up_to_the_cap() -> None:
    """0.5 s, then twice as long each time, 5 s at most."""
    assert [STEADY.delay(failed, 0.0) for failed in range(1, 6)] == [0.5, 1.0, 2.0, 4.0, 5.0]


@given(st.integers(1, 30), st.floats(0, 1, exclude_max=True))
def test_jitter_only_shortens(failed: int, chance: float) -> None:
    """A delay lies between half and all of its nominal length."""
    nominal = min(5.0, 0.5 * 2 ** (failed - 1))

    assert nominal / 2 <= RetryPolicy().delay(failed, chance) <= nominal


def test_the_third_attempt_is_the_last() -> None:
    """Two waits, then the error stands."""
    tries = attempts()

    assert [tries.after(refused(500), None) for _ in range(3)] == [0.5, 1.0, None]


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_server_errors_and_crowds_are_retried(status: int) -> None:
    """5xx and 429."""
    assert may_retry(refused(status))


@pytest.mark.parametrize("status", [300, 400, 401, 403, 404, 408, 409, 413, 422])
def test_other_statuses_are_not(status: int) -> None:
    """No other 4xx, nor a redirect."""
    assert not may_retry(refused(status))


def test_a_server_can_forbid_it() -> None:
    """x-should-retry: false goes before the status."""
    assert not may_retry(refused_class(500)(500, b"", may_retry=False))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectFailedError("refused"), True),
        (ConnectionLostError("reset"), True),
        (TruncatedStreamError("cut"), True),
        (DeadlineError("connect", ""), True),
        (DeadlineError("headers", ""), True),
        (DeadlineError("idle", ""), False),
        (DeadlineError("pool", ""), False),
        (DeadlineError("total", ""), False),
        (TlsError("bad certificate"), False),
        (LineTooLongError("long"), False),
        (InvalidChunkError(1, 0, b"", ""), False),
    ],
)
def test_only_the_networks_faults_are_retried(error: ClientError, expected: bool) -> None:
    """Repeating does not help against certificates, caps or time that has passed."""
    assert may_retry(error) is expected


def test_retry_after_is_the_least_wait() -> None:
    """The server's wish goes before a shorter delay of ours, even above the cap."""
    assert attempts().after(refused(429, retry_after=7.0), None) == 7.0
    assert attempts().after(refused(429, retry_after=0.1), None) == 0.5


def test_a_wait_past_the_deadline_is_not_begun() -> None:
    """With 0.5 s left a wait of 0.5 s makes no sense."""
    assert attempts().after(refused(503), 0.5) is None
    assert attempts().after(refused(503), 0.6) == 0.5
    assert attempts().after(refused(503, retry_after=30.0), 20.0) is None


def test_an_empty_budget_ends_retries() -> None:
    """With a reserve of 2 the third retry has to be earned by five requests."""
    policy = RetryPolicy(jitter=0.0, reserve=2.0)
    budget = RetryBudget(policy)
    first = [attempts(policy, budget).after(refused(500), None) for _ in range(3)]
    for _ in range(5):
        budget.deposit()

    assert first == [0.5, 0.5, None]
    assert attempts(policy, budget).after(refused(500), None) == 0.5


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0),
    ],
)
def test_retry_after_is_read(headers: dict[str, str], expected: float | None) -> None:
    """Seconds, milliseconds and dates; a minute past the epoch."""
    assert retry_after(headers, wall=60.0) == expected
