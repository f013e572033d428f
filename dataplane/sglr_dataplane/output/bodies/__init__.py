"""What stands between a tool block's markers: one lexer for each way models write calls."""

from __future__ import annotations

from typing import Protocol

from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.source import Reading, Source


class Body(Protocol):
    """Reads a tool block after its opening marker."""

    @property
    def markers(self) -> tuple[str, ...]:
        """The markers it reads besides the opening one."""
        ...

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read the block up to and including its closing markers.

        Raises:
            MismatchError: The text is not in the form; what was read and not settled goes back to
                where it came from.
        """
        ...
