"""The outlet of uvicorn's request cycle; to the byte what its own ``send`` writes.

Verified, like all of :mod:`sglr_dataplane.api.http_protocol`, on one version of uvicorn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


_KEPT: Final = 1024
_OPENINGS: Final = tuple([b"%x\r\n" % size for size in range(_KEPT)])
"""What a chunk of so many bytes begins with: a frame of one token has fewer."""


class CycleOutlet:
    """Writes as uvicorn's own ``send`` does, without a task."""

    __slots__ = ("_cycle", "_transport", "is_full", "on_gone", "on_room")

    def __init__(
        self, cycle: RequestResponseCycle, transport: asyncio.Transport, *, is_full: bool
    ) -> None:
        """Write the answer of *cycle* to *transport*, which may be full of the answer before."""
        self._cycle = cycle
        self._transport = transport
        self.is_full = is_full
        self.on_room: Callable[[], None] | None = None
        self.on_gone: Callable[[], None] | None = None

    @property
    def has_body(self) -> bool:
        """Whether all of the request's body has come."""
        return not self._cycle.more_body

    @property
    def is_gone(self) -> bool:
        """Whether the client has left."""
        return self._cycle.disconnected

    def write(self, part: bytes) -> None:
        """Write *part* as a chunk, or as it is where there are none."""
        cycle = self._cycle
        if cycle.disconnected:
            return
        if cycle.chunked_encoding:
            size = len(part)
            opening = _OPENINGS[size] if size < _KEPT else b"%x\r\n" % size
            part = b"".join((opening, part, b"\r\n"))
        self._transport.write(part)


class HeadFirst:
    """A transport that sends an answer's head together with the part that follows it.

    uvicorn writes them one by one, and each write is a system call that wakes the client.
    """

    __slots__ = ("_held", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Write to *transport*."""
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        """Write *data*; a head waits for what comes next, or for the loop's next turn."""
        if self._held:
            data = self._held + data
            self._held = b""
        elif data.startswith(b"HTTP/"):
            self._held = data
            self._loop.call_soon(self._flush)  # nothing may follow for long
            return
        self._transport.write(data)

    def _flush(self) -> None:
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def close(self) -> None:
        """Close, after what was written."""
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether it closes."""
        return self._transport.is_closing()
