"""Which formats a model writes in, read from its chat template."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.formats import reasoning_format, tool_format


@dataclass(frozen=True, slots=True)
class Chosen:
    """The formats of one model, and why these."""

    tool: ToolFormat | None
    reasoning: ReasoningFormat | None
    reason: str
    """One clause for the log."""


def detect(template_text: str, model_name: str, added_tokens: AbstractSet[str]) -> Chosen:
    """Return the formats whose markers the template prints.

    Args:
        template_text: The chat template's source; empty when the model has none.
        model_name: The model's name.
        added_tokens: Texts of the tokenizer's added tokens.
    """
    del model_name, added_tokens
    calls = "<tool_call>" in template_text
    thinks = "<think>" in template_text
    found = " and ".join(
        m for m, is_there in (("<tool_call>", calls), ("<think>", thinks)) if is_there
    )
    return Chosen(
        tool=tool_format("qwen") if calls else None,
        reasoning=reasoning_format("qwen3") if thinks else None,
        reason=f"the chat template prints {found}"
        if found
        else "the chat template prints no marker",
    )
