"""Work on large bodies, beside the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_LARGE: Final = 100_000
"""Bytes: what is asked of a body up to here holds the event loop for a few milliseconds at most."""


async def aside(size: int, work: Callable[[], _T]) -> _T:
    """Return what *work* on a body of *size* bytes returns: in a thread if the body is large."""
    return work() if size <= _LARGE else await asyncio.to_thread(work)
