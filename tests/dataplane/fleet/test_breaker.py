"""The breaker: what opens it, what closes it, and that no permit is ever lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.fleet.breaker import (
    Breaker,
    BreakerSettings,
    BreakerState,
    Outcome,
    Permit,
)

SETTINGS = BreakerSettings(
    consecutive=3, percent=50, minimum=10, window=60, ejection=10, longest=40
)
OK, BAD, GONE = Outcome.SUCCEEDED, Outcome.FAILED, Outcome.ABANDONED


def heard(*outcomes: Outcome, settings: BreakerSettings = SETTINGS, now: float = 0.0) -> Breaker:
    """Return a breaker that heard *outcomes*, all at *now*."""
    breaker = Breaker(settings)
    tell(breaker, *outcomes, now=now)
    return breaker


def tell(breaker: Breaker, *outcomes: Outcome, now: float = 0.0) -> None:
    """Let one job after the other end as *outcomes* say."""
    for outcome in outcomes:
        breaker.leave(breaker.enter(now), outcome, now)


def test_failures_in_a_row_open_it() -> None:
    """The third failure of three in a row, and not the second."""
    breaker = heard(BAD, BAD)
    before = breaker.admits(0)
    tell(breaker, BAD)

    assert before
    assert not breaker.admits(0)
    assert breaker.state is BreakerState.OPEN


def test_a_success_starts_the_row_anew() -> None:
    """Two failures, a success and two failures are no three in a row."""
    assert heard(BAD, BAD, OK, BAD, BAD).admits(0)


def test_the_share_of_failures_opens_it() -> None:
    """Five of ten, never two in a row; with nine nothing is said yet."""
    breaker = heard(*(OK, BAD) * 4, OK)
    before = breaker.admits(0)
    tell(breaker, BAD)

    assert before
    assert not breaker.admits(0)


def test_failures_leave_the_window() -> None:
    """What is older than the window does not count."""
    breaker = heard(*(OK, BAD) * 4, OK, now=0)
    tell(breaker, BAD, now=61)

    assert breaker.admits(61)


def test_zero_switches_each_rule_off() -> None:
    """Neither a row nor a share opens a breaker that is told so."""
    off = BreakerSettings(consecutive=0, percent=0)

    assert heard(*(BAD,) * 100, settings=off).admits(0)


@pytest.mark.parametrize("first", [(), (BAD, BAD)])
def test_a12_abandoned_jobs_are_neither_failure_nor_success(first: tuple[Outcome, ...]) -> None:
    """A12: refusals and clients that leave neither open it nor forgive what was before."""
    breaker = heard(*first, *(GONE,) * 50)

    assert breaker.admits(0)
    assert breaker.failures == len(first)


def test_it_lets_one_job_through_when_its_time_is_over() -> None:
    """Half-open admits one, and no second while that one runs."""
    breaker = heard(BAD, BAD, BAD)
    early, late = breaker.admits(9.9), breaker.admits(10)
    permit = breaker.enter(10)

    assert (early, late) == (False, True)
    assert permit.is_probe
    assert breaker.state is BreakerState.HALF_OPEN
    assert not breaker.admits(10)


def test_a_probe_that_succeeds_closes_it() -> None:
    """Everybody is let through, and the row begins at zero."""
    breaker = heard(BAD, BAD, BAD)
    tell(breaker, OK, BAD, BAD, now=10)

    assert breaker.state is BreakerState.CLOSED


def test_a_probe_that_fails_opens_it_for_twice_as_long() -> None:
    """10 s, 20 s, 40 s, and then no longer than the longest."""
    breaker = heard(BAD, BAD, BAD)
    now = 0.0
    for length in (10, 20, 40, 40):
        assert not breaker.admits(now + length - 0.1)
        assert breaker.admits(now + length)
        now += length
        tell(breaker, BAD, now=now)


def test_a_long_health_makes_the_next_trouble_a_new_one() -> None:
    """After more than the longest ejection without trouble it starts with the shortest."""
    breaker = heard(BAD, BAD, BAD)
    tell(breaker, OK, now=10)
    tell(breaker, BAD, BAD, BAD, now=51)

    assert breaker.admits(61)


def test_a_relapse_is_left_alone_for_longer() -> None:
    """Trouble soon after closing is the old one."""
    breaker = heard(BAD, BAD, BAD)
    tell(breaker, OK, BAD, BAD, BAD, now=10)

    assert not breaker.admits(29.9)
    assert breaker.admits(30)


def test_a_probe_that_is_abandoned_gives_its_permit_back() -> None:
    """A client that leaves during the probe lets the next job probe at once."""
    breaker = heard(BAD, BAD, BAD)
    breaker.leave(breaker.enter(10), GONE, 11)

    assert breaker.admits(11)
    assert breaker.enter(11).is_probe


def test_the_first_chunk_of_a_probe_closes_it() -> None:
    """Nobody waits for the end of a generation of half an hour."""
    breaker = heard(BAD, BAD, BAD)
    permit = breaker.enter(10)
    breaker.answered(permit, 12)
    open_to_all = breaker.state
    breaker.leave(permit, BAD, 100)

    assert open_to_all is BreakerState.CLOSED
    assert breaker.failures == 1


def test_jobs_from_before_it_opened_say_nothing_about_now() -> None:
    """Late failures do not keep it open longer, late successes do not close it."""
    breaker = Breaker(SETTINGS)
    old = [breaker.enter(0) for _ in range(5)]
    tell(breaker, BAD, BAD, BAD)
    for permit, outcome in zip(old, (OK, BAD, GONE, OK, BAD), strict=True):
        breaker.leave(permit, outcome, 5)
    state, admits = breaker.state, breaker.admits(10)
    probe = breaker.enter(10)

    assert (state, admits, probe.is_probe) == (BreakerState.OPEN, True, True)


def test_the_last_resort_that_answers_closes_it_and_one_that_fails_changes_nothing() -> None:
    """A job that starts although the breaker is open is evidence only if it answers."""
    breaker = heard(BAD, BAD, BAD)
    tell(breaker, BAD, now=5)
    after_failure = breaker.admits(10)
    tell(breaker, OK, now=6)

    assert after_failure
    assert breaker.state is BreakerState.CLOSED


def test_new_settings_keep_what_was_counted() -> None:
    """A reload neither closes an open breaker nor forgets a row of failures."""
    breaker = heard(BAD, BAD)
    breaker.adjust(BreakerSettings(consecutive=3, window=30))
    tell(breaker, BAD)

    assert breaker.state is BreakerState.OPEN


STEP = st.one_of(
    st.just("enter"),
    st.tuples(st.integers(0, 9), st.sampled_from(list(Outcome))),
    st.tuples(st.integers(0, 9), st.just("answered")),
    st.floats(0, 100),
)


@given(st.lists(STEP, max_size=60))
def test_whatever_happens_it_admits_a_job_sooner_or_later(steps: list[object]) -> None:
    """Once every permit is back, the longest ejection later a job gets through; never two probes."""
    breaker, now, held = Breaker(SETTINGS), 0.0, list[Permit]()
    for step in steps:
        if step == "enter":
            held.append(breaker.enter(now))
        elif isinstance(step, float):
            now += step
        elif isinstance(step, tuple) and held:
            which, what = step
            permit = held[which % len(held)]
            if isinstance(what, Outcome):
                held.remove(permit)
                breaker.leave(permit, what, now)
            else:
                breaker.answered(permit, now)
        current = [each for each in held if each.is_probe and each.period == breaker._period]
        assert len(current) <= 1
    for permit in held:
        breaker.leave(permit, GONE, now)

    assert breaker.admits(now + SETTINGS.longest)
