"""What the paths that parse a text are asked: SGLang's fields, which SMG's are as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

import msgspec

from sglr_dataplane.api.schema.bodies import BodyReader
from sglr_dataplane.api.schema.fields import Field, refused
from sglr_dataplane.api.schema.refusals import invalid
from sglr_dataplane.api.schema.tools import ToolBody
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.formats import UnknownFormatError, answer_formats, reasoning_format
from sglr_dataplane.prompt.ranges import shown

_Formats = TypeVar("_Formats")


class CallsBody(msgspec.Struct, frozen=True, kw_only=True):
    """A text that may hold tool calls."""

    text: str
    tools: list[ToolBody] | None = None
    tool_call_parser: str | None = None
    model: str | None = None


class ThoughtsBody(msgspec.Struct, frozen=True, kw_only=True):
    """A text that may begin with a thought."""

    text: str
    reasoning_parser: str | None = None
    model: str | None = None


_MODEL = Field(
    "honoured",
    "Whose parser is meant when none is named; only needed where there are several backends.",
)
CALLS_FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        "text": Field("honoured", "What the model wrote, with its special tokens."),
        "tools": Field("honoured", "Functions; their schemas type the arguments of tag formats."),
        "tool_call_parser": Field(
            "honoured", "A name that `sglr parse --list` prints; unset: the model's own."
        ),
        "model": _MODEL,
    }
)
"""Every field of the paths that parse calls, by name."""

THOUGHTS_FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        "text": Field("honoured", "What the model wrote, with its special tokens."),
        "reasoning_parser": Field(
            "honoured", "A name that `sglr parse --list` prints; unset: the model's own."
        ),
        "model": _MODEL,
        "return_blocks": refused("the thoughts of an answer are one text", False),
    }
)
"""Every field of the paths that separate thoughts, by name."""

CALLS = BodyReader(CallsBody, CALLS_FIELDS)
THOUGHTS = BodyReader(ThoughtsBody, THOUGHTS_FIELDS)


def named_calls(name: str) -> tuple[ToolFormat, ReasoningFormat | None]:
    """Return the formats that the tool parser *name* reads.

    Raises:
        InvalidRequestError: There is none of this name.
    """
    return _named("tool_call_parser", name, answer_formats)


def named_thoughts(name: str) -> ReasoningFormat:
    """Return the format that the reasoning parser *name* reads.

    Raises:
        InvalidRequestError: There is none of this name.
    """
    return _named("reasoning_parser", name, reasoning_format)


def _named(param: str, name: str, find: Callable[[str], _Formats]) -> _Formats:
    try:
        return find(name)
    except UnknownFormatError as error:
        raise invalid(
            param, f"no parser is named {shown(name)}; `sglr parse --list` prints those there are"
        ) from error
