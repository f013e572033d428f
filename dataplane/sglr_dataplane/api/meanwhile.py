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
            make: Returns the thing, which is not None. Called again, by :meth:`take`, after it has
                failed.
        """
        self._make = make
        self.made: T | None = None
        """The thing; None until it is made."""
        loop.call_soon(self._prepare)

    def __repr__(self) -> str:
        return f"<Meanwhile {self.made!r}>"

    def take(self) -> T:
        """Return the thing, always the same; raises what making it raises."""
        made = self.made
        if made is None:
            made = self.made = self._make()
        return made

    def _prepare(self) -> None:
        with suppress(Exception):  # who takes it hears of it
            self.take()
