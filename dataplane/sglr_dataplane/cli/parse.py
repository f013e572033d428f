"""``sglr parse``: read a model's text as the router would, or check vectors of such texts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from sglr_dataplane.cli.vectors import Vector, as_given, differences, load, read, signature
from sglr_dataplane.output.collect import Message, collect
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.formats import (
    UnknownFormatError,
    answer_formats,
    has_tool_format,
    reasoning_format,
    reasoning_formats,
    tool_formats,
)
from sglr_dataplane.output.replay import (
    STARTS,
    Chunking,
    Reader,
    at_random,
    by_character,
    by_token,
    one,
    whole,
)

_CHUNKINGS: dict[str, Chunking] = {
    "whole": whole,
    "token": by_token,
    "char": by_character,
    "one": one,
}
_RANDOM = "random:"
_DEFAULT_SEEDS = 20
_USAGE_ERROR = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--parser", help="tool format of the text on standard input, by name")
    parser.add_argument("--reasoning-parser", help="reasoning format of the text, by name")
    parser.add_argument("--tools", type=Path, help="JSON file with the tools, in OpenAI's form")
    parser.add_argument("--start", choices=sorted(STARTS), default="out", help="where it begins")
    parser.add_argument("--vectors", type=Path, help="check the vectors of this JSON-lines file")
    parser.add_argument(
        "--chunking",
        type=_chunkings,
        help="whole, token, char, one or random:N; default: all of them, and each vector's own",
    )
    parser.add_argument("--list", action="store_true", help="print the names of all formats")


def run(arguments: argparse.Namespace) -> int:
    """Print what was asked for; return 0, or 1 when a vector fails, 2 when it cannot be done."""
    try:
        if arguments.list:
            return _print_names()
        if arguments.vectors is not None:
            return check(load(arguments.vectors), arguments.chunking)
        if arguments.parser is None and arguments.reasoning_parser is None:
            print(
                "sglr parse: give --parser, --reasoning-parser, --vectors or --list.",
                file=sys.stderr,
            )
            return _USAGE_ERROR
        reader = _reader(arguments)
    except (OSError, UnknownFormatError, msgspec.DecodeError) as error:
        print(f"sglr parse: {error}", file=sys.stderr)
        return _USAGE_ERROR
    text = sys.stdin.read()
    print(json.dumps(as_openai(collect(reader.read(one(text, frozenset())))), ensure_ascii=False))
    return 0


def check(vectors: list[Vector], chunkings: dict[str, Chunking] | None) -> int:
    """Print each failing vector and the count; return 1 when one fails."""
    failed = 0
    for vector in vectors:
        cuts = dict(chunkings or _all_chunkings())
        if chunkings is None and vector.chunks:
            cuts["given"] = as_given(vector)
        line = _failure(vector, cuts)
        if line is not None:
            failed += 1
            print(line)
    print(f"{len(vectors) - failed} passed, {failed} failed")
    return 1 if failed else 0


def as_openai(message: Message) -> dict[str, Any]:
    """Return *message* as an OpenAI client gets it, with its finish reason."""
    said: dict[str, Any] = {"role": "assistant", "content": message.content}
    if message.reasoning is not None:
        said["reasoning_content"] = message.reasoning
    if message.tool_calls:
        said["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    return {"message": said, "finish_reason": message.finish.reason if message.finish else None}


def _failure(vector: Vector, chunkings: dict[str, Chunking]) -> str | None:
    """Return a line that says what is wrong with *vector*, in which chunking; None when nothing."""
    for name, chunking in chunkings.items():
        try:
            found = differences(vector, read(vector, chunking))
        except UnknownFormatError as error:
            return f"{vector.id}: {error}"
        if found:
            return f"{vector.id} ({name}): {'; '.join(found)}"
    return None


def _all_chunkings() -> dict[str, Chunking]:
    return _CHUNKINGS | _random_chunkings(_DEFAULT_SEEDS)


def _random_chunkings(count: int) -> dict[str, Chunking]:
    return {f"random seed {seed}": at_random(seed) for seed in range(count)}


def _chunkings(text: str) -> dict[str, Chunking]:
    """Return the chunkings that the argument *text* asks for."""
    if text.startswith(_RANDOM) and text.removeprefix(_RANDOM).isdigit():
        return _random_chunkings(int(text.removeprefix(_RANDOM)))
    if text not in _CHUNKINGS:
        known = f"{', '.join(_CHUNKINGS)} or {_RANDOM}N"
        raise argparse.ArgumentTypeError(f"{text!r} is no chunking; known are {known}")
    return {text: _CHUNKINGS[text]}


def _reader(arguments: argparse.Namespace) -> Reader:
    tools: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None
    if arguments.parser is not None and has_tool_format(arguments.parser):
        tools, reasoning = answer_formats(arguments.parser)
    elif arguments.parser in reasoning_formats():
        reasoning = reasoning_format(arguments.parser)
    elif arguments.parser is not None:
        raise UnknownFormatError(
            f"Parser {arguments.parser!r} is unknown; `sglr parse --list` prints those there are."
        )
    if arguments.reasoning_parser is not None:
        reasoning = reasoning_format(arguments.reasoning_parser)
    offered: list[dict[str, Any]]
    offered = json.loads(arguments.tools.read_bytes()) if arguments.tools is not None else []
    return Reader(
        tools=tools,
        reasoning=reasoning,
        starts=STARTS[arguments.start],
        signatures=tuple(signature(tool) for tool in offered),
    )


def _print_names() -> int:
    print("tool formats:", *tool_formats())
    print("reasoning formats:", *reasoning_formats())
    return 0
