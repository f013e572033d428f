"""Qwen3-Coder and those that write functions and parameters as tags with the name inside."""

from __future__ import annotations

from sglr_dataplane.output.bodies.tagged import Tag, TaggedCalls
from sglr_dataplane.output.call_tags import CallTag
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat, think
from sglr_dataplane.output.grammar import Opener

_FUNCTION = Tag("<function=", "</function>", name="")
_PARAMETER = Tag("<parameter=", "</parameter>", name="")


def function_blocks(opens: str, closes: str) -> tuple[Opener, ...]:
    """Return openers of function tags between two markers, the first of which may be missing."""
    block = TaggedCalls(_FUNCTION, _PARAMETER, closers=(closes,))
    bare = TaggedCalls(_FUNCTION, _PARAMETER, closers=(closes,), begun=True, declared=True)
    return (Opener(opens, block), Opener(_FUNCTION.opens, bare, where="line"))


def function_tag(opens: str, closes: str) -> CallTag:
    """Return how a grammar writes one function in its block."""
    return CallTag(
        (f"{opens}\n<function={{name}}>\n",),
        f"\n</function>\n{closes}",
        style="qwen_xml",
        trigger=f"{opens}\n<function=",
    )


TOOLS = (
    ToolFormat(
        "qwen3_coder",
        function_blocks("<tool_call>", "</tool_call>"),
        aliases=(
            "qwen3_xml",
            "qwen_coder",
            "qwen_xml",
            "qwen3_tagged",
            "qwen3_tagged_direct",
            "mimo",
            "step3p5",
            "step5",
            "nanbeige",
            "nemotron",
            "nemotron_3",
        ),
        tags=(function_tag("<tool_call>", "</tool_call>"),),
    ),
    ToolFormat(
        "seed_oss",
        function_blocks("<seed:tool_call>", "</seed:tool_call>"),
        tags=(function_tag("<seed:tool_call>", "</seed:tool_call>"),),
    ),
)
REASONING = (
    think("step3p5", always=True),
    think("nemotron_3", "nano_v3", "nemotron", "nemotron_v3", "nemotron-nano", "nemotron-super"),
    ReasoningFormat("seed_oss", ("<seed:think>",), ("</seed:think>",)),
)
