"""What a grammar forced the model to write: one tool's arguments, as a bare JSON object."""

from __future__ import annotations

from dataclasses import dataclass

from sglr_dataplane.output.bodies.json_calls import CALL_KEYS, JsonCall, JsonCalls
from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.json_text import expect_string, json_value
from sglr_dataplane.output.source import MismatchError, Reading, Source
from sglr_dataplane.output.values import properties_of


@dataclass(frozen=True, slots=True)
class BareArguments:
    """The arguments of the tool *name*, or a call's object that names it, after the ``{``."""

    name: str

    @property
    def markers(self) -> tuple[str, ...]:
        """None."""
        return ()

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read the object: its first key tells which of the two it is."""
        yield from source.space()
        try:
            key = yield from expect_string(source)
        except MismatchError:  # no key, or a broken one: still the arguments that were asked for
            key = ""
        if key in CALL_KEYS - properties_of(calls.parameters(self.name)).keys():
            yield from JsonCall(source, calls, JsonCalls(begun="{")).read(key)
            return
        begun = source.recorded()
        calls.named(self.name)
        calls.open()
        whole = yield from json_value(source, calls.arguments, begun=begun)
        calls.close(complete=whole)
