"""Calls in flight, and waiting for their end.

Who closes a client while a stream of its own is open would wait for itself: such calls are not
waited for. Owners are threads for the one client, tasks for the other.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Generator, Hashable
from contextlib import contextmanager, suppress

from sglr_client.errors import ClientClosedError


class _Owners:
    """How many calls each owner has."""

    def __init__(self) -> None:
        self.closed = False
        self._calls: Counter[Hashable] = Counter()

    def __repr__(self) -> str:
        return f"{self._calls.total()}{' closed' if self.closed else ''}"

    def enter(self, owner: Hashable) -> None:
        if self.closed:
            raise ClientClosedError("The client is closed.")
        self._calls[owner] += 1

    def leave(self, owner: Hashable) -> None:
        self._calls[owner] -= 1
        if not self._calls[owner]:
            del self._calls[owner]

    def others(self, owner: Hashable) -> int:
        return self._calls.total() - self._calls[owner]


class InFlight:
    """The calls of a blocking client, from any number of threads."""

    def __init__(self) -> None:
        """Begin with none."""
        self._owners = _Owners()
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        return f"<InFlight {self._owners!r}>"

    @contextmanager
    def call(self) -> Generator[None]:
        """Hold a call of this thread.

        Raises:
            ClientClosedError: `close` was called.
        """
        owner = threading.get_ident()
        with self._changed:
            self._owners.enter(owner)
        try:
            yield
        finally:
            # Perhaps in another thread: the garbage collector ends forgotten streams anywhere.
            with self._changed:
                self._owners.leave(owner)
                self._changed.notify_all()

    def close(self) -> None:
        """Let no more in."""
        with self._changed:
            self._owners.closed = True

    def wait(self, seconds: float) -> None:
        """Block until no other thread has a call, for *seconds* at most."""
        owner = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: not self._owners.others(owner), seconds)


class AsyncInFlight:
    """The calls of an asyncio client, in one event loop."""

    def __init__(self) -> None:
        """Begin with none."""
        self._owners = _Owners()
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<AsyncInFlight {self._owners!r}>"

    @contextmanager
    def call(self) -> Generator[None]:
        """Hold a call of this task.

        Raises:
            ClientClosedError: `close` was called.
        """
        owner = asyncio.current_task()
        self._owners.enter(owner)
        try:
            yield
        finally:
            self._owners.leave(owner)
            self._changed.set()

    def close(self) -> None:
        """Let no more in."""
        self._owners.closed = True

    async def wait(self, seconds: float) -> None:
        """Return when no other task has a call, after *seconds* at most."""
        owner = asyncio.current_task()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._owners.others(owner):
                    self._changed.clear()
                    await self._changed.wait()
