"""gpt-oss, Inkling and Muse: messages with headers."""

from __future__ import annotations

import re
from dataclasses import replace

from sglr_dataplane.output.bodies.framed import (
    JsonMessage,
    MarkedMessage,
    TaggedMessage,
    TextMessage,
)
from sglr_dataplane.output.bodies.json_calls import JsonCalls
from sglr_dataplane.output.bodies.tagged import Tag, TaggedCalls
from sglr_dataplane.output.call_tags import CallTag, ThoughtTag
from sglr_dataplane.output.channels import Channels, Route
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat

_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_HARMONY_RESTARTS = (
    "<|start|>assistant",
    *(f"<|channel|>{channel}" for channel in ("analysis", "commentary", "final")),
)
_HARMONY_ENDS = ("<|end|>", "<|call|>", "<|return|>", *_HARMONY_RESTARTS)
_INKLING_TYPES = (
    "<|content_thinking|>",
    "<|content_text|>",
    "<|content_invoke_tool_json|>",
    "<|content_invoke_tool_text|>",
)
_INKLING_ENDS = ("<|end_message|>", "<|content_model_end_sampling|>", "<|message_model|>")
_ATEM = MarkedMessage(
    "<atem:function_calls>",
    TaggedCalls(
        Tag("<atem:invoke", "</atem:invoke>"),
        Tag("<atem:parameter", "</atem:parameter>"),
        closers=("</atem:function_calls>",),
    ),
)
_BEAM_PARAMETER = Tag("<rfl:parameter", "</rfl:parameter>")
_FUNCTIONS = "functions."
# Tools that are built into the model: a chat endpoint does not run them, they are its thinking.
_BUILTIN = re.compile(r"(?:python|assistant|browser|container)(?:\..*)?")


def harmony_route(header: str, _end: str) -> Route:
    """Return where harmony sends a body: the recipient decides before the channel."""
    recipient = _RECIPIENT.search(header)
    if recipient is not None:
        name = recipient[1]
        if not name.startswith(_FUNCTIONS) and _BUILTIN.fullmatch(name):
            return Route("reasoning")
        return Route("call", JsonMessage(name.removeprefix(_FUNCTIONS), _HARMONY_ENDS))
    channel = _CHANNEL.search(header)
    is_thought = channel is not None and channel[1] == "analysis"
    return Route("reasoning") if is_thought else Route("content")


def beam_route(header: str, end: str) -> Route:
    """Return where Beam sends a body: as harmony does, but calls are elements."""
    recipient = _RECIPIENT.search(header)
    if recipient is None:
        return harmony_route(header, end)
    return Route("call", TaggedMessage(recipient[1], _BEAM_PARAMETER, _HARMONY_ENDS))


def inkling_route(header: str, end: str) -> Route:
    """Return where an Inkling message goes: the marker after the header says its type."""
    if end == "<|content_thinking|>":
        return Route("reasoning")
    if end == "<|content_invoke_tool_json|>":
        return Route("call", JsonCalls(separators=()))
    if end == "<|content_invoke_tool_text|>":
        name = header.removeprefix("<|message_model|>").strip()
        return Route("call", TextMessage(name, _INKLING_ENDS))
    return Route("content")


def muse_route(header: str, _end: str) -> Route:
    """Return where Muse sends a body: to itself, to the user, or to a tool."""
    recipient = _RECIPIENT.search(header)
    if recipient is None or recipient[1] == "user":
        return Route("content")
    return Route("reasoning") if recipient[1] == "self" else Route("call", _ATEM)


_HARMONY = Channels(
    starts=("<|start|>", "<|channel|>"),
    header_ends=("<|message|>",),
    ends=("<|end|>", "<|call|>"),
    stops=("<|return|>",),
    restarts=_HARMONY_RESTARTS,
    route=harmony_route,
    header=re.compile(
        r"(?:<\|start\|>)?\s*\w*\s*(?:to=\S*)?\s*"
        r"(?:<\|channel\|>\s*\w*)?\s*(?:to=[^\s<]*)?\s*(?:<\|constrain\|>)?\s*\w*"
    ),
    inner=("<|constrain|>",),
    first=(" to=", "to="),
)
_BEAM = replace(
    _HARMONY,
    route=beam_route,
    inner=(*_HARMONY.inner, _BEAM_PARAMETER.opens, _BEAM_PARAMETER.closes),
)
_INKLING = Channels(
    starts=("<|message_model|>",),
    header_ends=_INKLING_TYPES,
    ends=("<|end_message|>", "<|content_model_end_sampling|>"),
    stops=(),
    restarts=("<|message_model|>", *_INKLING_TYPES),
    route=inkling_route,
    header=re.compile(r"<\|message_model\|>\s*[\w.:/-]*"),
)
_MUSE = Channels(
    starts=("<|start|>",),
    header_ends=("<|message|>",),
    ends=("<|eom|>", "<|eot|>"),
    stops=(),
    restarts=("<|start|>assistant",),
    route=muse_route,
    header=re.compile(r"(?:<\|start\|>)?\s*\w*\s*(?:to=\S*)?\s*"),
    block=_ATEM,
    first=(" to=", "to="),
)

_HARMONY_TAG = CallTag(
    (
        "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.{name}<|constrain|>json<|message|>",
        " to=functions.{name}<|channel|>commentary <|constrain|>json<|message|>",
        " to=functions.{name}<|channel|>commentary json<|message|>",
    ),
    "<|call|>",
    separator="<|start|>assistant",
    text=("<|channel|>final<|message|>", "<|end|>", "<|return|>"),
)
_HARMONY_THOUGHT = ThoughtTag(
    "<|channel|>analysis<|message|>",
    "<|end|>",
    then="<|start|>assistant",
    answer=("<|channel|>final<|message|>", "<|end|>", "<|return|>"),
)
_INKLING_TAG = CallTag(
    ('<|message_model|>{name}<|content_invoke_tool_json|>{"name": "{name}", "args": ',),
    "}<|end_message|>",
    trigger="<|message_model|>{name}<|content_invoke_tool_json|>",
)

TOOLS = (
    ToolFormat("muse", (), aliases=("muse_glimmer",), channels=_MUSE),
    ToolFormat(
        "gpt-oss", (), aliases=("openai", "harmony"), channels=_HARMONY, tags=(_HARMONY_TAG,)
    ),
    ToolFormat("beam", (), channels=_BEAM),
    ToolFormat("inkling", (), channels=_INKLING, tags=(_INKLING_TAG,)),
)
REASONING = (
    ReasoningFormat(
        "muse",
        ("to=self<|message|>",),
        ("to=user<|message|>",),
        aliases=("muse_glimmer",),
        channels=_MUSE,
    ),
    ReasoningFormat(
        "gpt-oss",
        ("<|channel|>analysis<|message|>",),
        ("<|channel|>final<|message|>",),
        aliases=("openai", "openai_gptoss", "harmony"),
        channels=_HARMONY,
        tag=_HARMONY_THOUGHT,
    ),
    ReasoningFormat(
        "beam",
        ("<|channel|>analysis<|message|>",),
        ("<|channel|>final<|message|>",),
        channels=_BEAM,
        tag=_HARMONY_THOUGHT,
    ),
    ReasoningFormat("inkling", ("<|content_thinking|>",), ("<|content_text|>",), channels=_INKLING),
)
