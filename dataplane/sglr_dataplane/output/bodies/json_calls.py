"""Calls written as JSON objects: ``{"name": ..., "arguments": {...}}``, alone or in an array."""

from __future__ import annotations

from dataclasses import dataclass

from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.json_text import is_json_object, json_string
from sglr_dataplane.output.notation import JSON, Notation
from sglr_dataplane.output.source import MismatchError, Reading, Source

NAMES = frozenset({"name", "tool_name"})
ARGUMENTS = frozenset({"arguments", "parameters", "args"})
FUNCTION = "function"
CALL_KEYS = NAMES | ARGUMENTS | {FUNCTION, "type"}
"""Keys that a call's object may begin with."""
ASIDE = frozenset({"id", "type", "tool_call_id", "index"})


@dataclass(frozen=True, slots=True)
class JsonCalls:
    """One or more JSON calls, or an array of them, up to a closing marker."""

    closers: tuple[str, ...] = ()
    """Markers that end the block; without any the last call ends it."""
    separators: tuple[str, ...] = (",", ";")
    """What may stand between calls outside an array, besides whitespace."""
    begun: str = ""
    """``{`` or ``[`` when the opening marker was the first character of the JSON itself."""
    strict: bool = False
    """Whether the first member must be one of a call's: bare JSON may be an answer."""
    noise: tuple[str, ...] = ()
    """Markers that may stand before the JSON and say nothing."""
    notation: Notation = JSON
    needs_closer: bool = False
    """Whether it is a call only once its closing marker came: the opening one was missing."""

    @property
    def markers(self) -> tuple[str, ...]:
        """The closing markers, and those without meaning."""
        return (*self.closers, *self.noise)

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read the calls; an array may stand for several, or for none."""
        if self.needs_closer:
            calls.hold()
        first = self.begun or (yield from self._first(source))
        if first == "[":
            yield from self._array(source, calls)
        else:
            yield from self._objects(source, calls)
        yield from source.space()
        if (yield from source.literal(*self.closers)) is not None:
            calls.release()
        elif self.needs_closer:
            raise MismatchError

    def _first(self, source: Source) -> Reading[str]:
        yield from source.space()
        while (yield from source.literal(*self.noise)) is not None:
            yield from source.space()
        return (yield from source.expect("{", "["))

    def _objects(self, source: Source, calls: Calls) -> Reading[None]:
        while True:
            yield from JsonCall(source, calls, self).read()
            yield from source.space()
            if (yield from source.literal(*self.separators)) is not None:
                yield from source.space()
            if (yield from source.peek()) != "{":
                return
            yield from source.expect("{")

    def _array(self, source: Source, calls: Calls) -> Reading[None]:
        before = calls.count
        while True:
            yield from source.space()
            sign = yield from source.expect("{", ",", "]")
            if sign == "]":
                if self.begun and calls.count == before:
                    raise MismatchError  # an empty array that no marker announced is an answer
                calls.settle()
                return
            if sign == "{":
                yield from JsonCall(source, calls, self).read()


class JsonCall:
    """One call's object, after its ``{``, at work."""

    __slots__ = (
        "_calls",
        "_done",
        "_form",
        "_held",
        "_name",
        "_opened",
        "_source",
        "_strange",
        "_whole",
    )

    def __init__(self, source: Source, calls: Calls, form: JsonCalls) -> None:
        self._source = source
        self._calls = calls
        self._form = form
        self._name: str | None = None
        self._held: list[str] = []
        self._whole = True
        self._done = False
        self._opened = False
        self._strange = False

    def read(self, first_key: str | None = None) -> Reading[None]:
        """Read the members; open the call when its name and its arguments' start are known.

        Args:
            first_key: The first member's key, if it was read already.
        """
        if first_key is not None:
            yield from self._colon_and_member(first_key, nested=False)
        yield from self._members()
        if self._name is None:
            raise MismatchError
        if not self._done:
            is_sure = not self._form.strict or self._calls.declares(self._name)
            if self._strange or not is_sure:
                raise MismatchError  # a name and no arguments may as well be an answer
            self._send_held()
        self._calls.settle()

    def _members(self, *, nested: bool = False) -> Reading[None]:
        source = self._source
        first = True
        while True:
            yield from source.space()
            sign = yield from source.peek()
            if sign == "}":
                yield from source.expect("}")
                return
            if sign == "," and not (first and self._form.strict):
                yield from source.expect(",")
                continue
            if sign not in self._form.notation.quotes and (yield from self._may_end()):
                return
            key = yield from self._form.notation.string(source)
            if self._form.strict and first and key not in CALL_KEYS:
                raise MismatchError
            first = False
            yield from self._colon_and_member(key, nested=nested)

    def _colon_and_member(self, key: str, *, nested: bool) -> Reading[None]:
        yield from self._source.space()
        yield from self._source.expect(":")
        yield from self._source.space()
        yield from self._member(key, nested=nested)

    def _may_end(self) -> Reading[bool]:
        """Return whether a missing closing brace is no loss: nothing more is needed, or comes."""
        if self._done or self._name is None:
            return self._done
        closers = self._form.closers
        return bool(closers) and (yield from self._source.ahead(*closers)) is not None

    def _member(self, key: str, *, nested: bool) -> Reading[None]:
        source = self._source
        sign = yield from source.peek()
        if key == FUNCTION and sign == "{" and not nested:
            yield from source.expect("{")
            yield from self._members(nested=True)
        elif (key in NAMES or key == FUNCTION) and self._name is None:
            self._name = yield from self._form.notation.string(source)
            if not self._name:
                raise MismatchError
            if not self._form.strict or self._calls.declares(self._name):
                self._calls.named(self._name)
            if self._held:
                self._send_held()
        elif key in ARGUMENTS and not self._done and not self._held:
            yield from self._arguments(sign)
        else:
            if key not in ASIDE and not self._done:
                # What has no place in a call is not lost: it is one only if arguments follow.
                self._strange = True
                self._calls.unname()
                if self._form.strict:
                    raise MismatchError
            yield from self._form.notation.value(source, lambda _: None, self._form.closers)

    def _arguments(self, sign: str) -> Reading[None]:
        if sign == "{":
            notation, closers = self._form.notation, self._form.closers
            begun = yield from notation.object_begins(self._source)
            whole = yield from notation.value(self._source, self._emit, closers, begun)
        elif sign == '"':
            whole = yield from self._encoded()
        elif (yield from self._source.literal("null", "None")) is not None:
            self._held.append("{}")
            whole = True
        else:
            raise MismatchError
        self._whole = whole
        if self._name is not None:
            self._send_held()

    def _encoded(self) -> Reading[bool]:
        """Read arguments that are a JSON object inside a JSON string (R12)."""
        raw, said = yield from json_string(self._source)
        if said is None:  # broken off: what there is, as it is
            self._emit(raw)
            return False
        if said.strip() and not is_json_object(said):
            raise MismatchError
        self._emit(said.strip() or "{}")
        return True

    def _emit(self, text: str) -> None:
        """Send arguments, or keep them until the name is known (R8)."""
        if self._name is None:
            self._held.append(text)
            return
        self._open(self._name)
        self._calls.arguments(text)

    def _open(self, name: str) -> None:
        if not self._opened:
            self._opened = True
            self._calls.named(name)
            self._calls.open()

    def _send_held(self) -> None:
        self._done = True
        if self._name is not None:
            self._open(self._name)
        self._calls.arguments("".join(self._held))
        self._calls.close(complete=self._whole)
