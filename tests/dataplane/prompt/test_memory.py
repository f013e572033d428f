"""What was freed is not kept."""

from __future__ import annotations

import resource
from pathlib import Path

from sglr_dataplane.prompt.memory import give_back

BLOCKS = 60_000
SIZE = 1000


def resident() -> int:
    """Return this process's resident memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_holes_below_what_is_in_use_are_given_back() -> None:
    """Sixty megabytes of small blocks, freed under one that stays."""
    blocks = [bytes(SIZE) for _ in range(BLOCKS)]
    last = blocks[-1]
    blocks.clear()
    before = resident()

    give_back()

    assert len(last) == SIZE
    assert before - resident() > BLOCKS * SIZE // 2
