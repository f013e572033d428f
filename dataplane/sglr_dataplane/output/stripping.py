"""For clients that want no whitespace around thoughts: where those begin and end, and after them."""

from __future__ import annotations

from sglr_dataplane.output.deltas import Text
from sglr_dataplane.output.sink import Sink
from sglr_dataplane.output.source import WHITESPACE


class StrippingSink(Sink):
    """A sink that drops whitespace around thoughts, and before the content."""

    __slots__ = ("_kept", "_said", "_thinks")

    def __init__(self, *, holds_space: bool) -> None:
        """Start empty."""
        super().__init__(holds_space=holds_space)
        self._kept: list[str] = []
        self._thinks = False
        self._said = False

    def text(self, text: str) -> None:
        """More content."""
        if not self._said:
            text = text.lstrip(WHITESPACE)
            self._said = bool(text)
        super().text(text)

    def reasoning(self, text: str) -> None:
        """More thinking; whitespace waits for what follows it."""
        body = text.rstrip(WHITESPACE)
        if body:
            led = "".join((*self._kept, body))
            super().reasoning(led if self._thinks else led.lstrip(WHITESPACE))
            self._kept.clear()
            self._thinks = True
        if len(body) < len(text):
            self._kept.append(text[len(body) :])

    def passes(self, *, thought: bool) -> bool:
        """Return whether text is told as it comes; a thought never is."""
        return not thought and self._said and super().passes(thought=thought)

    def plain_text(self, text: str) -> Text | None:
        """Return the delta of *text* if nothing of it has to be decided; None else, undone."""
        return super().plain_text(text) if self._said else None

    def plain_reasoning(self, text: str) -> None:
        """Return None: a thought is never told as it comes."""
        del text
