"""What a format declaration says, and the shapes many families share."""

from __future__ import annotations

from dataclasses import dataclass

from sglr_dataplane.output.call_tags import CallTag, ThoughtTag
from sglr_dataplane.output.channels import Channels
from sglr_dataplane.output.grammar import Opener, Wrapper
from sglr_dataplane.output.ids import IdStyle


@dataclass(frozen=True, slots=True, eq=False)
class ToolFormat:
    """How a model family writes tool calls."""

    name: str
    """SGLang's name of the parser, where it has one."""
    openers: tuple[Opener, ...]
    aliases: tuple[str, ...] = ()
    """Other names: SGLang's, vLLM's and SMG's."""
    wrappers: tuple[Wrapper, ...] = ()
    drops: tuple[str, ...] = ()
    """Markup in the answer that says nothing."""
    channels: Channels | None = None
    """How the family frames whole messages; then there are no other markers."""
    tags: tuple[CallTag, ...] = ()
    """How a grammar keeps the model to this format; none: forced calls are a JSON array."""
    ids: IdStyle = "random"
    calls_in_thought: bool = False
    """Whether thinking goes on after a call that stood inside it."""
    forced: bool = False
    """Whether a grammar makes the model call, in JSON of our choice instead of its own markup."""


@dataclass(frozen=True, slots=True, eq=False)
class ReasoningFormat:
    """How a model family marks its thinking."""

    name: str
    opens: tuple[str, ...]
    closes: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    wrappers: tuple[Wrapper, ...] = ()
    drops: tuple[str, ...] = ()
    """Markup in the answer that says nothing."""
    channels: Channels | None = None
    """How the family frames whole messages; then there are no other markers."""
    always: bool = False
    """Whether the model thinks first even when no marker opens it."""
    tag: ThoughtTag | None = None
    """What a thought is for a grammar, where it is not simply between *opens* and *closes*."""
    restored: str = ""
    """What the content begins with when the prompt opened it: for clients that split it."""


def think(name: str, *aliases: str, always: bool = False) -> ReasoningFormat:
    """Return the ``<think>…</think>`` format under *name*."""
    return ReasoningFormat(name, ("<think>",), ("</think>",), aliases=aliases, always=always)
