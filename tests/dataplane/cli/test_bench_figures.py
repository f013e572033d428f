"""Figures of a load run, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from sglr_dataplane.cli.bench_figures import (
    Record,
    Spread,
    figures,
    percentile,
    rendered,
    spread,
    table,
    time_per_token,
)


@pytest.mark.parametrize(
    ("ordered", "percent", "expected"),
    [
        ([7.0], 99, 7.0),
        ([1.0, 2.0], 50, 1.5),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 0, 1.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 50, 3.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 95, 4.8),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 100, 5.0),
        ([0.0, 10.0, 20.0], 75, 15.0),
    ],
)
def test_percentiles_are_interpolated_between_ranks(
    ordered: list[float], percent: float, expected: float
) -> None:
    """As numpy's default does."""
    assert percentile(ordered, percent) == pytest.approx(expected)


def test_a_spread_is_in_milliseconds() -> None:
    """Of times in any order."""
    found = spread([0.3, 0.1, 0.2])

    figures = (found.mean, found.median, found.p95, found.p99, found.most)
    assert figures == pytest.approx((200.0, 200.0, 290.0, 298.0, 300.0))
    assert spread([]) == Spread(0.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Record(begin=0, first=0.5, gaps=(0.1, 0.2, 0.3), end=1.2, output_tokens=4), 0.2),
        # Two tokens in each piece after the first: seven tokens, six of them after the first.
        (Record(begin=0, first=0.5, gaps=(0.1, 0.2, 0.3), end=1.2, output_tokens=7), 0.1),
        (Record(begin=0, first=0.5, end=0.5, output_tokens=1), None),
        (Record(begin=0, end=0.5, output_tokens=5), None),
    ],
)
def test_time_per_token_counts_tokens_and_not_pieces(
    record: Record, expected: float | None
) -> None:
    """A server that sends several tokens at once is not slower for it."""
    found = time_per_token(record)

    assert found == (None if expected is None else pytest.approx(expected))


def test_a_run_is_counted_from_its_first_request_to_its_last_byte() -> None:
    """Failed requests count as failed and in no time, rate or token."""
    found = figures(
        [
            Record(
                begin=1.0, first=0.5, gaps=(0.25, 0.25), end=1.0, input_tokens=10, output_tokens=3
            ),
            Record(begin=2.0, first=0.5, gaps=(0.5,), end=3.0, input_tokens=30, output_tokens=2),
            Record(begin=0.0, end=9.0, input_tokens=99, output_tokens=99, error="it broke"),
        ]
    )

    assert (found.completed, found.failed, found.seconds) == (2, 1, 4.0)
    assert (found.input_tokens, found.output_tokens, found.retokenized) == (40, 5, None)
    assert found.requests_per_second == pytest.approx(0.5)
    assert found.input_tokens_per_second == pytest.approx(10.0)
    assert found.output_tokens_per_second == pytest.approx(1.25)
    assert found.total_tokens_per_second == pytest.approx(11.25)
    assert found.concurrency == pytest.approx(1.0)
    assert found.itl.most == pytest.approx(500.0)
    assert found.e2e.mean == pytest.approx(2000.0)


def test_the_tokens_of_the_text_are_counted_again() -> None:
    """By whatever tokenizer is given; failed requests have none."""
    records = [
        Record(begin=0, end=1, text="a b c", output_tokens=3),
        Record(begin=0, end=1, text="d e", output_tokens=2, error="cut"),
    ]
    assert figures(records, lambda text: len(text.split())).retokenized == 3


def test_nothing_measured_is_no_division_by_zero() -> None:
    """All zeroes."""
    found = figures([Record(begin=0, end=1, error="refused")])

    assert (found.completed, found.failed, found.concurrency) == (0, 1, 0.0)


def test_runs_stand_side_by_side() -> None:
    """One row a figure, one column a run, numbers to the right."""
    runs = [
        (name, figures([Record(begin=0, first=0.25, end=0.5, output_tokens=1)]))
        for name in ("direct", "router")
    ]
    rows = table(runs)
    lines = rendered(rows).splitlines()

    assert rows[0] == ("", "direct", "router")
    assert ("TTFT median, ms", "250.00", "250.00") in rows
    assert ("E2E P99, ms", "500.00", "500.00") in rows
    assert {"ITL P95, ms", "ITL maximum, ms"} <= {row[0] for row in rows}
    assert len({len(line) for line in lines}) == 1
