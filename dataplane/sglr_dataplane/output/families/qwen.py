"""Qwen 2.5 and 3, Hermes, and the many that write their JSON blocks."""

from __future__ import annotations

from sglr_dataplane.output.bodies.json_calls import JsonCalls
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat, think
from sglr_dataplane.output.grammar import Opener, Wrapper


def json_blocks(opens: str, closes: str) -> tuple[Opener, ...]:
    """Return openers of JSON calls between two markers, the first of which a model may forget."""
    unopened = JsonCalls(closers=(closes,), begun="{", strict=True, needs_closer=True)
    return (Opener(opens, JsonCalls(closers=(closes,))), Opener("{", unopened, where="line"))


_BLOCKS = json_blocks("<tool_call>", "</tool_call>")
# Ernie 4.5 writes its answers between these.
_RESPONSE = (Wrapper("<response>", "</response>"),)

TOOLS = (
    ToolFormat("qwen", _BLOCKS, aliases=("qwen25", "qwen2.5", "qwen3", "hermes", "exaone")),
    ToolFormat("granite4", _BLOCKS),
    ToolFormat("trinity", _BLOCKS, calls_in_thought=True),
    ToolFormat("longcat", json_blocks("<longcat_tool_call>", "</longcat_tool_call>")),
    ToolFormat("ernie45", _BLOCKS, wrappers=_RESPONSE),
)
REASONING = (
    think(
        "qwen3", "qwen", "dots", "nanbeige", "interns1", "mimo", "poolside_v1", "trinity", "holo2"
    ),
    think("qwen3-thinking", always=True),
    think("exaone", "k-exaone", "plamo3", "hy_v4", "step5"),
    ReasoningFormat("longcat", ("<longcat_think>", "<think>"), ("</longcat_think>", "</think>")),
    ReasoningFormat("passthrough", (), (), aliases=("identity", "base")),
    ReasoningFormat("ernie45", ("<think>",), ("</think>",), wrappers=_RESPONSE, always=True),
)
