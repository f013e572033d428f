"""The reference of the manifest's fields."""

from __future__ import annotations

from support.scripts import script


def test_the_committed_reference_is_fresh_and_explains_every_field() -> None:
    """docs/reference says what the structs say, with a meaning for each row."""
    reference = script("gen_reference")
    rows = [line for line in reference.text().splitlines() if line.startswith("| `")]

    assert reference.TARGET.read_text() == reference.text()
    assert len(rows) > 60
    assert all(row.rsplit("|", 2)[1].strip() for row in rows)
