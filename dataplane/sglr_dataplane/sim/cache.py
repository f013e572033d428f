"""The engine's prefix cache, as far as its counters show. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

_SEQUENCES = 128
"""How many recent sequences are remembered: enough for any test, cheap to search."""


class News(Protocol):
    """Hears what comes into a cache and goes out of it."""

    def added(self, ids: tuple[int, ...]) -> None:
        """Hear of a sequence that came in."""
        ...

    def removed(self, ids: tuple[int, ...]) -> None:
        """Hear of one that went out."""
        ...

    def cleared(self) -> None:
        """Hear that all went out."""
        ...


class PrefixCache:
    """Recent token sequences; a prompt's cached tokens are its longest prefix among them."""

    def __init__(self, news: News | None = None) -> None:
        """Be empty; *news* hears what comes and goes."""
        self._sequences: OrderedDict[tuple[int, ...], None] = OrderedDict()
        self._news = news

    def __repr__(self) -> str:
        return f"PrefixCache(sequences={len(self._sequences)})"

    def match(self, ids: tuple[int, ...]) -> int:
        """Return how many leading tokens of *ids* are cached; at least the last is computed."""
        longest = max((_shared(ids, known) for known in self._sequences), default=0)
        return min(longest, len(ids) - 1)

    def add(self, ids: tuple[int, ...]) -> None:
        """Remember *ids*; the sequence unused for the longest time makes room."""
        is_new = ids not in self._sequences
        self._sequences[ids] = None
        self._sequences.move_to_end(ids)
        if is_new and self._news is not None:
            self._news.added(ids)
        if len(self._sequences) > _SEQUENCES:
            gone, _ = self._sequences.popitem(last=False)
            if self._news is not None:
                self._news.removed(gone)

    def clear(self) -> None:
        """Forget everything."""
        self._sequences.clear()
        if self._news is not None:
            self._news.cleared()


def _shared(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Return the length of the longest common prefix, found by halving."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
