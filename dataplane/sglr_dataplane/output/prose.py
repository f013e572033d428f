"""An answer in which nothing is looked for: all of it is content."""

from __future__ import annotations

from collections.abc import Sequence

from sglr_dataplane.output.sink import Sink
from sglr_dataplane.output.source import TextPiece


class Prose:
    """Reads one choice as :class:`sglr_dataplane.output.machine.Machine` does by no grammar."""

    __slots__ = ("_sink", "finish", "passed", "plainly")

    thinks = False
    """Whether what comes next is thought."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.plainly = sink.plain_text
        """Returns the one delta that a text, not empty, is; None when it has to be pushed."""
        self.passed = sink.passed
        """Notes that text passed as :meth:`passage` allowed."""
        self.finish = sink.finish
        """Nothing follows."""

    def passage(self) -> tuple[bool, str, bool] | None:
        """Return how text may pass without being pushed: it is no thought, and all of it may."""
        return (False, "", False) if self._sink.passes(thought=False) else None

    def push(self, pieces: Sequence[TextPiece]) -> None:
        """Read *pieces*."""
        self._sink.text("".join([piece.text for piece in pieces]))
