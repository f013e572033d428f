"""Calls written as tags: ``<invoke name="f"><parameter name="k">v</parameter></invoke>``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sglr_dataplane.output.arguments import Arguments
from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.json_text import begins_object, json_value
from sglr_dataplane.output.source import MismatchError, Reading, Source
from sglr_dataplane.output.values import STRING, Kinds, kinds_of_property

_NAME = re.compile(r"[^<>\"'\s]+")
_CDATA = "<![CDATA["
_CDATA_END = "]]>"


@dataclass(frozen=True, slots=True)
class Tag:
    """An element that carries a name."""

    opens: str
    """The opening tag up to its attributes, or up to the name: ``<invoke``, ``<function=``."""
    closes: str
    ends: str = ">"
    """What ends the opening tag."""
    name: str = "name"
    """The attribute that holds the name; ``""`` when the name follows ``opens`` directly."""

    def name_in(self, attributes: str) -> str:
        """Return the name that the text of an opening tag carries.

        Raises:
            MismatchError: It carries none.
        """
        found = attribute(attributes, self.name) if self.name else attributes.strip(" \t\"'/")
        found = (found or "").strip()
        if not _NAME.fullmatch(found):
            raise MismatchError
        return found


def attribute(attributes: str, name: str) -> str | None:
    """Return the value of the attribute *name*, quoted or not; None when it is not there."""
    found = re.search(rf"(?:^|\s){name}\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s/]+))", attributes)
    return next((g for g in found.groups() if g is not None), None) if found else None


@dataclass(frozen=True, slots=True)
class TaggedCalls:
    """Calls as elements, one or more, up to the block's closing marker."""

    call: Tag
    parameter: Tag
    closers: tuple[str, ...] = ()
    """Markers that end the block."""
    noise: tuple[str, ...] = ()
    """Markup that may stand around each call and says nothing."""
    type_attribute: str = ""
    """The parameter's attribute that says its type: ``string`` ("true" or not) or a type name."""
    begun: bool = False
    """Whether the opening marker was the call's own tag."""
    declared: bool = False
    """Whether only tools the client offered are calls: the opening marker was missing."""

    @property
    def markers(self) -> tuple[str, ...]:
        """All tags but attributes."""
        tags = (self.call, self.parameter)
        own = (text for tag in tags for text in (tag.opens, tag.closes, tag.ends))
        return (*own, *self.closers, *self.noise)

    def read(self, source: Source, calls: Calls) -> Reading[None]:
        """Read the calls; the block's closing marker may be missing after the last."""
        before = calls.count
        found = self.call.opens if self.begun else None
        while True:
            if found == self.call.opens:
                yield from _Call(source, calls, self).read()
            yield from source.space()
            found = yield from source.literal(self.call.opens, *self.closers, *self.noise)
            if found in self.closers:
                calls.settle()
                return
            if found is None:
                if calls.count == before:
                    raise MismatchError
                return


class _Call:
    """One call's element, after its tag's first characters, at work."""

    __slots__ = ("_arguments", "_calls", "_form", "_parameters", "_source")

    def __init__(self, source: Source, calls: Calls, form: TaggedCalls) -> None:
        self._source = source
        self._calls = calls
        self._form = form
        self._arguments = Arguments(calls, None)
        self._parameters: Mapping[str, Any] | None = None

    def read(self) -> Reading[None]:
        """Read the element; it also ends where its parent does, or where the next one begins."""
        form, source, calls = self._form, self._source, self._calls
        attributes = yield from self._attributes(form.call)
        name = form.call.name_in(attributes)
        if form.declared and not calls.declares(name):
            raise MismatchError
        calls.named(name)
        calls.open()
        if attributes.endswith("/"):
            calls.close()
            return
        self._parameters = calls.parameters(name)
        self._arguments = Arguments(calls, self._parameters)
        calls.settle()
        if (yield from begins_object(source)):
            closers = (form.call.closes, *form.closers)
            begun = source.recorded()
            whole = yield from json_value(source, calls.arguments, closers, begun=begun)
            yield from source.space()
            yield from source.literal(form.call.closes)
            calls.close(complete=whole)
            return
        calls.aside(source.recorded().strip())
        while (yield from self._parameter()):
            pass

    def _attributes(self, tag: Tag) -> Reading[str]:
        """Read the rest of an opening tag; return what stands in it."""
        line_end = () if tag.name else ("\n",)
        text, _ = yield from self._source.text_until(tag.ends, *line_end)
        yield from self._source.expect(tag.ends)
        return text

    def _parameter(self) -> Reading[bool]:
        """Read a parameter, or what ends the call; return whether the call goes on."""
        form, source = self._form, self._source
        outer = (*form.closers, form.call.opens)
        wanted = source.markers(form.parameter.opens, form.call.closes, *outer)
        found = yield from source.known(wanted, self._calls.aside)
        if found != form.parameter.opens:
            yield from source.literal(form.call.closes)
            self._arguments.close(complete=found is not None)
            return False
        yield from source.expect(form.parameter.opens)
        attributes = yield from self._attributes(form.parameter)
        key = form.parameter.name_in(attributes)
        self._arguments.begin(key, self._kinds(key, attributes))
        return (yield from self._value())

    def _kinds(self, key: str, attributes: str) -> Kinds | None:
        """Return the types that a parameter's tag itself says; None leaves it to the schema.

        Where the schema rules out what the tag says, the tag is wrong: grammars let both pass.
        """
        said = attribute(attributes, self._form.type_attribute) if self._form.type_attribute else ""
        if not said:
            return None
        kinds = kinds_of_property(self._parameters, key)
        if said in ("true", "string", "str"):
            return kinds if kinds and "string" not in kinds else STRING
        if kinds == STRING:
            return STRING
        return () if said == "false" else (said,)

    def _value(self) -> Reading[bool]:
        form, source, arguments = self._form, self._source, self._arguments
        ends = (form.parameter.closes, form.parameter.opens, form.call.closes, *form.closers)
        if (yield from source.literal(_CDATA)) is not None:
            if (yield from source.until(source.markers(_CDATA_END), arguments.add)) is None:
                arguments.cut()
                return False
            yield from source.expect(_CDATA_END)
        if (yield from source.until(source.markers(*ends), arguments.add)) is None:
            arguments.cut()
            return False
        yield from source.literal(form.parameter.closes)
        arguments.end()
        return True
