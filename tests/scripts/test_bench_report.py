"""The page of figures: what the results say, in tables, between its marks."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_PLACE = Path(__file__).resolve().parents[2] / "bench" / "report.py"


@pytest.fixture(name="report")
def report_fixture() -> ModuleType:
    """Return the program as a module."""
    spec = importlib.util.spec_from_file_location("bench_report", _PLACE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def a_result(**fields: Any) -> dict[str, Any]:
    """Return a result with what every one has."""
    return {
        "rounds": 5,
        "peer": "smg==1.13.0",
        "python": "3.11.7",
        "machine": "x86_64, 2 CPUs",
        "load_average": 0.3,
        **fields,
    }


def test_what_is_compared_stands_beside_its_bar(report: ModuleType) -> None:
    """Both figures, the ratio, and the bar; memory with the case that fills it."""
    paced = a_result(
        figure="cpu_per_piece",
        bar=0.7,
        ratio=0.6,
        contestants={
            "smg": {"cpu_per_piece": 25.0, "memory_mb": 200.0},
            "sglr": {"cpu_per_piece": 15.0, "memory_mb": 180.0},
        },
    )
    lines = report.markdown({"token-paced": paced}).splitlines()

    assert (
        "| `token-paced` | CPU per token, 200 streams at 26 ms a token | 15 µs | 25 µs | 0.60 "
        "| 0.70 |" in lines
    )
    assert "|  | memory after it | 180 MB | 200 MB | 0.90 | 1.00 |" in lines
    assert lines[-1].startswith("Medians of 5 interleaved rounds, x86_64, 2 CPUs, Python 3.11.7")


def test_this_router_alone_has_no_ratio(report: ModuleType) -> None:
    """A run without the peer is shown as one."""
    alone = a_result(
        figure="cpu_per_request",
        bar=0.75,
        contestants={"sglr": {"cpu_per_request": 300.0, "memory_mb": 180.0}},
    )
    assert "| 300 µs | - | - | 0.75 |" in report.markdown({"request-500": alone})


@pytest.mark.parametrize(
    ("figure", "expected"), [(7.444, "7.44"), (22.5, "22.5"), (99.96, "100"), (1243.6, "1244")]
)
def test_figures_have_three_digits(report: ModuleType, figure: float, expected: str) -> None:
    """Or as many as there are before the point."""
    assert report._number(figure) == expected


def test_the_seed_workload_is_shown_as_it_was_printed(report: ModuleType) -> None:
    """Every row, with a column for each contestant."""
    seed = a_result(table=[["", "direct", "sglr"], ["TTFT median, ms", "130.0", "130.9"]])

    assert "| TTFT median, ms | 130.0 | 130.9 |" in report.markdown({"seed": seed})


def test_limits_say_what_was_found(report: ModuleType) -> None:
    """Start-up, linearity, tools and clients that never read."""
    found = report.markdown(
        {
            "startup": a_result(bar_seconds=2.5, seconds={"sglr": 1.8}, cpu_seconds={"sglr": 1.5}),
            "linearity": a_result(
                bar=2.0, cpu_per_answer={"1000": 2500.0, "2000": 4750.0}, ratio=1.9
            ),
            "tools": a_result(bar=1.3, ratios={"paced": 1.1, "flood": 1.2}),
            "unread": a_result(
                clients=500, streams_paused=500, kib_per_stream=80.4, tokens_while_paused=0
            ),
        }
    )

    assert (
        "| `startup`: to the first answered chat, sglr | 1.80 s, 1.50 s of CPU | 2.5 s |" in found
    )
    assert "| 1.90 (4.75 over 2.50 ms) | 2.00 |" in found
    assert "with tools offered over without, paced | 1.10 | 1.30 |" in found
    assert "| 80 KiB a stream | - |" in found


def test_only_what_is_between_the_marks_changes(report: ModuleType) -> None:
    """Twice is as once."""
    page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    once = report.replaced(page, "new")

    assert once == f"before\n{report.BEGIN}\nnew\n{report.END}\nafter\n"
    assert report.replaced(once, "new") == once


def test_nothing_measured_is_an_empty_page(report: ModuleType) -> None:
    """No headings over nothing."""
    assert report.markdown({}) == ""
