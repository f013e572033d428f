"""Ids of tool calls, as each family wants to see them in the next turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from sglr_dataplane.output.calls import CallIds

IdStyle = Literal["random", "mistral", "kimi", "named"]
"""``random``: the factory's own. ``mistral``: nine letters or digits, the model's own if it wrote
one. ``kimi``: ``functions.NAME:N``, N counting through the conversation: the model was trained on
it. ``named``: ``NAME:N``, N counting in the answer."""

_MISTRAL_LENGTH = 9


def call_ids(style: IdStyle, new_call_id: Callable[[], str], calls_before: int) -> CallIds:
    """Return how a call of an answer gets its id.

    Args:
        style: The family's way.
        new_call_id: Returns an id no other call has, ending in at least nine letters or digits.
        calls_before: Tool calls in the conversation so far.
    """

    def choose(position: int, name: str, model_id: str | None) -> str:
        if style == "mistral":
            return model_id or new_call_id()[-_MISTRAL_LENGTH:]
        if style == "kimi":
            return f"functions.{name}:{calls_before + position}"
        if style == "named":
            return f"{name}:{position}"
        return new_call_id()

    return choose
