"""DeepSeek: fenced JSON in V3, plain JSON in V3.1, tags from V3.2 on."""

from __future__ import annotations

from sglr_dataplane.output.bodies.headed import HeadedCalls
from sglr_dataplane.output.bodies.tagged import Tag, TaggedCalls
from sglr_dataplane.output.call_tags import CallTag, Style
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat, think
from sglr_dataplane.output.grammar import Opener

BAR = "\uff5c"
_BEGIN, _END = f"<{BAR}tool▁calls▁begin{BAR}>", f"<{BAR}tool▁calls▁end{BAR}>"
_CALL, _CALL_END = f"<{BAR}tool▁call▁begin{BAR}>", f"<{BAR}tool▁call▁end{BAR}>"
_SEP = f"<{BAR}tool▁sep{BAR}>"


def _sections(*, fenced: bool) -> tuple[Opener, ...]:
    """Return openers of a section of headed calls, and of a call whose section was forgotten."""

    def calls(*, begun: bool) -> HeadedCalls:
        return HeadedCalls(
            opens=(_CALL,),
            kind_end=_SEP if fenced else "",
            ends=(_SEP,),
            closes=(_CALL_END,),
            closers=(_END,),
            fenced=fenced,
            begun=begun,
        )

    return (Opener(_BEGIN, calls(begun=False)), Opener(_CALL, calls(begun=True)))


def marked_tags(mark: str, block: str, *, space: str = "") -> tuple[Opener, ...]:
    """Return openers of invoke tags whose names follow *mark*, in a *block* element."""
    body = TaggedCalls(
        Tag(f"<{mark}{space}invoke", f"</{mark}{space}invoke>"),
        Tag(f"<{mark}{space}parameter", f"</{mark}{space}parameter>"),
        closers=(f"</{mark}{space}{block}>",),
        type_attribute="string",
    )
    return (Opener(f"<{mark}{space}{block}>", body),)


def _section_tag(*, fenced: bool) -> CallTag:
    """Return how a grammar writes a section of headed calls."""
    begin = f"{_CALL}function{_SEP}{{name}}\n```json\n" if fenced else f"{_CALL}{{name}}{_SEP}"
    return CallTag(
        (begin,),
        f"\n```{_CALL_END}" if fenced else _CALL_END,
        opens=_BEGIN,
        closes=_END,
        separator="\n" if fenced else "",
    )


def _invoke_tag(block: str, style: Style, *, space: str = "") -> CallTag:
    """Return how a grammar writes invoke tags in a *block* element."""
    return CallTag(
        (f'<{_DSML}{space}invoke name="{{name}}">\n',),
        f"</{_DSML}{space}invoke>\n",
        style=style,
        opens=f"<{_DSML}{space}{block}>\n",
        closes=f"</{_DSML}{space}{block}>",
        lead="\n\n",
    )


_DSML = f"{BAR}DSML{BAR}"

TOOLS = (
    ToolFormat(
        "deepseekv3",
        _sections(fenced=True),
        aliases=("deepseek", "deepseek-v3"),
        tags=(_section_tag(fenced=True),),
    ),
    ToolFormat(
        "deepseekv31",
        _sections(fenced=False),
        aliases=("deepseek31", "deepseek-v31"),
        tags=(_section_tag(fenced=False),),
    ),
    ToolFormat(
        "deepseekv32",
        marked_tags(_DSML, "function_calls"),
        aliases=("deepseek32", "deepseek-v32"),
        tags=(_invoke_tag("function_calls", "deepseek_xml"),),
    ),
    ToolFormat(
        "deepseekv4",
        marked_tags(_DSML, "tool_calls"),
        aliases=("deepseek-v4",),
        tags=(_invoke_tag("tool_calls", "deepseek_xml"),),
    ),
    ToolFormat(
        "deepseekv41",
        marked_tags(_DSML, "calls", space=" "),
        aliases=("deepseek-v41",),
        tags=(_invoke_tag("calls", "deepseek_v4_1_xml", space=" "),),
    ),
    ToolFormat("gigachat35", marked_tags(f"{BAR}GCML{BAR}", "tool_calls")),
)
REASONING: tuple[ReasoningFormat, ...] = (
    think("deepseek-r1", "step3", "gigachat35", always=True),
    think("deepseek-v3", "deepseek-v31", "deepseek-v32", "deepseek-v4", "deepseek-v41"),
)
