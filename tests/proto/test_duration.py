"""Durations as people write them."""

from __future__ import annotations

import pytest

from sglr_proto.backend import ManifestError, decode_backend
from sglr_proto.duration import seconds
from support.manifests import changed


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("0s", 0.0),
        ("250ms", 0.25),
        ("5s", 5.0),
        ("1h30m", 5400.0),
        ("1m1ms", 60.001),
        ("99999h", 359996400.0),
    ],
)
def test_a_duration_is_the_sum_of_its_parts(written: str, expected: float) -> None:
    """Hours, minutes, seconds and milliseconds, alone or in a row."""
    assert seconds(written) == expected


@pytest.mark.parametrize("written", ["", "5", "5 s", "-5s", "1.5s", "5s\n", "s", "5d", "123456s"])
def test_anything_else_is_refused(written: str) -> None:
    """Bare numbers, fractions, signs and unknown units are mistakes."""
    with pytest.raises(ValueError, match="is no duration"):
        seconds(written)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("10", "expected a string matching regex"),
        (10, "expected a string"),
        ("500ms", "window is '500ms'; expected 1 to 3600 seconds"),
        ("60s\n", "is no duration"),
    ],
)
def test_a_wrong_duration_in_a_manifest_is_told_with_its_path(value: object, problem: str) -> None:
    """The field is named, and what stands there."""
    with pytest.raises(ManifestError) as failure:
        decode_backend(changed("spec.outlierDetection.window", value), lenient=False)

    assert problem in str(failure.value)
    assert "spec.outlierDetection" in str(failure.value)
