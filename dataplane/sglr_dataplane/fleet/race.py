"""A race: one job on two workers, when the first is late; the first that answers has it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sglr_dataplane.errors import RouterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sglr_dataplane.fleet.stream import Stream

    Opening = Callable[[], Awaitable[Stream]]
    """Begins an attempt: a stream whose first chunk has come, or a failure."""
    Run = asyncio.Task[Stream | RouterError]


async def first_of(
    first: Opening,
    second: Callable[[], Opening | None],
    after: float,
    *,
    goes_on: Callable[[RouterError], bool],
) -> Stream:
    """Return the stream of whoever answers first; the other attempt is cancelled.

    Args:
        first: The attempt that begins now.
        second: Called after *after* seconds without an answer: another attempt, or None when there
            is none to be had.
        after: Seconds.
        goes_on: Told a failure while the other attempt runs; returns whether that may go on.

    Raises:
        RouterError: Every attempt failed, or one with a failure that ends the race.
    """
    runs: list[Run] = []
    try:
        async with asyncio.TaskGroup() as group:
            runs.append(group.create_task(_told(first)))
            await asyncio.wait(runs, timeout=after)
            if not runs[0].done() and (more := second()) is not None:
                runs.append(group.create_task(_told(more)))
            winner = await _winner(runs, goes_on)
            for run in runs:
                run.cancel()
    except BaseException:
        await _close(runs)
        raise
    await _close([run for run in runs if run is not winner])
    found = winner.result()
    if isinstance(found, RouterError):
        raise found
    return found


async def _told(opening: Opening) -> Stream | RouterError:
    """Return what came of *opening*: a failure must not end the other attempt by itself."""
    try:
        return await opening()
    except RouterError as failure:
        return failure


async def _winner(runs: list[Run], goes_on: Callable[[RouterError], bool]) -> Run:
    """Return the first of *runs* that has a stream, or the one whose failure ends the race."""
    waiting = set(runs)
    while True:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for run in done:
            if not isinstance(run.result(), RouterError):
                return run
        for run in done:
            failure = run.result()
            if not waiting or (isinstance(failure, RouterError) and not goes_on(failure)):
                return run


async def _close(runs: list[Run]) -> None:
    """Close the streams that nobody wants: they came while their attempt was being cancelled."""
    for run in runs:
        if run.done() and not run.cancelled() and run.exception() is None:
            found = run.result()
            if not isinstance(found, RouterError):
                await found.aclose()
