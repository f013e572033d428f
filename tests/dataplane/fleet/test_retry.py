"""Retries: the budget, the waits, and how settings reach them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.fleet.breaker import BreakerSettings
from sglr_dataplane.fleet.retry import RetryBudget, RetrySettings
from sglr_dataplane.fleet.schedule import Schedule
from sglr_dataplane.fleet.settings import settings_of
from sglr_dataplane.fleet.window import Window
from sglr_proto.backend import HealthCheck, OutlierDetection, Retry, Timeouts
from support.fleets import a_backend


def test_a_quiet_backend_has_the_minimum() -> None:
    """Ten retries within ten seconds, whatever the requests; the eleventh is refused."""
    budget = RetryBudget(RetrySettings())
    budget.request(0)

    assert [budget.take(0) for _ in range(11)] == [True] * 10 + [False]


def test_a_busy_backend_has_its_share() -> None:
    """A fifth of a thousand requests, and again when the window has moved on."""
    budget = RetryBudget(RetrySettings())
    for _ in range(1000):
        budget.request(0)
    first = sum(budget.take(0) for _ in range(500))
    later = sum(budget.take(20) for _ in range(500))

    assert (first, later) == (200, 10)


def test_a_budget_goes_by_new_settings_at_once() -> None:
    """A reload that allows nothing stops the next retry."""
    budget = RetryBudget(RetrySettings())
    budget.adjust(RetrySettings(budget_percent=0, budget_minimum=0))

    assert not budget.take(0)


@pytest.mark.parametrize(
    ("attempt", "chance", "expected"),
    [(1, 0.0, 0.0), (1, 0.5, 0.025), (2, 0.5, 0.05), (3, 1.0, 0.2), (10, 0.5, 1.0)],
)
def test_waits_double_up_to_the_longest(attempt: int, chance: float, expected: float) -> None:
    """50 ms, 100 ms, 200 ms and so on to 2 s, of which chance takes a part."""
    assert RetrySettings().backoff(attempt, chance) == pytest.approx(expected)


def test_the_specs_defaults_are_the_codes_defaults() -> None:
    """What a spec without a word asks for is what each part does by itself."""
    settings = settings_of(a_backend().spec)

    assert settings.breaker == BreakerSettings()
    assert settings.deadlines == Deadlines()
    assert settings.retry == RetrySettings()
    assert settings.schedule == Schedule()


def test_every_setting_of_the_spec_arrives() -> None:
    """Durations in seconds, numbers as they are."""
    settings = settings_of(
        a_backend(
            timeouts=Timeouts(connect="1s", first_token="2s", stream_idle="3s", request="4s"),
            retry=Retry(
                attempts=1,
                budget_percent=2,
                budget_minimum=3,
                budget_window="4s",
                initial_backoff="5ms",
                max_backoff="6s",
                max_retry_after="7s",
            ),
            health_check=HealthCheck(
                interval="8s", timeout="9s", healthy_threshold=10, unhealthy_threshold=11
            ),
            outlier_detection=OutlierDetection(
                consecutive_failures=12,
                failure_percent=13,
                minimum_requests=14,
                window="15s",
                base_ejection="16s",
                max_ejection="17s",
            ),
        ).spec
    )

    assert settings.deadlines == Deadlines(connect=1, first_token=2, idle=3, total=4, probe=9)
    assert settings.retry == RetrySettings(1, 0.005, 6, 7, 2, 3, 4)
    assert settings.schedule == Schedule(interval=8, failures=11, successes=10)
    assert settings.breaker == BreakerSettings(12, 13, 14, 15, 16, 17)


@given(st.lists(st.floats(0, 5), max_size=50))
def test_a_window_counts_what_is_young_and_forgets_what_is_old(steps: list[float]) -> None:
    """Everything within nine tenths of the window counts, nothing older than the window."""
    window, now, times = Window(10), 0.0, list[float]()
    for step in steps:
        now += step
        window.add(now, first=1)
        times.append(now)
        counted, _ = window.counts(now)

        assert sum(now - each < 8.999 for each in times) <= counted
        assert counted <= sum(now - each <= 10 for each in times)
