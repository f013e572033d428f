"""The way out past ASGI: what is written here is on the connection when the call returns.

A ``send`` of ASGI takes a task that is awake, and waking one for each token costs more than all else
that is done for it. The router's own HTTP protocol offers an outlet in the scope of a request; other
servers, and calls without a socket, have none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Send

EXTENSION: Final = "sglr.outlet"
"""Its name among ASGI's extensions; its value is an :class:`Outlet`."""


Headers = Iterable[tuple[bytes, bytes]]
Standing = tuple[tuple[bytes, bytes], ...]


class Outlet(Protocol):
    """Takes one request's body and writes its answer; what is written for who is gone is dropped."""

    on_room: Callable[[], None] | None
    """Called when the client has read and the outlet is no longer full."""
    on_gone: Callable[[], None] | None
    """Called when the client leaves before its answer is complete."""

    @property
    def send(self) -> Send:
        """The ``send`` of ASGI that this is the way past."""
        ...

    @property
    def has_body(self) -> bool:
        """Whether all of the request's body has come, so that ``receive`` need not wait for it."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether the client does not read: write nothing more before :attr:`on_room`."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether the client has left."""
        ...

    def take_body(self) -> bytes | None:
        """Return the body, if all of it has come and nothing of it was received; None otherwise."""
        ...

    def begin(
        self, status: int, standing: Standing, headers: Headers, part: bytes, *, is_last: bool
    ) -> None:
        """Write the answer's head and *part* of its body; to be called once, and first.

        Args:
            status: HTTP's.
            standing: Headers of many answers; none of length and connection.
            headers: Others.
            part: The body's beginning, or all of it.
            is_last: Whether nothing follows.

        Raises:
            RuntimeError: HTTP cannot say one of the headers.
        """
        ...

    def write(self, part: bytes) -> None:
        """Write *part*, not empty, of an answer that has begun and was not ended."""
        ...

    def end(self, part: bytes) -> None:
        """Write the last *part* of an answer that has begun."""
        ...
