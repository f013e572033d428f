"""Distributions as an SVG: which share of the times is below each time, one line per run; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from sglr_dataplane.cli.bench_figures import Record, time_per_token

_WIDTH, _HEIGHT = 440, 280
"""Pixels of one panel."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 16, 34, 44
_HEAD: Final = 56
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Okabe and Ito's, told apart by colour-blind people too."""
_DASHES: Final = ("", "7 4", "2 3", "9 3 2 3", "4 2", "1 2")
_FONT: Final = 'font-family="sans-serif" font-size="12" fill="#222"'
_MOST_POINTS: Final = 400
"""Of one line: more are not seen."""
_TICKS: Final = 5


@dataclass(frozen=True, slots=True)
class Panel:
    """One kind of time, of every run."""

    title: str
    unit: str
    series: Mapping[str, Sequence[float]]


def panels(runs: Mapping[str, Sequence[Record]]) -> list[Panel]:
    """Return the four times of *runs*, in milliseconds."""
    done = {name: [r for r in records if r.error is None] for name, records in runs.items()}

    def milliseconds(title: str, times: Mapping[str, Sequence[float]]) -> Panel:
        return Panel(title, "ms", {n: [1000 * t for t in each] for n, each in times.items()})

    return [
        milliseconds(
            "Time to the first token",
            {n: [r.first for r in each if r.first is not None] for n, each in done.items()},
        ),
        milliseconds(
            "Time per output token",
            {
                n: [t for r in each if (t := time_per_token(r)) is not None]
                for n, each in done.items()
            },
        ),
        milliseconds(
            "Time between two pieces",
            {n: [g for r in each for g in r.gaps] for n, each in done.items()},
        ),
        milliseconds("Time to the end", {n: [r.end for r in each] for n, each in done.items()}),
    ]


def svg(title: str, shown: Sequence[Panel]) -> str:
    """Return *shown* two by two, under *title* and a legend."""
    names = list(dict.fromkeys(name for panel in shown for name in panel.series))
    rows = math.ceil(len(shown) / 2)
    width, height = 2 * _WIDTH, _HEAD + rows * _HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {_FONT}>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="22" font-size="16" font-weight="bold">{escape(title)}</text>',
        *_legend(names),
    ]
    for at, panel in enumerate(shown):
        x, y = (at % 2) * _WIDTH, _HEAD + (at // 2) * _HEIGHT
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel, names), "</g>"]
    return "\n".join([*parts, "</svg>\n"])


def _legend(names: Sequence[str]) -> list[str]:
    parts: list[str] = []
    x = float(_LEFT)
    for at, name in enumerate(names):
        parts.append(_line([(x, 40.0), (x + 26, 40.0)], at))
        parts.append(f'<text x="{x + 32:g}" y="44">{escape(name)}</text>')
        x += 56 + 7.2 * len(name)
    return parts


def _panel(panel: Panel, names: Sequence[str]) -> list[str]:
    times = sorted(time for series in panel.series.values() for time in series)
    low, high, step = _scale(times)
    wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def across(time: float) -> float:
        return _LEFT + wide * (min(max(time, low), high) - low) / (high - low)

    def up(share: float) -> float:
        return _TOP + tall * (1 - share)

    parts = [f'<text x="{_LEFT}" y="20" font-weight="bold">{escape(panel.title)}</text>']
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = up(share)
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{wide}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for tick in range(round((high - low) / step) + 1):
        time = low + tick * step
        parts.append(
            f'<text x="{across(time):.1f}" y="{_TOP + tall + 18}" text-anchor="middle">'
            f"{time:g}</text>"
        )
    parts.append(
        f'<text x="{_LEFT + wide / 2:.1f}" y="{_TOP + tall + 36}" text-anchor="middle">'
        f"{escape(panel.unit)}; up to the 99th percentile of all</text>"
    )
    for at, name in enumerate(names):
        points = [(across(t), up(s)) for t, s in cumulated(panel.series.get(name, ()))]
        if points:
            parts.append(_line(points, at))
    return parts


def cumulated(times: Sequence[float]) -> list[tuple[float, float]]:
    """Return points (time, share of *times* up to it), rising, at most some hundred."""
    ordered = sorted(times)
    stride = max(len(ordered) // _MOST_POINTS, 1)
    kept = {*range(0, len(ordered), stride), len(ordered) - 1} if ordered else set[int]()
    return [(ordered[i], (i + 1) / len(ordered)) for i in sorted(kept)]


def _scale(times: Sequence[float]) -> tuple[float, float, float]:
    """Return where an axis for *times*, which rise, begins and ends, and its step: round numbers."""
    if not times:
        return 0.0, 1.0, 0.2
    last = times[min(math.ceil(0.99 * len(times)), len(times) - 1)]
    extent = max(last - times[0], abs(last) * 0.01, 1e-6)
    step = 10.0 ** math.floor(math.log10(extent / _TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if extent / (step * factor) <= _TICKS)
    low = math.floor(times[0] / step) * step
    return low, max(math.ceil(last / step) * step, low + step), step


def _line(points: Sequence[tuple[float, float]], at: int) -> str:
    colour, dash = _COLOURS[at % len(_COLOURS)], _DASHES[at % len(_DASHES)]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
