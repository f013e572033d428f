"""Counts over the last seconds, in constant memory; pure."""

from __future__ import annotations

from typing import Final

_SLOTS: Final = 10
"""Parts of a window that are forgotten one by one: the window's edge is a tenth of it wide."""


class Window:
    """How often two things happened within the last *seconds*."""

    def __init__(self, seconds: float) -> None:
        """Start with nothing."""
        self._width = seconds / _SLOTS
        self._slots = [[0, 0] for _ in range(_SLOTS)]
        self._newest = 0

    def __repr__(self) -> str:
        first, second = (sum(slot[which] for slot in self._slots) for which in (0, 1))
        return f"<Window {first} and {second}>"

    def add(self, now: float, *, first: int = 0, second: int = 0) -> None:
        """Count at *now*; times never go back."""
        tick = int(now / self._width)
        if tick > self._newest:
            self._turn(tick)
        slot = self._slots[tick % _SLOTS]
        slot[0] += first
        slot[1] += second

    def counts(self, now: float) -> tuple[int, int]:
        """Return both counts as of *now*."""
        self._turn(int(now / self._width))
        return sum(slot[0] for slot in self._slots), sum(slot[1] for slot in self._slots)

    def clear(self) -> None:
        """Forget everything."""
        for slot in self._slots:
            slot[:] = [0, 0]

    def _turn(self, tick: int) -> None:
        """Forget what is too old at *tick*."""
        for old in range(max(self._newest + 1, tick - _SLOTS + 1), tick + 1):
            self._slots[old % _SLOTS][:] = [0, 0]
        self._newest = max(self._newest, tick)
