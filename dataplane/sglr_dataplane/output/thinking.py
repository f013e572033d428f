"""Whether an answer starts inside reasoning: read from the end of the rendered prompt."""

from __future__ import annotations

from sglr_dataplane.output.families.declare import ReasoningFormat
from sglr_dataplane.output.grammar import Start


def reasoning_start(
    prompt_text: str, reasoning_format: ReasoningFormat | None, continuation: str = ""
) -> Start:
    """Return where the answer to *prompt_text* begins.

    The prompt's last marker decides: an open one means inside; one that closes, at the very end,
    means that thinking is off for this turn; else the model is free to open reasoning itself.
    Formats whose models think without any opening marker start inside.

    Args:
        prompt_text: The prompt as rendered, with the generation prompt.
        reasoning_format: The model's; None when it has none.
        continuation: The end of *prompt_text* that the assistant is to go on from: what it opens
            and does not close goes on, and once it has text, nothing opens reasoning any more.
    """
    if reasoning_format is None:
        return "off"
    start = _at_the_end(prompt_text.removesuffix(continuation), reasoning_format)
    if not continuation.strip():
        return start
    opened = _last(reasoning_format.opens, continuation)
    closed = _last(reasoning_format.closes, continuation)
    if opened == closed:  # neither is there
        return "inside" if start == "inside" else "off"
    return "inside" if opened > closed else "off"


def start_without_prompt(text: str, reasoning_format: ReasoningFormat) -> Start:
    """Return where *text*, a whole answer to a prompt that nobody knows, begins.

    A closing marker with no opening one before it closes what the prompt must have opened.
    """
    if reasoning_format.always:
        return "inside"
    if reasoning_format.channels is not None:
        return "outside"
    opened, closed = _first(reasoning_format.opens, text), _first(reasoning_format.closes, text)
    return "inside" if closed < opened else "outside"


def _at_the_end(prompt_text: str, reasoning_format: ReasoningFormat) -> Start:
    tail = prompt_text.rstrip()
    if tail.endswith(tuple(marker.rstrip() for marker in reasoning_format.opens)):
        return "inside"
    if tail.endswith(tuple(marker.rstrip() for marker in reasoning_format.closes)):
        return "off"
    return "inside" if reasoning_format.always else "outside"


def _last(markers: tuple[str, ...], text: str) -> int:
    """Return where the last of *markers* in *text* begins; -1 when none is there."""
    return max((text.rfind(marker) for marker in markers), default=-1)


def _first(markers: tuple[str, ...], text: str) -> int:
    """Return where the first of *markers* in *text* begins; the text's length when none is there."""
    found = (text.find(marker) for marker in markers)
    return min((at for at in found if at >= 0), default=len(text))
