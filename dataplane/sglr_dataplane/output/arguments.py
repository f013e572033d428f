"""Writes a call's arguments as JSON while the model writes them another way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglr_dataplane.output.calls import Calls
from sglr_dataplane.output.values import STRING, Kinds, json_of, kinds_of_property, quoted


class Arguments:
    """One call's arguments object, parameter by parameter.

    A string is sent as it comes; any other value when it is whole. One line break after a value's
    opening tag and one before its closing tag belong to the markup.
    """

    __slots__ = ("_began", "_breaks", "_calls", "_held", "_kinds", "_parameters", "_started")

    def __init__(self, calls: Calls, parameters: Mapping[str, Any] | None) -> None:
        """Start with no parameter; *parameters* is the tool's schema."""
        self._calls = calls
        self._parameters = parameters
        self._started = False
        self._kinds: Kinds = ()
        self._held: list[str] = []
        self._began = False
        self._breaks = ""

    def key(self, key: str) -> None:
        """Write *key*; the value's JSON follows by ``Calls.arguments``."""
        self._calls.arguments((", " if self._started else "{") + quoted(key) + ": ")
        self._started = True

    def begin(self, key: str, kinds: Kinds | None = None) -> None:
        """Begin the value of *key*; *kinds* when the markup says them, else the schema does."""
        self.key(key)
        self._kinds = kinds_of_property(self._parameters, key) if kinds is None else kinds
        self._began = False
        self._breaks = ""
        if self._kinds == STRING:
            self._calls.arguments('"')

    def add(self, text: str) -> None:
        """More of the value's text."""
        if not self._began:
            self._began = True
            text = text.removeprefix("\n")
        text = self._breaks + text
        self._breaks = "\n" if text.endswith("\n") else ""
        text = text.removesuffix("\n")
        if self._kinds != STRING:
            self._held.append(text)
            self._calls.settle()
        elif text:
            self._calls.arguments(quoted(text)[1:-1])

    def end(self) -> None:
        """The value is whole."""
        if self._kinds == STRING:
            self._calls.arguments('"')
        else:
            self._calls.arguments(json_of("".join(self._held), self._kinds))
        self._held.clear()
        self._calls.settle()

    def cut(self) -> None:
        """The text ended inside the value: what there is, as it is (R7)."""
        self._calls.arguments("".join(self._held))
        self._calls.close(complete=False)

    def close(self, *, complete: bool) -> None:
        """The call has ended; *complete* when the model ended it."""
        if complete and self._started:
            self._calls.arguments("}")
        self._calls.close(complete=complete)
