"""The cost of reading is linear: work is counted, not time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from sglr_dataplane.output.calls import ToolSignature
from sglr_dataplane.output.formats import answer_formats
from sglr_dataplane.output.replay import Reader
from sglr_dataplane.output.stop import Cut

SHORT, PIECE = 2_000, 40
TOOL = ToolSignature("f", {"properties": {"a": {"type": "string"}, "n": {"type": "array"}}})

GROWING: dict[str, tuple[str, Callable[[int], str]]] = {
    "a string argument": ("qwen", lambda n: '<tool_call>{"name":"f","arguments":{"a":"' + "x" * n),
    "arguments before the name": ("qwen", lambda n: '<tool_call>{"arguments":{"a":"' + "x" * n),
    "openers that are none": ("qwen", lambda n: "<tool_call>" * (n // 11)),
    "openers inside strings": ("qwen", lambda n: '<tool_call>{"arguments":{"a":"' * (n // 30)),
    "lines that begin as JSON": ("qwen", lambda n: '{"name": "f"\n' * (n // 13)),
    "whitespace": ("qwen", lambda n: " " * n),
    "beginnings of markers": ("qwen", lambda n: "<tool_cal" * (n // 9)),
    "a parameter": ("qwen3_coder", lambda n: "<tool_call><function=f><parameter=a>" + "</par" * (n // 5)),
    "a value that is held": ("glm45", lambda n: "<tool_call>f<arg_key>n</arg_key><arg_value>" + "[1]," * (n // 4)),
    "a Python list": ("pythonic", lambda n: "[f(n=[" + "1, " * (n // 3)),
    "escapes": ("pythonic", lambda n: '[f(a="' + "\\n" * (n // 2)),
    "a name": ("kimi_k2", lambda n: "<|tool_call_begin|>" + "f" * n),
    "nested elements": ("minimax-m3", lambda n: ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="f">' + "]<]minimax[>[<n>x]<]minimax[>[</n>" * (n // 35)),
    "a framed message": ("gpt-oss", lambda n: "<|channel|>final<|message|>" + "<|en" * (n // 4)),
}  # fmt: skip


def lines_run(work: Callable[[], object]) -> int:
    """How many of the package's lines *work* runs: the same on every machine."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if "sglr_dataplane" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("size", [PIECE, 10**9])
@pytest.mark.parametrize("kind", GROWING)
def test_twice_the_text_is_at_most_little_more_than_twice_the_work(kind: str, size: int) -> None:
    """In pieces of 40 characters and at once, for the inputs that make others quadratic."""
    parser, make = GROWING[kind]
    reader = Reader(*answer_formats(parser), starts="outside", signatures=(TOOL,))

    def work(length: int) -> int:
        text = make(length)
        chunks = [[Cut(text[at : at + size])] for at in range(0, len(text), size)]
        return lines_run(lambda: reader.read(chunks))

    work(SHORT)  # compiles what later ones find compiled

    assert work(4 * SHORT) - work(2 * SHORT) <= 2.3 * (work(2 * SHORT) - work(SHORT)) + 200
