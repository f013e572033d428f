"""The plot: well-formed, readable, and true to its times."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from sglr_dataplane.cli.bench_figures import Record
from sglr_dataplane.cli.bench_plot import Panel, cumulated, panels, svg

SVG = "{http://www.w3.org/2000/svg}"


def drawn(title: str, shown: list[Panel]) -> ET.Element:
    """Return the plot, parsed."""
    return ET.fromstring(svg(title, shown))  # noqa: S314  # our own text


def test_every_run_is_a_line_in_every_panel_and_in_the_legend() -> None:
    """Two runs, two panels: two lines in each, and one each in the legend."""
    shown = [Panel(t, "ms", {"direct": [1, 2, 3], "router": [2, 3, 9]}) for t in ("one", "two")]
    root = drawn("a & b <c>", shown)
    texts = [text.text for text in root.iter(f"{SVG}text")]

    assert len(root.findall(f"{SVG}polyline")) == 2
    assert [len(group.findall(f"{SVG}polyline")) for group in root.findall(f"{SVG}g")] == [2, 2]
    assert {"a & b <c>", "direct", "router", "one", "two"} <= set(texts)


def test_shares_rise_to_one() -> None:
    """Each time with the share of times up to it."""
    assert cumulated([3.0, 1.0, 2.0, 2.0]) == [(1.0, 0.25), (2.0, 0.5), (2.0, 0.75), (3.0, 1.0)]
    assert cumulated([]) == []


def test_many_times_are_thinned_out_and_the_last_is_kept() -> None:
    """A hundred thousand gaps are a few hundred points."""
    points = cumulated([float(i) for i in range(100_000)])

    assert len(points) <= 500
    assert points[-1] == (99_999.0, 1.0)


@pytest.mark.parametrize("times", [[], [5.0], [5.0, 5.0], [0.0, 0.0001], [1e5, 3e6]])
def test_any_times_have_an_axis(times: list[float]) -> None:
    """None at all, all the same, very small or very large ones."""
    root = drawn("t", [Panel("p", "ms", {"run": times})])
    points = [p for line in root.iter(f"{SVG}polyline") for p in line.attrib["points"].split()]

    assert all(0 <= float(x) <= 440 for x, _ in (point.split(",") for point in points))


def test_failed_requests_are_not_drawn() -> None:
    """Their times say nothing about answers."""
    records = [
        Record(begin=0, first=0.1, gaps=(0.05,), end=0.2, output_tokens=2),
        Record(begin=0, first=9.0, gaps=(9.0,), end=30.0, output_tokens=2, error="cut"),
    ]
    assert [list(panel.series["run"]) for panel in panels({"run": records})] == [
        [pytest.approx(100.0)],
        [pytest.approx(50.0)],
        [pytest.approx(50.0)],
        [pytest.approx(200.0)],
    ]
