"""The tool calls of one choice, from a name in the text to deltas."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sglr_dataplane.output.deltas import CallArguments, CallStart
from sglr_dataplane.output.sink import Sink
from sglr_dataplane.output.source import MismatchError, Source

CallIds = Callable[[int, str, str | None], str]
"""(position, name, id the model wrote) → the id the client sees."""


UnknownTools = Literal["forward", "content", "drop"]
"""What becomes of a call to a tool that the client did not offer (R11)."""


@dataclass(frozen=True, slots=True)
class ToolSignature:
    """What parsing needs to know of a tool the client offered."""

    name: str
    parameters: Mapping[str, Any] | None = None
    """JSON Schema of the arguments; None when the client gave none."""
    strict: bool = False
    """Whether a grammar holds the arguments to the schema."""


_TO_ARGUMENTS = re.compile(r'[\s,:]*(?:"\w*"?)?[\s:]*')
"""What may stand between a name and arguments that were cut off: markup, and no text."""


class Calls:
    """The tool calls of one choice: named, then opened, given arguments, and closed.

    Up to ``open`` nothing is sent and the block may still turn out to be prose. From then on what
    the source recorded has found its place. Under ``hold`` even an opened call waits for
    ``release``.
    """

    __slots__ = (
        "_before",
        "_has_arguments",
        "_held",
        "_ids",
        "_is_dropped",
        "_is_open",
        "_named_at",
        "_pending",
        "_sink",
        "_source",
        "_tools",
        "_unknown",
        "complete",
        "count",
    )

    def __init__(
        self,
        source: Source,
        sink: Sink,
        tools: Mapping[str, ToolSignature],
        ids: CallIds,
        unknown: UnknownTools = "forward",
    ) -> None:
        """Start with no call; *tools* is what the client offered, by name."""
        self._source = source
        self._sink = sink
        self._tools = tools
        self._ids = ids
        self._unknown: UnknownTools = unknown
        self._is_dropped = False
        self._pending: tuple[str, str | None] | None = None
        self._has_arguments = False
        self._is_open = False
        self._named_at = 0
        self._before: tuple[int, int] | None = None
        self._held: list[CallStart | CallArguments] = []
        self.count = 0
        """Calls opened so far."""
        self.complete = 0
        """Calls whose arguments are a whole JSON object."""

    def declares(self, name: str) -> bool:
        """Return whether the client offered a tool of exactly this name."""
        return name in self._tools

    def parameters(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema of the tool's arguments, if the client gave one."""
        tool = self._tools.get(name)
        return tool.parameters if tool is not None else None

    def named(self, name: str, model_id: str | None = None) -> None:
        """The name is final; *model_id* is the id the model wrote, if it did.

        Raises:
            MismatchError: There is no such tool, and such calls are content.
        """
        if self._unknown == "content" and not self.declares(name):
            raise MismatchError
        self._pending = (name, model_id)
        self._named_at = self._source.recorded_parts()

    def unname(self) -> None:
        """The name does not suffice any more: it takes arguments to make it a call."""
        self._pending = None

    def open(self) -> None:
        """The block is a call."""
        if self._pending is None:
            return
        name, model_id = self._pending
        self._pending = None
        self._is_open = True
        self._has_arguments = False
        self._is_dropped = self._unknown == "drop" and not self.declares(name)
        if self._is_dropped:
            self.settle()
            return
        self._send(CallStart(self.count, self._ids(self.count, name, model_id), name))
        self.count += 1

    def arguments(self, text: str) -> None:
        """More of the arguments' JSON text."""
        if self._is_dropped:
            self.settle()
        elif text:
            self._has_arguments = True
            self._send(CallArguments(self.count - 1, text))

    def aside(self, text: str) -> None:
        """Text inside a call that is no part of it: nothing is lost, and the call goes on."""
        self._sink.text(text)
        self.settle()

    def close(self, *, complete: bool = True) -> None:
        """The call has ended; *complete* when its arguments are a whole JSON object, or absent."""
        self.open()
        if complete and not self._has_arguments and not self._is_dropped:
            self.arguments("{}")
        self._is_open = False
        self.complete += complete and not self._is_dropped
        self.settle()

    def settle(self) -> None:
        """What was read so far is markup of a block that is one."""
        if self._before is None:
            self._source.forget()

    def hold(self) -> None:
        """Keep calls back until ``release``."""
        self._before = (self.count, self.complete)

    def release(self) -> None:
        """Send what was held: the block is one."""
        self._before = None
        for delta in self._held:
            self._send(delta)
        self._held.clear()
        self.settle()

    def give_up(self, *, truncated: bool) -> None:
        """The block broke off; *truncated* when the text did, so that a named call is one (R7)."""
        if self._before is not None:
            self.count, self.complete = self._before
            self._held.clear()
            self._before = None
        elif truncated:
            left_over = self._source.recorded_from(self._named_at)
            if self._pending is not None and not _TO_ARGUMENTS.fullmatch(left_over):
                self.open()
                self._sink.text(left_over)
            self.open()
            if self._is_open:  # what is left is the beginning of the call's next marker
                self.settle()
        self._pending = None
        self._is_open = False

    def _send(self, delta: CallStart | CallArguments) -> None:
        if self._before is not None:
            self._held.append(delta)
            return
        if isinstance(delta, CallStart):
            self._sink.block()
        self._sink.call(delta)
        self._source.forget()
