"""Qwen 2.5 and 3, Hermes, and the many that write their JSON blocks."""

from __future__ import annotations

from sglr_dataplane.output.bodies.json_calls import JsonCalls
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat, think
from sglr_dataplane.output.machine import Opener


def json_blocks(opens: str, closes: str) -> tuple[Opener, ...]:
    """Return openers of JSON calls between two markers, the first of which a model may forget."""
    return (
        Opener(opens, JsonCalls(closers=(closes,))),
        Opener(
            "{",
            JsonCalls(closers=(closes,), begun="{", strict=True, needs_closer=True),
            where="line",
        ),
    )


TOOLS = (
    ToolFormat("qwen", json_blocks("<tool_call>", "</tool_call>"), aliases=("qwen25", "hermes")),
)
REASONING: tuple[ReasoningFormat, ...] = (
    think("qwen3"),
    think("deepseek-r1", "deepseek_r1", always=True),
)
