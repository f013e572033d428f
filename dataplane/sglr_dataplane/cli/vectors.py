"""Parser vectors: an answer's text and what a client must get from it, in any chunking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec

from sglr_dataplane.output.calls import ToolSignature
from sglr_dataplane.output.collect import Message, collect
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.formats import answer_formats, forced, reasoning_format, tool_format
from sglr_dataplane.output.replay import STARTS, Chunking, Reader, token_texts
from sglr_dataplane.output.stop import Cut


class Expected(msgspec.Struct, frozen=True):
    """What a vector's text must become."""

    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[dict[str, Any], ...] = ()
    """``name`` and ``arguments``: an object to compare as JSON, or the exact raw text."""


class Vector(msgspec.Struct, frozen=True):
    """One line of a vectors file."""

    id: str
    parser: str
    text: str
    expect: Expected
    kind: Literal["tool", "reasoning"] = "tool"
    tools: tuple[dict[str, Any], ...] | None = None
    """None: the file's own default."""
    specials: tuple[str, ...] = ()
    """Strings that are one token in the family's tokenizer."""
    chunks: tuple[str, ...] = ()
    """A cut of the text that is known to be hostile."""
    start: Literal["in", "out", "off"] = "out"
    tool_parser: str | None = None
    tool_choice: str | dict[str, Any] | None = None
    finish_reason: str = "stop"
    compare: str | None = None
    content_alt: str | None = None
    """Content that is accepted as well."""
    expect_id: str | None = None
    policy: str | None = None
    note: str | None = None


def load(path: Path, default_tools: tuple[dict[str, Any], ...] = ()) -> list[Vector]:
    """Return the vectors of the JSON-lines file *path*.

    Args:
        path: One JSON object a line; empty lines are allowed.
        default_tools: The tools of vectors that name none.

    Raises:
        msgspec.ValidationError: A line is no vector.
    """
    decoder = msgspec.json.Decoder(Vector)
    vectors = [decoder.decode(line) for line in path.read_bytes().splitlines() if line.strip()]
    return [
        msgspec.structs.replace(v, tools=default_tools) if v.tools is None else v for v in vectors
    ]


def reader_of(vector: Vector) -> Reader:
    """Return how *vector*'s text is to be read.

    Raises:
        UnknownFormatError: It names a parser that is not known.
    """
    tools, reasoning = _formats(vector)
    return Reader(
        tools=tools,
        reasoning=reasoning,
        starts=STARTS[vector.start],
        signatures=tuple(signature(tool) for tool in vector.tools or ()),
    )


def read(vector: Vector, chunking: Chunking) -> Message:
    """Return what *vector*'s text becomes when it is cut by *chunking*."""
    specials = frozenset(vector.specials)
    chunks = chunking(vector.text, specials)
    reason: Literal["stop", "length"] = "length" if vector.finish_reason == "length" else "stop"
    tokens = token_texts(chunks, specials)
    return collect(reader_of(vector).read(chunks, reason, tokens))


def as_given(vector: Vector) -> Chunking:
    """Return the chunking the vector itself brings."""
    return lambda _text, _specials: [[Cut(chunk)] for chunk in vector.chunks]


def differences(vector: Vector, message: Message) -> list[str]:
    """Return in words what of *message* is not as *vector* expects; nothing when all is."""
    expected = vector.expect
    found: list[str] = []
    contents = {_text(vector, expected.content), _text(vector, vector.content_alt)}
    if vector.content_alt is None:
        contents = {_text(vector, expected.content)}
    if _text(vector, message.content) not in contents:
        found.append(f"content: expected {expected.content!r}, got {message.content!r}")
    if _text(vector, message.reasoning) != _text(vector, expected.reasoning_content):
        wanted, got = expected.reasoning_content, message.reasoning
        found.append(f"reasoning: expected {wanted!r}, got {got!r}")
    wanted_calls = [(call["name"], call["arguments"]) for call in expected.tool_calls]
    got_calls = [(call.name, call.arguments) for call in message.tool_calls]
    if len(wanted_calls) != len(got_calls) or not all(map(_same_call, wanted_calls, got_calls)):
        found.append(f"calls: expected {wanted_calls!r}, got {got_calls!r}")
    ids = [call.id for call in message.tool_calls][:1]
    if vector.expect_id is not None and ids != [vector.expect_id]:
        found.append(f"id: expected {vector.expect_id!r}, got {ids!r}")
    finish = message.finish.reason if message.finish is not None else None
    if finish != _finish(vector):
        found.append(f"finish: expected {_finish(vector)!r}, got {finish!r}")
    return found


def _finish(vector: Vector) -> str:
    """Return how the answer must finish: a whole call turns stop, and nothing else, around."""
    if vector.finish_reason == "length":
        return "length"
    whole = any(not isinstance(call["arguments"], str) for call in vector.expect.tool_calls)
    return "tool_calls" if whole else "stop"


def signature(tool: dict[str, Any]) -> ToolSignature:
    """Return what parsing needs of a tool in OpenAI's form."""
    function: dict[str, Any] = tool.get("function", tool)
    return ToolSignature(function["name"], function.get("parameters"))


def _formats(vector: Vector) -> tuple[ToolFormat | None, ReasoningFormat | None]:
    if vector.kind == "reasoning":
        tools = tool_format(vector.tool_parser) if vector.tool_parser else None
        return tools, reasoning_format(vector.parser)
    tools, reasoning = answer_formats(vector.parser)
    choice = vector.tool_choice
    if choice == "none":
        return None, reasoning
    if choice in (None, "auto"):
        return tools, reasoning
    return forced(tools, None if isinstance(choice, str) else choice["function"]["name"]), reasoning


def _text(vector: Vector, text: str | None) -> str | None:
    """Return *text* as it is compared."""
    if text is None or vector.compare is None:
        return text
    return "".join(text.split())


def _same_call(wanted: tuple[str, Any], got: tuple[str, str]) -> bool:
    """Return whether *got* is the *wanted* call; booleans are no integers, digits all count."""
    name, arguments = wanted
    if name != got[0] or isinstance(arguments, str):
        return (name, arguments) == got
    try:
        said = json.loads(got[1])
    except ValueError:
        return False
    return canonical(said) == canonical(arguments)


def canonical(value: Any) -> str:
    """Return *value* as JSON text that is equal exactly for equal values."""
    return json.dumps(value, sort_keys=True)
