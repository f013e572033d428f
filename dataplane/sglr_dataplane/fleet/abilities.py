"""What the workers of one backend can do, all together, by what each says of itself; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglr_dataplane.engine import EngineFacts


@dataclass(frozen=True, slots=True)
class Abilities:
    """What holds at whichever worker a job comes to."""

    facts: EngineFacts | None = None
    """What one of them says of itself; None while none has spoken."""
    longest_prompt: int | None = None
    """The tokens of the longest prompt that each takes; None while none has said."""
    context: int | None = None
    """The tokens that prompt and answer may have together at each; None while none has said."""
    adapters: frozenset[str] = frozenset()
    """The names, at the workers, of the adapters that at least one has."""


UNKNOWN: Final = Abilities()
"""Of a backend of which no worker has spoken."""


def abilities_of(spoken: Iterable[EngineFacts]) -> Abilities:
    """Return what workers can do together that have *spoken* so."""
    facts = tuple(spoken)
    if not facts:
        return UNKNOWN
    # sglang refuses a prompt of ``max_req_input_len`` tokens already.
    prompts = [one.max_req_input_len - 1 for one in facts if one.max_req_input_len is not None]
    contexts = [one.context_length for one in facts if one.context_length is not None]
    return Abilities(
        facts=facts[0],
        longest_prompt=min(prompts, default=None),
        context=min(contexts, default=None),
        adapters=frozenset(name for one in facts for name, _ in one.adapters),
    )
