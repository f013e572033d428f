"""The shortest way of a token: out of the worker's message, into the client's connection, one call.

While nothing but ordinary tokens comes, one message a read, there is nothing to decide: the message
is the one before with another token and a higher counter, and the frame is the one before with
another text. Whatever else comes is left to the stream's listener, as if there were no lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglr_dataplane.engine.runs import IDS, block_of

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping

    from sglr_dataplane.engine.outlets import Outlet, Spoken
    from sglr_dataplane.engine.runs import RunReader


class Lane:
    """What stands around the tokens of one stream: in the worker's messages, and in the frames.

    Who answers the client makes it and says what the frames are; the worker's stream says what the
    messages are, each time it lays the lane.
    """

    __slots__ = (
        "_after_counter",
        "_at",
        "_before_counter",
        "_counters",
        "_ends_at",
        "_escaped",
        "_first",
        "_heads",
        "_outlet",
        "_spoken",
        "_token_at",
        "after",
        "before",
        "blocked",
        "heard_at",
    )

    def __init__(self, outlet: Outlet, spoken: Spoken, escaped: Mapping[int, bytes]) -> None:
        """Lead to *outlet*.

        Args:
            outlet: Takes frames, unless it is full.
            spoken: Is told when.
            escaped: Tokens as JSON writes them; empty for those that must be read.
        """
        self._outlet = outlet
        self._spoken = spoken
        self._escaped = escaped
        self.before = self.after = b""
        """What stands around a text in its frame."""
        self.blocked: re.Pattern[bytes] | None = None
        """Found in tokens, as JSON escapes them and followed by a NUL, that must be read; None: none
        is."""
        self._token_at = 0
        self._heads: tuple[bytes, ...] = ()
        self._before_counter = self._after_counter = b""
        self._counters: tuple[bytes, ...] = ()
        self._at = self._first = 0
        """Which counter comes next, and which did when the lane was laid."""
        self._ends_at = 0.0
        self.heard_at = 0.0
        """When a token passed last, by the loop's clock."""

    @property
    def passed(self) -> int:
        """How many tokens have passed since the lane was laid."""
        return self._at - self._first

    def lay(self, runs: RunReader, counted: int, ends_at: float) -> bool:
        """Begin behind *counted* tokens; return False if what messages look like is not known yet.

        Args:
            runs: Knows what they look like.
            counted: Tokens that came before.
            ends_at: When the job's time is over, by the loop's clock.
        """
        if not runs.expect(counted + 1):
            return False
        self._token_at, self._heads = runs.token_at, runs.heads
        self._before_counter, self._after_counter = runs.before, runs.after
        self._counters, self._at = block_of(counted + 1)
        self._first = self._at
        self._ends_at = ends_at
        return True

    def take(self, message: bytes, now: float) -> bool:
        """Write the frame of *message*, all that a read brought; False: it must be read.

        Args:
            message: The message with its prefix.
            now: The loop's clock.
        """
        start = self._token_at
        try:
            token = message[start : start + message[start - 1]]
            text = self._escaped[IDS[token]]
            expected = (
                self._heads[len(token)],
                token,
                self._before_counter,
                self._counters[self._at],
                self._after_counter,
            )
        except (IndexError, ValueError):
            return False
        if (
            not text
            or message != b"".join(expected)
            or self._outlet.is_full
            or now >= self._ends_at
        ):
            return False
        if self.blocked is not None and self.blocked.search(text + b"\0"):
            return False
        self._outlet.write(self.before + text + self.after)
        self.heard_at = self._spoken.spoke_at = now
        self._at += 1
        return True
