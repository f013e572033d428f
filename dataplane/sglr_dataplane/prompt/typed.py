"""Tells what a request itself spells from what its template writes, in the rendered prompt.

A letter that nobody uses is put behind every letter of the request that could begin a control
token. The template carries it along, and where it comes out, somebody typed. Assistant messages are
left alone: their control tokens are the model's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec

from sglr_dataplane.prompt.json_values import is_array, is_object
from sglr_dataplane.prompt.literals import LiteralSearch

_PRIVATE_USE: Final = range(0xE000, 0xE040)
"""Some of what Unicode leaves to whoever wants it: who uses all of these means harm."""

_ALWAYS: Final = ("role", "content")
"""What every message has."""

_PIECE: Final = 65_536
"""Characters worked on in one go."""


class Inputs(msgspec.Struct, frozen=True):
    """All that a template is given by one request."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    kwargs: Mapping[str, Any]

    def contents(self) -> list[str]:
        """Return the texts of the messages that are not the assistant's, part by part."""
        contents: list[str] = []
        for message in self.messages:
            if message["role"] != "assistant":
                content = message["content"]
                if isinstance(content, str):
                    contents.append(content)
                else:
                    contents += [part["text"] for part in content]
        return contents

    def has_others(self) -> bool:
        """Return whether :meth:`others` may yield any."""
        longest = max(map(len, self.messages), default=0)
        return bool(self.tools or self.kwargs) or longest > len(_ALWAYS)

    def others(self) -> Iterator[str]:
        """Yield what else the request brings: names and ids, tools, template arguments."""
        for message in self._typed_messages():
            yield from _texts({k: v for k, v in message.items() if k not in _ALWAYS})
        yield from _texts(self.tools)
        yield from _texts(dict(self.kwargs))

    def spell(self, controls: LiteralSearch) -> bool:
        """Return whether the request spells a control token, possibly in parts."""
        contents = self.contents()
        # Templates print parts and messages one after the other, some of them stripped.
        return (
            controls.is_in("".join(contents))
            or (len(contents) > 1 and controls.is_in("".join(map(str.strip, contents))))
            or (self.has_others() and any(map(controls.is_in, self.others())))
        )

    def _typed_messages(self) -> Iterator[dict[str, Any]]:
        return (message for message in self.messages if message["role"] != "assistant")


@dataclass(frozen=True, slots=True)
class Mark:
    """The letter that stands behind typed ones."""

    letter: str
    controls: LiteralSearch

    @classmethod
    def unused_in(cls, inputs: Inputs, template: str, controls: LiteralSearch) -> Mark | None:
        """Return a mark with a letter that occurs nowhere; None if each of some dozens does."""
        texts = [template, *_texts(inputs.messages), *inputs.others()]
        for code in _PRIVATE_USE:
            if not any(chr(code) in text for text in texts):
                return cls(chr(code), controls)
        return None

    def marked(self, inputs: Inputs) -> Inputs:
        """Return *inputs* with the mark behind every typed letter that begins a control token."""
        messages = [
            message
            if message["role"] == "assistant"
            else {k: v if k == "role" else self._in_value(v) for k, v in message.items()}
            for message in inputs.messages
        ]
        kwargs = {name: self._in_value(value) for name, value in inputs.kwargs.items()}
        return Inputs(messages, self._in_value(inputs.tools), kwargs)

    def removed(self, text: str) -> tuple[str, tuple[int, ...]]:
        """Return *text* without the marks, and the offsets of the letters that had them."""
        kept: list[str] = []
        typed: list[int] = []
        offset = start = 0
        while True:
            end = text.find(self.letter, start)
            piece = text[start : end if end >= 0 else len(text)]
            kept.append(piece)
            offset += len(piece)
            if end < 0:
                return "".join(kept), tuple(typed)
            if offset and (not typed or typed[-1] != offset - 1):
                typed.append(offset - 1)
            start = end + 1

    def escapes_in(self, text: str) -> int:
        """Return how often *text* has the mark as JSON, HTML or URLs escape it."""
        code = ord(self.letter)
        lower = text.lower()
        spellings = (f"\\u{code:x}", f"&#{code};", f"&#x{code:x};", quote(self.letter).lower())
        return sum(map(lower.count, spellings))

    def _in_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._in_text(value)
        if is_array(value):
            return [self._in_value(item) for item in value]
        if is_object(value):
            return {self._in_key(key): self._in_value(item) for key, item in value.items()}
        return value

    def _in_key(self, key: str) -> str:
        # Templates look keys up: they are changed only where they spell a control token.
        return self._in_text(key) if self.controls.is_in(key) else key

    def _in_text(self, text: str) -> str:
        # By pieces: to replace a million letters keeps every other thread waiting.
        pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
        for first in self.controls.firsts:
            pieces = [piece.replace(first, first + self.letter) for piece in pieces]
        return "".join(pieces)


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in *value*, keys too."""
    if isinstance(value, str):
        yield value
    elif is_object(value):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif is_array(value):
        for item in value:
            yield from _texts(item)
