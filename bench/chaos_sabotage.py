"""Routers that are broken on purpose: a chaos run over any of them must fail.

python bench/chaos_sabotage.py MODE serve ...   # as sglr, with one mistake

``twice`` says some chunks of an answer twice, ``drop`` loses some, ``retry`` asks another worker
although the client has read the beginning, ``fail`` ends some answers that no fault has hit.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

from sglr_dataplane.api.http_protocol import BoundedProtocol
from sglr_dataplane.cli import main
from sglr_dataplane.errors import RouterError, WorkerError
from sglr_dataplane.fleet.dispatch import Dispatcher

EVERY = 400
"""Writes of content between two that are broken."""


class Transport:
    """A transport that repeats or loses some of what is written; everything else is the real one."""

    writes = 0

    def __init__(self, real: Any, *, times: int) -> None:
        """Write what is to be broken so many *times*."""
        self._real = real
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def write(self, data: bytes) -> None:
        """Write *data*; whole chunks of content only are broken, so that HTTP stays whole."""
        if b'"content":"' in data and not data.startswith(b"HTTP/"):
            Transport.writes += 1
            if Transport.writes % EVERY == 0:
                data = data * self._times
        if data:
            self._real.write(data)


def break_writes(times: int) -> None:
    """Have every connection of clients broken."""
    honest = BoundedProtocol.connection_made

    def connection_made(self: BoundedProtocol, transport: Any) -> None:
        honest(self, Transport(transport, times=times))

    BoundedProtocol.connection_made = connection_made  # type: ignore[method-assign]  # that is the point


class Stubborn:
    """A stream that begins anew on another worker when it fails, whatever was sent already."""

    batches = None

    def __init__(self, again: Any, stream: Any) -> None:
        """Hold *stream*; *again* makes another."""
        self._again = again
        self._stream = stream

    def __aiter__(self) -> Stubborn:
        return self

    async def __anext__(self) -> Any:
        """Return the next chunk of whichever stream."""
        try:
            return await anext(self._stream)
        except RouterError:
            await self._stream.aclose()
            self._stream = await self._again()
            return await anext(self._stream)

    async def aclose(self) -> None:
        """Close the stream of the moment."""
        await self._stream.aclose()


class Fragile(Stubborn):
    """A stream that fails after some chunks."""

    left = 9

    async def __anext__(self) -> Any:
        """Return the next chunk, while there may be one."""
        self.left -= 1
        if not self.left:
            raise WorkerError("The worker answered with an error (INTERNAL).")
        return await anext(self._stream)


def break_dispatch(broken: type[Stubborn], every: int) -> None:
    """Have one in *every* dispatched job *broken*."""
    honest, jobs = Dispatcher.dispatch, itertools.count(1)

    async def dispatch(self: Dispatcher, *given: Any) -> Any:
        stream = await honest(self, *given)
        return stream if next(jobs) % every else broken(lambda: honest(self, *given), stream)

    Dispatcher.dispatch = dispatch  # type: ignore[method-assign,assignment]  # that is the point


MODES = {
    "twice": lambda: break_writes(2),
    "drop": lambda: break_writes(0),
    "retry": lambda: break_dispatch(Stubborn, 1),
    "fail": lambda: break_dispatch(Fragile, 50),
}

if __name__ == "__main__":
    MODES[sys.argv.pop(1)]()
    sys.exit(main())
