"""Llama 3 JSON, and the pythonic calls of Llama 4, Olmo 3, LFM2 and Sarashina."""

from __future__ import annotations

from typing import Literal

from sglr_dataplane.output.bodies.json_calls import JsonCalls
from sglr_dataplane.output.bodies.pythonic import PythonicCalls
from sglr_dataplane.output.call_tags import CallTag
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat, think
from sglr_dataplane.output.grammar import Opener
from sglr_dataplane.output.notation import PYTHON


def bare_json(where: Literal["start", "line"] = "start") -> tuple[Opener, ...]:
    """Return openers of JSON calls, or an array of them, that no marker announces."""
    return (
        Opener("[", JsonCalls(begun="[", strict=True), where=where),
        Opener("{", JsonCalls(begun="{", strict=True), where=where),
    )


TOOLS = (
    ToolFormat(
        "llama3",
        (Opener("<|python_tag|>", JsonCalls()), *bare_json()),
        aliases=("llama", "llama3_json", "llama4_json", "llama_nemotron"),
        tags=(CallTag(('{"name": "{name}", "parameters": ',), "}", trigger='{"name": '),),
    ),
    ToolFormat(
        "pythonic",
        (
            Opener("<|python_start|>", PythonicCalls(closers=("<|python_end|>",))),
            Opener("[", PythonicCalls(begun=True), where="start"),
        ),
        aliases=("llama4_pythonic", "llama4"),
    ),
    ToolFormat(
        "olmo3", (Opener("<function_calls>", PythonicCalls(closers=("</function_calls>",))),)
    ),
    ToolFormat(
        "lfm2",
        (Opener("<|tool_call_start|>", PythonicCalls(closers=("<|tool_call_end|>",))),),
        aliases=("lfm2.5",),
    ),
    ToolFormat("sarashina", (Opener("<|tool_calls|>", JsonCalls(notation=PYTHON)),)),
    ToolFormat("json", bare_json(where="line"), aliases=("plain",)),
    ToolFormat("json_array", bare_json()),
    ToolFormat("passthrough", ()),
)
REASONING: tuple[ReasoningFormat, ...] = (think("olmo3", always=True),)
