"""How much and how long: connections, waits, and the size of what is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sglr_client.sse import DEFAULT_CAP

DEFAULT_TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may use; per host, as a client speaks to one.

    Attributes:
        connections: Open at once; a call above that waits for one within its own time. 100: more
            than one process of most users needs, far below a server's file limit.
        idle_expiry: Seconds an unused connection is kept. 90 s: across the pauses of a person who
            chats; a server that closes sooner costs at most one retry.
        line: Bytes of a stream's line, and of an event's data; see ``sse.DEFAULT_CAP``.
        answer: Bytes of an answer that is not streamed. 256 MiB: ten thousand embeddings.
        http2: Offer HTTP/2 over TLS; needs the ``h2`` package.
    """

    connections: int = 100
    idle_expiry: float = 90.0
    line: int = DEFAULT_CAP
    answer: int = 256 * 1024 * 1024
    http2: bool = False


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a call may take, in seconds; None: as long as the others allow.

    Attributes:
        total: All attempts of a call and the waits between them, up to the whole answer; in a
            stream up to its first content.
        handshake: To connect, TLS included. 10 s: a packet lost twice, not a dead host.
        headers: From a request sent to the answer's head, in a stream. 30 s: servers send it
            before or soon after the first token. Other answers' heads come when all is generated:
            for them *total* alone counts.
        idle: Between two pieces of an answer, keep-alive comments included.
        stream_total: A whole stream. None: generations may be long, *idle* finds dead ones.
    """

    total: float | None = DEFAULT_TIMEOUT
    handshake: float = 10.0
    headers: float | None = 30.0
    idle: float | None = DEFAULT_TIMEOUT
    stream_total: float | None = None

    @classmethod
    def of(cls, timeout: float | Timeouts) -> Timeouts:
        """Return *timeout*; a number of seconds stands for *total*, *headers* and *idle*."""
        if isinstance(timeout, Timeouts):
            return timeout
        return cls(total=timeout, headers=timeout, idle=timeout)
