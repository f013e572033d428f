"""A client at the end of an outlet that reads or does not."""

from __future__ import annotations

import random
from collections.abc import Callable


class Reader:
    """A client that reads or does not, by chance."""

    def __init__(self, seed: int, *, full: float) -> None:
        """Be full with the chance *full*."""
        self._random = random.Random(seed)
        self.full = full
        """The chance of being full."""
        self.on_room: Callable[[], None] | None = None
        self.on_gone: Callable[[], None] | None = None
        self.is_gone = False
        self.has_body = True
        self.written: list[bytes] = []

    @property
    def is_full(self) -> bool:
        """Whether nothing may be written now."""
        return self._random.random() < self.full

    @is_full.setter
    def is_full(self, full: bool) -> None:
        self.full = float(full)

    def write(self, part: bytes) -> None:
        """Keep *part*, which must not be empty: that would end the answer."""
        assert part
        self.written.append(part)
