"""What a mock server can do with a request, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Then(StrEnum):
    """How an answer ends after its bytes."""

    END = "end"
    """As HTTP wants it; the connection stays."""
    CUT = "cut"
    """The connection is closed before the body's end."""
    RESET = "reset"
    """The connection is reset before the body's end."""
    HANG = "hang"
    """Nothing more comes until the client leaves."""


@dataclass(frozen=True, slots=True)
class Say:
    """A right answer, streamed if the request wants that.

    Attributes:
        text: What the model says; streamed word by word.
        reasoning: What it thinks before; ``""``: nothing.
        calls: Functions it calls: names, and arguments as JSON text.
        finish_reason: ``""``: the one that fits.
        wait: Seconds before the answer's head.
        gap: Seconds between two chunks.
    """

    text: str = "Hello!"
    reasoning: str = ""
    calls: Sequence[tuple[str, str]] = ()
    finish_reason: str = ""
    wait: float = 0.0
    gap: float = 0.0


@dataclass(frozen=True, slots=True)
class Fail:
    """An error in OpenAI's shape.

    Attributes:
        retry_after: Seconds of the ``Retry-After`` header; None: no such header.
    """

    status: int
    message: str = "scripted failure"
    type: str = "server_error"
    code: str | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is reset before any answer."""


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer until the client leaves."""


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer of any bytes.

    Attributes:
        parts: The body, in the pieces it is written in.
        gap: Seconds between them.
        then: What comes after.
    """

    parts: Sequence[bytes]
    status: int = 200
    content_type: str = "text/event-stream"
    gap: float = 0.0
    then: Then = Then.END


Play = Say | Fail | Drop | Hang | Raw
