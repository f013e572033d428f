"""``sglr top``: the first line of the screen."""

from typing import Any

import pytest

from sglr_dataplane.cli.top import screen


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, "router serving, 7 requests"),
        ({"processes": 1}, "router serving, 7 requests"),
        ({"processes": 3}, "router serving, 3 processes, 7 requests"),
    ],
)
def test_processes_are_told_where_there_are_several(facts: dict[str, Any], expected: str) -> None:
    """Older routers say nothing of processes."""
    assert screen({"phase": "serving", "requests": 7, "backends": [], **facts}) == expected
