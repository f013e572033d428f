"""Grammars that keep a model to its own way of writing calls: structural tags of the engine.

An engine (sglang with xgrammar) compiles them; here they are plain JSON. What a family writes is
declared as a :class:`CallTag`, the strings around a call's name and arguments, next to the markers
it is read by. In all strings ``{name}`` stands for the tool's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal

from sglr_dataplane.output.calls import ToolSignature

Format = dict[str, Any]
"""One format of a structural tag, as xgrammar 0.2 names and shapes it."""

Style = Literal[
    "json",
    "qwen_xml",
    "minimax_xml",
    "minimax_m3_xml",
    "deepseek_xml",
    "deepseek_v4_1_xml",
    "glm_xml",
    "cohere_xml",
    "kimi_k3_xml",
]
"""How arguments are written; the engine knows these by name."""

_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class CallTag:
    """What stands around the arguments of a family's calls."""

    begins: tuple[str, ...]
    """What may stand before the arguments; models of one family differ in that."""
    ends: str
    style: Style = "json"
    counted: str = ""
    """What follows the number that such a beginning ends with; ``""``: no number."""
    trigger: str = ""
    """The beginning of a call in free text; ``""`` when calls stand in a section, or are whole
    messages."""
    opens: str = ""
    """What opens the section of calls."""
    closes: str = ""
    """What closes it."""
    lead: str = ""
    """What stands before a section that has no text before it."""
    separator: str = ""
    """What stands between two calls of a section, or between two messages."""
    token: str = ""
    """The added token by which the tokenizers that go with this tag are known; ``""``: any."""
    text: tuple[str, ...] = ()
    """Of sections: what ends the text that must come first, and what follows the calls. Of
    messages: what a message to the user begins with, and what it may end with."""


def tag_for(tags: Sequence[CallTag], added_tokens: AbstractSet[str]) -> CallTag | None:
    """Return the one of a family's *tags* for a tokenizer; None when the family has none."""
    return next((tag for tag in tags if not tag.token or tag.token in added_tokens), None)


def calls_format(
    tag: CallTag, tools: Sequence[ToolSignature], *, required: bool, parallel: bool
) -> Format:
    """Return the grammar of answers that call *tools* as *tag* says.

    Args:
        tag: How the model writes calls.
        tools: Those that may be called, at least one; a strict one's arguments keep to its schema.
        required: Whether there must be a call and nothing else; else text is free around calls.
        parallel: Whether there may be more than one call.
    """
    calls = [_call(tag, begin, tool) for tool in tools for begin in tag.begins]
    if tag.trigger:
        return {
            "type": "triggered_tags",
            "triggers": list(dict.fromkeys(_named(tag.trigger, tool) for tool in tools)),
            "tags": calls,
            "at_least_one": required,
            "stop_after_first": not parallel,
        }
    if not tag.opens:
        return _messages(tag, calls, required=required, parallel=parallel)
    inner = {
        "type": "tags_with_separator",
        "tags": calls,
        "separator": tag.separator,
        "at_least_one": True,
        "stop_after_first": not parallel,
    }
    if tag.text:
        return _after_text(tag, inner, required=required)
    if required:
        return _sequence(_const(tag.lead + tag.opens), inner, _const(tag.closes))
    return {
        "type": "triggered_tags",
        "triggers": [tag.opens.rstrip("\n")],
        "tags": [_tag(tag.opens, inner, tag.closes)],
        "at_least_one": False,
        "stop_after_first": not parallel,
    }


@dataclass(frozen=True, slots=True)
class ThoughtTag:
    """What a thought before an answer is, for a grammar."""

    opens: str
    closes: str
    then: str = ""
    """What stands between a thought and the answer."""
    answer: tuple[str, ...] = ()
    """What an answer that is no call begins with, and what it may end with; empty when nothing
    frames it."""


ANY_TEXT: Format = {"type": "any_text"}


def with_thought(tag: ThoughtTag, answer: Format, *, begun: bool) -> Format:
    """Return the grammar of a thought and then *answer*.

    Args:
        tag: How a thought is marked.
        answer: The grammar of what follows.
        begun: Whether the prompt opened the thought; else the model may leave it out.
    """
    if begun:
        return _sequence(_tag("", ANY_TEXT, tag.closes), *_lead(tag), answer)
    thought = _sequence(_tag(tag.opens, ANY_TEXT, tag.closes), *_lead(tag))
    return _sequence({"type": "optional", "content": thought}, answer)


def framed_answer(tag: ThoughtTag, answer: Format) -> Format:
    """Return the grammar of *answer* in the frame that the family puts around answers."""
    return _framed(tag.answer, answer) if tag.answer else answer


def _lead(tag: ThoughtTag) -> tuple[Format, ...]:
    return (_const(tag.then),) if tag.then else ()


def _messages(tag: CallTag, calls: list[Format], *, required: bool, parallel: bool) -> Format:
    """Return the grammar of framed messages; without need of a call one may be to the user."""
    said = [] if required else [_framed(tag.text, ANY_TEXT)]
    return {
        "type": "tags_with_separator",
        "tags": [*calls, *said],
        "separator": tag.separator,
        "at_least_one": True,
        "stop_after_first": required and not parallel,
    }


def _after_text(tag: CallTag, calls: Format, *, required: bool) -> Format:
    """Return the grammar of text, a section of calls, and what ends the whole."""
    end, after = tag.text
    said = _tag("", ANY_TEXT, end)
    section = _sequence(_const(tag.opens), calls, _const(tag.closes))
    called = section if required else {"type": "optional", "content": section}
    return _sequence(said, called, _const(after))


def _call(tag: CallTag, begin: str, tool: ToolSignature) -> Format:
    schema = (tool.parameters or _ANY_OBJECT) if tool.strict else _ANY_OBJECT
    arguments: Format = {"type": "json_schema", "json_schema": dict(schema), "style": tag.style}
    if tag.counted:
        number = {"type": "regex", "pattern": r"\d+"}
        arguments = _sequence(number, _const(_named(tag.counted, tool)), arguments)
    return _tag(_named(begin, tool), arguments, _named(tag.ends, tool))


def _named(text: str, tool: ToolSignature) -> str:
    return text.replace("{name}", tool.name)


def _tag(begin: str, content: Format, end: str) -> Format:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _framed(frame: tuple[str, ...], content: Format) -> Format:
    begin, *ends = frame
    return {"type": "tag", "begin": begin, "content": content, "end": ends}


def _const(text: str) -> Format:
    return {"type": "const_string", "value": text}


def _sequence(*elements: Format) -> Format:
    return {"type": "sequence", "elements": list(elements)}
