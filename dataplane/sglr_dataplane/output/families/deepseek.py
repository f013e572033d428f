"""DeepSeek: fenced JSON in V3, plain JSON in V3.1, tags from V3.2 on."""

from __future__ import annotations

from sglr_dataplane.output.bodies.headed import HeadedCalls
from sglr_dataplane.output.bodies.tagged import Tag, TaggedCalls
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


_DSML = f"{BAR}DSML{BAR}"

TOOLS = (
    ToolFormat("deepseekv3", _sections(fenced=True), aliases=("deepseek", "deepseek-v3")),
    ToolFormat("deepseekv31", _sections(fenced=False), aliases=("deepseek31", "deepseek-v31")),
    ToolFormat(
        "deepseekv32",
        marked_tags(_DSML, "function_calls"),
        aliases=("deepseek32", "deepseek-v32"),
    ),
    ToolFormat("deepseekv4", marked_tags(_DSML, "tool_calls"), aliases=("deepseek-v4",)),
    ToolFormat("deepseekv41", marked_tags(_DSML, "calls", space=" "), aliases=("deepseek-v41",)),
    ToolFormat("gigachat35", marked_tags(f"{BAR}GCML{BAR}", "tool_calls")),
)
REASONING: tuple[ReasoningFormat, ...] = (
    think("deepseek-r1", "step3", "gigachat35", always=True),
    think("deepseek-v3", "deepseek-v31", "deepseek-v32", "deepseek-v4", "deepseek-v41"),
)
