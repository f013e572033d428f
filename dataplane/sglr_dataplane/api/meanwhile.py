"""What a request needs only later, made while it waits for its worker: its client waits less."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

T = TypeVar("T")


class Meanwhile(Generic[T]):
    """Makes a thing as soon as the task that asks for it sleeps, or else when it is taken."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make: Callable[[], T]) -> None:
        """Have *loop* call *make* when the running task has done what it can.

        Args:
            loop: The task's.
            make: Returns the thing. Called again, by :meth:`take`, after it has failed.
        """
        self._make = make
        self._made: list[T] = []
        loop.call_soon(self._prepare)

    def __repr__(self) -> str:
        return f"<Meanwhile {'made' if self._made else 'not made'}>"

    def take(self) -> T:
        """Return the thing, always the same; raises what making it raises."""
        if not self._made:
            self._made.append(self._make())
        return self._made[0]

    def _prepare(self) -> None:
        with suppress(Exception):  # who takes it hears of it
            self.take()
