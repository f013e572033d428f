"""Calls in flight, and waiting for their end."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from types import TracebackType

from sglr_client.errors import ClientClosedError


class InFlight:
    """The calls of a client; entered by each, for any number of threads.

    Raises on entering:
        ClientClosedError: `close` was called.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._count = 0
        self._closed = False
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        return f"<InFlight {self._count}{' closed' if self._closed else ''}>"

    def __enter__(self) -> None:
        with self._changed:
            if self._closed:
                raise ClientClosedError("The client is closed.")
            self._count += 1

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Let no more in."""
        with self._changed:
            self._closed = True

    def wait(self, seconds: float) -> None:
        """Block until there is none, for *seconds* at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._count == 0, seconds)


class AsyncInFlight:
    """The calls of a client in one event loop; entered by each, see `InFlight`."""

    def __init__(self) -> None:
        """Begin with none."""
        self._count = 0
        self._closed = False
        self._idle = asyncio.Event()

    def __repr__(self) -> str:
        return f"<AsyncInFlight {self._count}{' closed' if self._closed else ''}>"

    def __enter__(self) -> None:
        if self._closed:
            raise ClientClosedError("The client is closed.")
        self._count += 1
        self._idle.clear()

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._count -= 1
        if not self._count:
            self._idle.set()

    def close(self) -> None:
        """Let no more in."""
        self._closed = True

    async def wait(self, seconds: float) -> None:
        """Return when there is none, after *seconds* at most."""
        if self._count:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), seconds)
