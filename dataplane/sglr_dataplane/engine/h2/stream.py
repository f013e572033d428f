"""One request and its answer, as the machine and its user see it."""

from __future__ import annotations

from collections.abc import Callable

from sglr_dataplane.engine.h2.errors import H2Error
from sglr_dataplane.engine.h2.headers import Fields

Lane = Callable[[bytes, float], bool]
"""What takes a payload that came alone, and the time it came at; false: it does not, and nothing of
it was used."""


class Stream:
    """The state of one stream; the machine writes it, its user reads it.

    Flow control is by pull: the peer may send until ``room`` is used up, and gets new room only
    for what :meth:`Machine.take_payloads` handed out. A user that takes nothing stops the peer.
    """

    __slots__ = (
        "body",
        "declared",
        "ended",
        "failure",
        "head",
        "id",
        "lane",
        "listener",
        "payloads",
        "read",
        "received",
        "room",
        "send_window",
        "trailers",
    )

    def __init__(self, stream_id: int, *, room: int, send_window: int) -> None:
        """Start with the windows of both directions, in bytes."""
        self.id = stream_id
        self.payloads: list[bytes] = []
        """DATA payloads not yet taken, in order, without padding; none is empty."""
        self.room = room
        """Bytes the peer may still send."""
        self.send_window = send_window
        """Bytes the peer still takes; below 0 after it shrank its initial window (6.9.2)."""
        self.body: memoryview | None = None
        """What is left to send; None once END_STREAM was sent."""
        self.head: Fields | None = None
        """The response's first fields; None before they arrived."""
        self.trailers: Fields = ()
        """The last fields, which are the first ones of an answer without a body; empty before the
        end, and after an end without trailers."""
        self.declared: int | None = None
        """The body's length by content-length; None when not declared."""
        self.received = 0
        """Bytes of body that arrived; counted only where a length was declared."""
        self.ended = False
        """Whether the whole answer arrived."""
        self.failure: H2Error | None = None
        """Why the stream ended early; None while it runs and after a whole answer."""
        self.listener: Callable[[], None] | None = None
        """What the shell calls after a read that brought something; the machine never does."""
        self.lane: Lane | None = None
        """What the shell asks before it calls the listener, which hears nothing of what passes."""
        self.read = 0
        """Which read brought something last; the machine's own mark."""

    def __repr__(self) -> str:
        """Show the state."""
        state = self.failure or ("ended" if self.ended else "open")
        return f"<Stream {self.id}: {state}, {len(self.payloads)} payloads, room {self.room}>"
