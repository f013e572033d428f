"""What a client asks to be turned into a prompt: messages, tools and the choice among them.

Messages and calls are read from the wire as they are (msgspec); everything else is a frozen value
that was checked before it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""Every role a message may have; templates drop unknown ones in silence, so others are refused."""


class ContentPart(msgspec.Struct, frozen=True):
    """One part of a message's content; only ``text`` parts are served."""

    type: str
    text: str | None = None


class FunctionCall(msgspec.Struct, frozen=True):
    """A call the assistant made; *arguments* is JSON text of an object, or the object itself."""

    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """A call in the assistant's history, as clients send back what they received."""

    function: FunctionCall
    id: str | None = None
    index: int | None = None
    type: str | None = "function"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message; what other servers or SDKs add to it is ignored."""

    role: str
    content: str | list[ContentPart] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    phase: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    """Other servers' name for *reasoning_content*; used when it is text."""
    tool_calls: list[ToolCall] | None = None
    function_call: FunctionCall | None = None
    """OpenAI's former name for a single tool call."""
    tools: Any = None
    """Tools declared by a message; refused, because nothing would offer them to the model."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call."""

    name: str
    parameters: Mapping[str, Any] | None
    """JSON Schema of the arguments; None: any object."""
    strict: bool
    function: Mapping[str, Any]
    """What the template sees as ``tool.function``: the client's keys in the client's order."""


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether the model may, must or must not call tools, and which."""

    mode: Literal["none", "auto", "required"] = "none"
    allowed: tuple[str, ...] | None = None
    """The names it may call; None: all of them."""
    named: bool = False
    """True when the client named the one tool to call: the prompt then shows only that one."""


NO_CALLS: Final = ToolChoice()
NO_KWARGS: Final[Mapping[str, Any]] = MappingProxyType({})


class Conversation(msgspec.Struct, frozen=True):
    """All of a request that shapes its prompt."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = NO_CALLS
    template_kwargs: Mapping[str, Any] = NO_KWARGS
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    """True: the last message is the assistant's, and the model goes on writing it."""


class Prompt(msgspec.Struct, frozen=True):
    """Text for the tokenizer; without special tokens added, because templates write their own."""

    text: str
    continuation: str = ""
    """The beginning of the answer, encoded apart from *text* and appended to its ids."""
    typed: tuple[int, ...] = ()
    """Where in *text* a letter comes from the request, not from the template or the assistant, and
    could begin a control token; empty when control tokens count wherever they stand."""
