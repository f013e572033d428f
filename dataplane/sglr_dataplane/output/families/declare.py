"""What a format declaration says, and the shapes many families share."""

from __future__ import annotations

from dataclasses import dataclass

from sglr_dataplane.output.channels import Channels
from sglr_dataplane.output.ids import IdStyle
from sglr_dataplane.output.machine import Opener, Wrapper


@dataclass(frozen=True, slots=True)
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
    ids: IdStyle = "random"
    calls_in_thought: bool = False
    """Whether thinking goes on after a call that stood inside it."""


@dataclass(frozen=True, slots=True)
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


def think(name: str, *aliases: str, always: bool = False) -> ReasoningFormat:
    """Return the ``<think>…</think>`` format under *name*."""
    return ReasoningFormat(name, ("<think>",), ("</think>",), aliases=aliases, always=always)
