"""MiniMax, Step 3, dots and MiniCPM: calls as invoke and parameter elements."""

from __future__ import annotations

from sglr_dataplane.output.bodies.elements import ElementCalls
from sglr_dataplane.output.bodies.tagged import Tag, TaggedCalls
from sglr_dataplane.output.call_tags import CallTag
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat, think
from sglr_dataplane.output.families.deepseek import BAR
from sglr_dataplane.output.grammar import Opener

_NAMESPACE = "]<]minimax[>["
_MINICPM = TaggedCalls(Tag("<function", "</function>"), Tag("<param", "</param>"), begun=True)
_STEP3 = TaggedCalls(
    Tag("<steptml:invoke", "</steptml:invoke>"),
    Tag("<steptml:parameter", "</steptml:parameter>"),
    closers=(f"<{BAR}tool_calls_end{BAR}>",),
    noise=(
        f"<{BAR}tool_call_begin{BAR}>",
        f"<{BAR}tool_call_end{BAR}>",
        f"function<{BAR}tool_sep{BAR}>",
    ),
)


def invokes(block: str) -> tuple[Opener, ...]:
    """Return the opener of invoke tags in an element *block*."""
    body = TaggedCalls(
        Tag("<invoke", "</invoke>"),
        Tag("<parameter", "</parameter>"),
        closers=(f"</{block}>",),
    )
    return (Opener(f"<{block}>", body),)


def invoke_tag(block: str, *, lead: str = "") -> CallTag:
    """Return how a grammar writes invoke tags in an element *block*."""
    return CallTag(
        ('<invoke name="{name}">\n',),
        "</invoke>\n",
        style="minimax_xml",
        opens=f"<{block}>\n",
        closes=f"</{block}>",
        lead=lead,
    )


_M3_TAG = CallTag(
    (f'{_NAMESPACE}<invoke name="{{name}}">',),
    f"{_NAMESPACE}</invoke>\n",
    style="minimax_m3_xml",
    opens=f"{_NAMESPACE}<tool_call>\n",
    closes=f"{_NAMESPACE}</tool_call>",
)

TOOLS = (
    ToolFormat(
        "minimax-m2",
        invokes("minimax:tool_call"),
        aliases=("minimax",),
        tags=(invoke_tag("minimax:tool_call", lead="\n"),),
    ),
    ToolFormat(
        "minimax-m3",
        (
            Opener(
                f"{_NAMESPACE}<tool_call>",
                ElementCalls(_NAMESPACE, "invoke", (f"{_NAMESPACE}</tool_call>",)),
            ),
        ),
        tags=(_M3_TAG,),
    ),
    ToolFormat("step3", (Opener(f"<{BAR}tool_calls_begin{BAR}>", _STEP3),)),
    ToolFormat(
        "dots",
        invokes("dots_function_call"),
        aliases=("dots3",),
        tags=(invoke_tag("dots_function_call"),),
    ),
    ToolFormat(
        "minicpm5",
        (Opener("<function", _MINICPM),),
        aliases=("minicpm5xml",),
    ),
)
REASONING = (
    think("minimax", "minimax-m2", "mm-m2", always=True),
    ReasoningFormat(
        "minimax-append-think",
        ("<think>",),
        (),
        aliases=("minimax-m2-append-think",),
        restored="<think>",
    ),
    ReasoningFormat("minimax-m3", ("<mm:think>",), ("</mm:think>",)),
    think("minicpm5"),
)
