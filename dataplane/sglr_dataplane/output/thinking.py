"""Whether an answer starts inside reasoning: read from the end of the rendered prompt."""

from __future__ import annotations

from sglr_dataplane.output.families.declare import ReasoningFormat
from sglr_dataplane.output.grammar import Start


def reasoning_start(prompt_text: str, reasoning_format: ReasoningFormat | None) -> Start:
    """Return where the answer to *prompt_text* begins.

    The prompt's last marker decides: an open one means inside; one that closes, at the very end,
    means that thinking is off for this turn; else the model is free to open reasoning itself.
    Formats whose models think without any opening marker start inside.

    Args:
        prompt_text: The prompt as rendered, with the generation prompt.
        reasoning_format: The model's; None when it has none.
    """
    if reasoning_format is None:
        return "off"
    tail = prompt_text.rstrip()
    if tail.endswith(tuple(marker.rstrip() for marker in reasoning_format.opens)):
        return "inside"
    if tail.endswith(tuple(marker.rstrip() for marker in reasoning_format.closes)):
        return "off"
    return "inside" if reasoning_format.always else "outside"


def continued_start(prefix: str, reasoning_format: ReasoningFormat | None) -> Start:
    """Return where an answer goes on that continues the assistant's *prefix*.

    Inside when the prefix opens reasoning and does not close it.
    """
    if reasoning_format is None:
        return "off"
    opened = max((prefix.rfind(marker) for marker in reasoning_format.opens), default=-1)
    closed = max((prefix.rfind(marker) for marker in reasoning_format.closes), default=-1)
    if opened > closed:
        return "inside"
    return "off" if prefix.strip() else "outside"
