"""GLM and the others that write pairs of keys and values."""

from __future__ import annotations

from sglr_dataplane.output.bodies.pairs import PairCalls
from sglr_dataplane.output.call_tags import CallTag
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat, think
from sglr_dataplane.output.grammar import Opener, Wrapper

_SECTION = PairCalls(
    "</tool_call>",
    opens="<tool_call>",
    separators=("<tool_sep>",),
    closers=("</tool_calls>",),
)
_HORIZON = PairCalls(
    "</ifm|tool_call>",
    key=("<ifm|arg_key>", "</ifm|arg_key>"),
    value=("<ifm|arg_value>", "</ifm|arg_value>"),
    kind=("<ifm|arg_type>", "</ifm|arg_type>"),
    opens="<ifm|tool_call>",
    closers=("</ifm|tool_calls>",),
)
_SECTION_TAG = CallTag(
    ("<tool_call>{name}<tool_sep>\n",),
    "\n</tool_call>",
    style="glm_xml",
    opens="<tool_calls>\n",
    closes="\n</tool_calls>",
    separator="\n",
)


def pairs_tag(element: str, gap: str) -> CallTag:
    """Return how a grammar writes a call in *element*, with *gap* around its pairs."""
    return CallTag(
        (f"<{element}>{{name}}{gap}",),
        f"{gap}</{element}>",
        style="glm_xml",
        trigger=f"<{element}>",
    )


_PAIRS = (Opener("<tool_call>", PairCalls("</tool_call>")),)
_HORIZON_THOUGHTS = ("think", "think_fast", "think_faster")

TOOLS = (
    ToolFormat(
        "glm45",
        _PAIRS,
        aliases=("glm", "glm4", "glm45_moe", "ling", "ling3", "spark25", "poolside_v1"),
        tags=(pairs_tag("tool_call", "\n"),),
    ),
    ToolFormat(
        "glm47",
        _PAIRS,
        aliases=("glm47_moe",),
        tags=(pairs_tag("tool_call", ""),),
    ),
    ToolFormat(
        "iquest_q1",
        (Opener("<iquest_tool_call>", PairCalls("</iquest_tool_call>")),),
        aliases=("iquest",),
        tags=(pairs_tag("iquest_tool_call", "\n"),),
    ),
    ToolFormat(
        "hunyuan",
        (Opener("<tool_calls>", _SECTION),),
        aliases=("hy_v3", "hy_v4", "hy4"),
        tags=(_SECTION_TAG,),
    ),
    ToolFormat("k2_horizon", (Opener("<ifm|tool_calls>", _HORIZON),)),
)
REASONING = (
    think("glm45", "glm", "glm47", "glm-5", "ling3", "ling", "iquest_q1", "spark25"),
    ReasoningFormat(
        "hunyuan",
        ("<think>",),
        ("</think>",),
        aliases=("hy_v3", "hunyuan_a13b"),
        wrappers=(Wrapper("<answer>", "</answer>"),),
    ),
    ReasoningFormat(
        "k2_horizon",
        tuple(f"<ifm|{thought}>" for thought in _HORIZON_THOUGHTS),
        tuple(f"</ifm|{thought}>" for thought in _HORIZON_THOUGHTS),
    ),
)
