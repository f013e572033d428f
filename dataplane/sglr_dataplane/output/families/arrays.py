"""Cohere, Granite, Phi, InternLM, Hunyuan A13B, Jamba, xLAM, GigaChat, Apertus: JSON arrays."""

from __future__ import annotations

from sglr_dataplane.output.bodies.json_calls import JsonCalls
from sglr_dataplane.output.bodies.keyed import KeyedCalls
from sglr_dataplane.output.bodies.tagged import Tag
from sglr_dataplane.output.bodies.valued import ValuedCalls
from sglr_dataplane.output.call_tags import CallTag
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat, think
from sglr_dataplane.output.families.llama import bare_json
from sglr_dataplane.output.grammar import Opener, Wrapper

_COHERE_TEXT = (
    Wrapper("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    Wrapper("<|START_TEXT|>", "<|END_TEXT|>"),
)
# The newest Command models write tags instead of JSON.
_COHERE_TAGS = ValuedCalls(
    Tag("<cofl:tool_call ", "</cofl:tool_call>"),
    Tag("<cofl:value ", "</cofl:value>"),
    closers=("</cofl:tool_calls>",),
)


def array_tag(opens: str, closes: str) -> CallTag:
    """Return how a grammar writes an array of JSON calls between two markers."""
    return CallTag(
        ('{"name": "{name}", "arguments": ',),
        "}",
        opens=f"{opens}[",
        closes=f"]{closes}",
        separator=", ",
    )


_COHERE_XML = CallTag(
    ('<cofl:tool_call id="',),
    "</cofl:tool_call>",
    style="cohere_xml",
    counted='" name="{name}">',
    opens="<cofl:tool_calls>",
    closes="</cofl:tool_calls>",
    token="<cofl:tool_calls>",  # noqa: S106  # a marker
)
_COHERE_JSON = CallTag(
    ('{"tool_call_id": "',),
    "}",
    counted='", "tool_name": "{name}", "parameters": ',
    opens="<|START_ACTION|>[\n    ",
    closes="\n]<|END_ACTION|>",
    separator=",\n    ",
)
_INTERN = CallTag(
    ('<|action_start|> <|plugin|>\n{"name": "{name}", "parameters": ',),
    "}<|action_end|>",
    trigger="<|action_start|> <|plugin|>",
)
_APERTUS = CallTag(
    ('{"{name}": ',), "}", opens="<|tools_prefix|>[", closes="]<|tools_suffix|>", separator=", "
)

TOOLS = (
    ToolFormat(
        "cohere_command4",
        (
            Opener("<|START_ACTION|>", JsonCalls(closers=("<|END_ACTION|>",))),
            Opener("<cofl:tool_calls>", _COHERE_TAGS),
        ),
        aliases=("cohere", "cohere_command", "cohere_command3"),
        wrappers=_COHERE_TEXT,
        tags=(_COHERE_XML, _COHERE_JSON),
    ),
    ToolFormat(
        "granite",
        (
            Opener("<|tool_call|>", JsonCalls()),
            Opener("<tool_call>", JsonCalls(closers=("</tool_call>",))),
        ),
        tags=(array_tag("<|tool_call|>", ""),),
    ),
    ToolFormat(
        "granite-20b-fc",
        (Opener("<function_call>", JsonCalls()),),
        aliases=("granite-20b", "granite20b", "granite20b-fc", "granite20"),
        tags=(
            CallTag(
                ('<function_call> {"name": "{name}", "arguments": ',),
                "}",
                trigger="<function_call>",
            ),
        ),
    ),
    ToolFormat(
        "phi4_mini_json",
        (Opener("functools[", JsonCalls(begun="[")),),
        aliases=("phi4", "phi4_mini"),
        tags=(array_tag("functools", ""),),
    ),
    ToolFormat(
        "interns1",
        (
            Opener(
                "<|action_start|>", JsonCalls(closers=("<|action_end|>",), noise=("<|plugin|>",))
            ),
        ),
        aliases=("internlm", "internlm2", "internlm3", "intern"),
        tags=(_INTERN,),
    ),
    ToolFormat(
        "hunyuan_a13b",
        (Opener("<tool_calls>", JsonCalls(closers=("</tool_calls>",))),),
        aliases=("jamba",),
        tags=(array_tag("<tool_calls>", "</tool_calls>"),),
    ),
    ToolFormat(
        "xlam",
        (
            *bare_json(),
            Opener("```json", JsonCalls(closers=("```",)), where="line"),
            Opener("[TOOL_CALLS]", JsonCalls()),
            Opener("<tool_call>", JsonCalls(closers=("</tool_call>",))),
        ),
    ),
    ToolFormat(
        "gigachat3",
        (
            Opener("function call<|role_sep|>", JsonCalls()),
            Opener("<|function_call|>", JsonCalls()),
        ),
        drops=("<|message_sep|>",),
    ),
    ToolFormat(
        "apertus2509",
        (Opener("<|tools_prefix|>", KeyedCalls(("<|tools_suffix|>",))),),
        aliases=("apertus",),
        calls_in_thought=True,
        tags=(_APERTUS,),
    ),
)
REASONING = (
    ReasoningFormat(
        "cohere_command4",
        ("<|START_THINKING|>",),
        ("<|END_THINKING|>",),
        aliases=("cohere", "cohere_cmd", "cohere_command", "cohere_command3"),
        wrappers=_COHERE_TEXT,
    ),
    think("granite_thinking_parser", "granite4"),
    ReasoningFormat(
        "granite",
        ("Here is my thought process:", "Here's my thought process:"),
        ("Here is my response:", "Here's my response:"),
        aliases=("granite32",),
    ),
    ReasoningFormat(
        "apertus2509", ("<|inner_prefix|>",), ("<|inner_suffix|>",), aliases=("apertus",)
    ),
)
