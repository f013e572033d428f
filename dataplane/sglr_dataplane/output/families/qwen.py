"""Qwen 2.5 and 3, Hermes, and the many that write their JSON blocks."""

from __future__ import annotations

from sglr_dataplane.output.bodies.json_calls import JsonCalls
from sglr_dataplane.output.call_tags import CallTag
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat, think
from sglr_dataplane.output.grammar import Opener, Wrapper


def json_blocks(opens: str, closes: str) -> tuple[Opener, ...]:
    """Return openers of JSON calls between two markers, the first of which a model may forget."""
    unopened = JsonCalls(closers=(closes,), begun="{", strict=True, needs_closer=True)
    return (Opener(opens, JsonCalls(closers=(closes,))), Opener("{", unopened, where="line"))


def json_block_tag(opens: str, closes: str) -> CallTag:
    """Return how a grammar writes the JSON calls between two markers."""
    return CallTag(
        (f'{opens}\n{{"name": "{{name}}", "arguments": ',), f"}}\n{closes}", trigger=opens
    )


_BLOCKS = json_blocks("<tool_call>", "</tool_call>")
_TAG = json_block_tag("<tool_call>", "</tool_call>")
# Ernie 4.5 writes its answers between these.
_RESPONSE = (Wrapper("<response>", "</response>"),)

TOOLS = (
    ToolFormat(
        "qwen",
        _BLOCKS,
        aliases=("qwen25", "qwen2.5", "qwen3", "hermes", "exaone"),
        tags=(_TAG,),
    ),
    ToolFormat("granite4", _BLOCKS, tags=(_TAG,)),
    ToolFormat("trinity", _BLOCKS, calls_in_thought=True, tags=(_TAG,)),
    ToolFormat(
        "longcat",
        json_blocks("<longcat_tool_call>", "</longcat_tool_call>"),
        tags=(json_block_tag("<longcat_tool_call>", "</longcat_tool_call>"),),
    ),
    ToolFormat("ernie45", _BLOCKS, wrappers=_RESPONSE, tags=(_TAG,)),
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
