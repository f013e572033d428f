"""``reasoningWhitespace: Strip``: no whitespace around thoughts, in any chunking."""

from __future__ import annotations

import pytest

from sglr_dataplane.job import Chunk, Finish, Usage
from sglr_dataplane.output.collect import Message, collect
from sglr_dataplane.output.deltas import Delta
from sglr_dataplane.output.formats import reasoning_format, tool_format
from sglr_dataplane.output.pipeline import Pipeline
from sglr_dataplane.output.replay import (
    Chunking,
    ReplayDecoder,
    at_random,
    by_character,
    by_token,
    one,
)

CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def read(text: str, chunking: Chunking) -> Message:
    """Return what *text* becomes."""
    chunks = chunking(text, frozenset())
    pieces = [piece for chunk in chunks for piece in chunk]
    pipeline = Pipeline(
        ReplayDecoder(pieces),
        tool_format=tool_format("qwen"),
        reasoning_format=reasoning_format("qwen3"),
        strip_thoughts=True,
        new_call_id=lambda: "call_0",
    )
    deltas: list[Delta] = []
    at = 0
    for chunk in chunks:
        deltas += pipeline.feed(Chunk(tuple(range(at, at + len(chunk))), Usage()))
        at += len(chunk)
    return collect(deltas + pipeline.feed(Chunk((), Usage(), finish=Finish("stop"))))


@pytest.mark.parametrize(
    ("text", "thought", "content", "calls"),
    [
        ("<think>\n\n a\n\nb \n</think>\n\nHi.\n\n", "a\n\nb", "Hi.\n\n", 0),
        ("<think>\n \n</think>\n\nHi.", None, "Hi.", 0),
        ("<think>a</think> \n" + CALL, "a", None, 1),
        ("<think>a\n" + CALL, "a", None, 1),
        ("<think>a \n", "a", None, 0),
        ("\n Hi  there. ", None, "Hi  there. ", 0),
    ],
)
def test_whitespace_around_thoughts_is_left_out(
    text: str, thought: str | None, content: str | None, calls: int
) -> None:
    """Inside a thought and inside the content it stays."""
    for chunking in (one, by_token, by_character, *map(at_random, range(40))):
        message = read(text, chunking)

        assert (message.reasoning, message.content) == (thought, content)
        assert len(message.tool_calls) == calls
