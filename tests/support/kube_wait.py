"""Waiting for a claim to become true, with a deadline and a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(claim: Callable[[], bool], *, what: str, within: float = 5.0) -> None:
    """Return as soon as *claim* holds; fail with *what* after *within* seconds."""
    try:
        async with asyncio.timeout(within):
            while not claim():  # noqa: ASYNC110  # claims are about state that no event announces
                await asyncio.sleep(0.005)
    except TimeoutError as error:
        raise AssertionError(f"not within {within} s: {what}") from error
