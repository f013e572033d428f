"""What a load run measured, as figures: pure statistics over one record per request.

Percentiles are interpolated linearly between ranks, as numpy's and SGLang's ``bench_serving`` are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One streamed request; times are in seconds."""

    begin: float
    """When it was sent, from the run's start."""
    first: float | None = None
    """From then to the first content; None without any."""
    gaps: tuple[float, ...] = ()
    """Between each piece of content and the one before."""
    end: float
    """From sending to the end of the answer."""
    input_tokens: int = 0
    output_tokens: int = 0
    """As the server counts them, which may be more than there were pieces."""
    text: str = ""
    """All content, for counting its tokens again."""
    error: str | None = None
    """Why it failed, in a few words; None when it did not."""


class Spread(msgspec.Struct, frozen=True):
    """How one time is distributed over requests; in milliseconds."""

    mean: float
    median: float
    p95: float
    p99: float
    most: float


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    completed: int
    failed: int
    seconds: float
    """From the first request to the end of the last answer."""
    requests_per_second: float
    input_tokens_per_second: float
    output_tokens_per_second: float
    total_tokens_per_second: float
    concurrency: float
    """Requests in flight on average: the sum of their times over the run's."""
    input_tokens: int
    output_tokens: int
    """As the server counts them."""
    retokenized: int | None
    """Tokens of the text that arrived, counted by the model's tokenizer; None: not counted."""
    ttft: Spread
    """Time to the first token."""
    tpot: Spread
    """Time per output token after the first."""
    itl: Spread
    """Time between two pieces of an answer."""
    e2e: Spread
    """From sending to the end of the answer."""


_NOTHING: Final = Spread(0.0, 0.0, 0.0, 0.0, 0.0)


def figures(records: Sequence[Record], count_tokens: Callable[[str], int] | None = None) -> Figures:
    """Return the figures of a run.

    Args:
        records: One for each request; failed ones count as such and in nothing else.
        count_tokens: Counts the tokens of a text as the model's tokenizer does; None: not counted.
    """
    done = [record for record in records if record.error is None]
    seconds = max((r.begin + r.end for r in done), default=0.0) - min(
        (r.begin for r in done), default=0.0
    )
    inputs, outputs = sum(r.input_tokens for r in done), sum(r.output_tokens for r in done)

    def per_second(amount: float) -> float:
        return amount / seconds if seconds > 0 else 0.0

    return Figures(
        completed=len(done),
        failed=len(records) - len(done),
        seconds=seconds,
        requests_per_second=per_second(len(done)),
        input_tokens_per_second=per_second(inputs),
        output_tokens_per_second=per_second(outputs),
        total_tokens_per_second=per_second(inputs + outputs),
        concurrency=per_second(sum(r.end for r in done)),
        input_tokens=inputs,
        output_tokens=outputs,
        retokenized=sum(count_tokens(r.text) for r in done) if count_tokens is not None else None,
        ttft=spread([r.first for r in done if r.first is not None]),
        tpot=spread([t for r in done if (t := time_per_token(r)) is not None]),
        itl=spread(list(chain.from_iterable(r.gaps for r in done))),
        e2e=spread([r.end for r in done]),
    )


def time_per_token(record: Record) -> float | None:
    """Return the seconds per output token after the first; None when there is but one."""
    if record.first is None or record.output_tokens < 2:  # noqa: PLR2004  # a first and another
        return None
    return sum(record.gaps) / (record.output_tokens - 1)


def spread(seconds: Sequence[float]) -> Spread:
    """Return how *seconds* are distributed, in milliseconds; zeroes when there are none."""
    if not seconds:
        return _NOTHING
    times = sorted(1000.0 * each for each in seconds)
    return Spread(
        mean=math.fsum(times) / len(times),
        median=percentile(times, 50),
        p95=percentile(times, 95),
        p99=percentile(times, 99),
        most=times[-1],
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the *percent* percentile of *ordered*, which is not empty and rises."""
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def table(runs: Sequence[tuple[str, Figures]]) -> list[tuple[str, ...]]:
    """Return *runs* side by side: a heading, then rows of a label and a number for each run."""
    rows: list[tuple[str, ...]] = [("", *(name for name, _ in runs))]
    for label, text in _ROWS:
        rows.append((label, *(text(found) for _, found in runs)))
    return rows


def rendered(rows: Sequence[Sequence[str]]) -> str:
    """Return *rows* as text: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


_Text = Callable[[Figures], str]


def _spread_rows(title: str, of: Callable[[Figures], Spread]) -> list[tuple[str, _Text]]:
    def row(name: str, field: str) -> tuple[str, _Text]:
        return f"{title} {name}, ms", lambda run: f"{getattr(of(run), field):.2f}"

    rows = [row("mean", "mean"), row("median", "median"), row("P99", "p99")]
    if title == "ITL":
        rows.insert(2, row("P95", "p95"))
        rows.append(row("maximum", "most"))
    return rows


_ROWS: Final[Sequence[tuple[str, _Text]]] = (
    ("requests completed", lambda run: str(run.completed)),
    ("requests failed", lambda run: str(run.failed)),
    ("seconds", lambda run: f"{run.seconds:.2f}"),
    ("concurrency", lambda run: f"{run.concurrency:.2f}"),
    ("requests/s", lambda run: f"{run.requests_per_second:.2f}"),
    ("input tokens/s", lambda run: f"{run.input_tokens_per_second:.1f}"),
    ("output tokens/s", lambda run: f"{run.output_tokens_per_second:.1f}"),
    ("total tokens/s", lambda run: f"{run.total_tokens_per_second:.1f}"),
    ("input tokens", lambda run: str(run.input_tokens)),
    ("output tokens", lambda run: str(run.output_tokens)),
    (
        "output tokens, retokenized",
        lambda run: "-" if run.retokenized is None else str(run.retokenized),
    ),
    *_spread_rows("TTFT", lambda run: run.ttft),
    *_spread_rows("TPOT", lambda run: run.tpot),
    *_spread_rows("ITL", lambda run: run.itl),
    *_spread_rows("E2E", lambda run: run.e2e),
)
