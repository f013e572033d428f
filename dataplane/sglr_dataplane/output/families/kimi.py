"""Kimi K2 sections, and K3's channels."""

from __future__ import annotations

from sglr_dataplane.output.bodies.headed import HeadedCalls
from sglr_dataplane.output.bodies.tagged import Tag, TaggedCalls
from sglr_dataplane.output.call_tags import CallTag, ThoughtTag
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat, think
from sglr_dataplane.output.grammar import Opener, Wrapper


def _section(*, begun: bool) -> HeadedCalls:
    return HeadedCalls(
        opens=("<|tool_call_begin|>",),
        ends=("<|tool_call_argument_begin|>",),
        closes=("<|tool_call_end|>",),
        closers=("<|tool_calls_section_end|>", "<|tool_call_section_end|>"),
        counted=True,
        begun=begun,
    )


_K2_TAG = CallTag(
    ("<|tool_call_begin|>functions.{name}:",),
    "<|tool_call_end|>",
    counted="<|tool_call_argument_begin|>",
    opens="<|tool_calls_section_begin|>",
    closes="<|tool_calls_section_end|>",
)
_K3_TAG = CallTag(
    ('<|open|>call tool="{name}" index="',),
    "<|close|>call<|sep|>",
    style="kimi_k3_xml",
    counted='"<|sep|>',
    opens="<|open|>tools<|sep|>",
    closes="<|close|>tools<|sep|>",
    text=("<|close|>response<|sep|>", "<|close|>message<|sep|>"),
)
_K3_THOUGHT = ThoughtTag(
    "<|open|>think<|sep|>", "<|close|>think<|sep|>", then="<|open|>response<|sep|>"
)
_K3_CALLS = TaggedCalls(
    Tag("<|open|>call", "<|close|>call<|sep|>", ends="<|sep|>", name="tool"),
    Tag("<|open|>argument", "<|close|>argument<|sep|>", ends="<|sep|>", name="key"),
    closers=("<|close|>tools<|sep|>",),
    type_attribute="type",
)
_K3_RESPONSE = (Wrapper("<|open|>response<|sep|>", "<|close|>response<|sep|>"),)
_K3_DROPS = ("<|close|>message<|sep|>",)

TOOLS = (
    ToolFormat(
        "kimi_k2",
        (
            Opener("<|tool_calls_section_begin|>", _section(begun=False)),
            Opener("<|tool_call_section_begin|>", _section(begun=False)),
            Opener("<|tool_call_begin|>", _section(begun=True)),
        ),
        aliases=("kimik2", "kimi"),
        tags=(_K2_TAG,),
        ids="kimi",
    ),
    ToolFormat(
        "kimi_k3",
        (Opener("<|open|>tools<|sep|>", _K3_CALLS),),
        wrappers=_K3_RESPONSE,
        drops=_K3_DROPS,
        tags=(_K3_TAG,),
        ids="named",
    ),
)
REASONING = (
    think("kimi_k2", "kimi_k25", "kimi-k2.5"),
    think("kimi_thinking", "kimi-k2-thinking", always=True),
    ReasoningFormat("kimi", ("◁think▷",), ("◁/think▷",)),
    ReasoningFormat(
        "kimi_k3",
        ("<|open|>think<|sep|>",),
        ("<|close|>think<|sep|>",),
        wrappers=_K3_RESPONSE,
        drops=_K3_DROPS,
        tag=_K3_THOUGHT,
    ),
)
