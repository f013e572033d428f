"""The part of a SGLangBackend's spec that says how the model's answers are read."""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class UnknownTools(enum.StrEnum):
    """What becomes of a call to a tool that the request did not offer."""

    FORWARD = "Forward"
    """It is a call like any other: the client knows best what it can run."""
    CONTENT = "Content"
    """Its text stays content."""
    DROP = "Drop"
    """Nothing of it is told."""


class ReasoningWhitespace(enum.StrEnum):
    """What becomes of whitespace around a thought."""

    KEEP = "Keep"
    """It is told as the model wrote it."""
    STRIP = "Strip"
    """It is left out."""


class Parsers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How tool calls and thoughts are told apart from the text of an answer."""

    tool_call: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=63,
            pattern=_NAME,
            description="How the model writes tool calls: a name that `sglr parse --list` prints "
            "(SGLang's, vLLM's and SMG's are known), or `none`: calls stay text. Default: auto, "
            "which tells it by the chat template's markers, else by the model's name.",
        ),
    ] = "auto"
    reasoning: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=63,
            pattern=_NAME,
            description="How the model marks its thoughts: a name as above, or `none`: thoughts "
            "stay in the content. Default: auto.",
        ),
    ] = "auto"
    unknown_tools: Annotated[
        UnknownTools,
        Meta(
            description="What becomes of a call to a tool that the request did not offer. Default: "
            "Forward, since the client knows best what it can run."
        ),
    ] = UnknownTools.FORWARD
    reasoning_whitespace: Annotated[
        ReasoningWhitespace,
        Meta(
            description="What becomes of whitespace around a thought: at its beginning and end, "
            "and before the content. Default: Keep, as SGLang does."
        ),
    ] = ReasoningWhitespace.KEEP

    def __post_init__(self) -> None:
        """Refuse a line break at the end, which ``$`` lets through."""
        for name, value in (("toolCall", self.tool_call), ("reasoning", self.reasoning)):
            if not value.isprintable():
                raise ValueError(f"{name} is {value!r}; expected a name without line break")
