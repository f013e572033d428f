"""One request to a worker and the answer to it, as the connection under it tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglr_dataplane.engine.h1.link import Link


class CallError(Exception):
    """A call has no answer, or not all of it."""

    def __init__(self, message: str, *, sent: bool, refused: bool = False) -> None:
        """Keep why.

        Args:
            message: For logs; it may name an address.
            sent: Whether the worker may have seen the request.
            refused: Whether nobody listens at its address.
        """
        super().__init__(message)
        self.sent = sent
        self.refused = refused


class Receiver(Protocol):
    """Who hears a call's answer; its methods are called by the event loop and must not raise."""

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Take the status and the headers, by their names in lower case."""
        ...

    def on_body(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        ...

    def on_part(self, data: bytes) -> None:
        """Take the next bytes of the body, which are all that one read brought."""
        ...

    def on_end(self) -> None:
        """Know that the body is complete."""
        ...

    def on_failure(self, error: CallError) -> None:
        """Know that nothing more comes."""
        ...

    def on_read(self) -> None:
        """Know that all that one read of the socket brought was told."""
        ...


class Host(Protocol):
    """What a call goes through: the pool."""

    def forget(self, call: Call) -> None:
        """Let *call* wait no longer for a connection."""
        ...


class Call:
    """One request; sent at most twice, and the second time only if nothing had answered the first."""

    __slots__ = (
        "answered",
        "has_second_try",
        "host",
        "is_over",
        "link",
        "receiver",
        "request",
        "sent",
    )

    def __init__(self, host: Host, request: bytes, receiver: Receiver) -> None:
        """Prepare *request*, head and body; nothing is sent yet."""
        self.host = host
        self.request = request
        self.receiver = receiver
        self.link: Link | None = None
        self.sent = False
        """Whether the worker may have seen it."""
        self.answered = False
        """Whether a byte came back."""
        self.has_second_try = True
        self.is_over = False

    def __repr__(self) -> str:
        state = (
            "over"
            if self.is_over
            else "answered"
            if self.answered
            else "sent"
            if self.sent
            else "new"
        )
        return f"<Call {state}>"

    def fail(self, error: CallError) -> None:
        """End the call and tell its receiver; only the first end counts."""
        if not self.is_over:
            self.is_over = True
            self.link = None
            self.receiver.on_failure(error)

    def cancel(self) -> None:
        """End the call without a word to its receiver, and its connection, so that the worker knows."""
        if self.is_over:
            return
        self.is_over = True
        link, self.link = self.link, None
        if link is not None:
            link.abort()
        else:
            self.host.forget(self)
