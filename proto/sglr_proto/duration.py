"""Lengths of time as people write them: ``250ms``, ``5s``, ``1h30m``."""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Meta

Duration = Annotated[
    str, Meta(min_length=2, max_length=28, pattern=r"^([0-9]{1,5}(h|m|s|ms)){1,4}$")
]
"""A length of time with its units, as the Gateway API writes them; ``0s`` is none at all."""

_PART: Final = re.compile(r"([0-9]{1,5})(h|ms|m|s)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def seconds(duration: str) -> float:
    """Return *duration* in seconds.

    Raises:
        ValueError: It is not a row of whole numbers, each with h, m, s or ms.
    """
    parts = _PART.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise ValueError(f"{duration!r} is no duration; expected one such as 250ms, 5s or 1h30m")
    return float(sum(int(number) * _SECONDS[unit] for number, unit in parts))


def refuse_outside(least: float, most: float, **named: str) -> None:
    """Raise if one of the durations is not within *least* and *most* seconds; names it."""
    for name, duration in named.items():
        if not least <= seconds(duration) <= most:
            raise ValueError(f"{name} is {duration!r}; expected {least:g} to {most:g} seconds")
