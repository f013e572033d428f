"""The formats by name."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from sglr_dataplane.output.bodies.forced import BareArguments
from sglr_dataplane.output.families import (
    arrays,
    channeled,
    deepseek,
    gemma,
    glm,
    kimi,
    llama,
    mistral,
    qwen,
    qwen_coder,
    tags,
)
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.families.llama import bare_json
from sglr_dataplane.output.grammar import Grammar, Opener

_FAMILIES = (
    qwen,
    qwen_coder,
    llama,
    mistral,
    deepseek,
    kimi,
    glm,
    tags,
    arrays,
    gemma,
    channeled,
)


def _key(name: str) -> str:
    """Return *name* as it is looked up: the projects differ in hyphens and underscores."""
    return name.lower().replace("_", "-")


_TOOLS: dict[str, ToolFormat] = {
    _key(name): tool
    for family in _FAMILIES
    for tool in family.TOOLS
    for name in (tool.name, *tool.aliases)
}
_REASONING: dict[str, ReasoningFormat] = {
    _key(name): reasoning
    for family in _FAMILIES
    for reasoning in family.REASONING
    for name in (reasoning.name, *reasoning.aliases)
}


class UnknownFormatError(ValueError):
    """No format has the name that the configuration gives."""


def tool_format(name: str) -> ToolFormat:
    """Return the tool format that SGLang, vLLM or SMG calls *name*.

    Raises:
        UnknownFormatError: None does.
    """
    tools = _TOOLS.get(_key(name))
    if tools is None:
        raise UnknownFormatError(f"Tool parser {name!r} is unknown; known are {tool_formats()}.")
    return tools


def reasoning_format(name: str) -> ReasoningFormat:
    """Return the reasoning format that SGLang, vLLM or SMG calls *name*.

    Raises:
        UnknownFormatError: None does.
    """
    reasoning = _REASONING.get(_key(name))
    if reasoning is None:
        known = reasoning_formats()
        raise UnknownFormatError(f"Reasoning parser {name!r} is unknown; known are {known}.")
    return reasoning


def tool_formats() -> list[str]:
    """Return all names ``tool_format`` knows, sorted; underscores may be hyphens."""
    return sorted({name for tool in _TOOLS.values() for name in (tool.name, *tool.aliases)})


def reasoning_formats() -> list[str]:
    """Return all names ``reasoning_format`` knows, sorted."""
    return sorted({name for found in _REASONING.values() for name in (found.name, *found.aliases)})


@lru_cache(maxsize=256)
def grammar(tools: ToolFormat | None, reasoning: ReasoningFormat | None) -> Grammar:
    """Return what the machine reads an answer by."""
    framed = [f.channels for f in (tools, reasoning) if f is not None and f.channels is not None]
    if framed:
        return Grammar(
            channels=framed[0],
            has_tools=tools is not None,
            forced=tools is not None and tools.forced,
            thought_closes=reasoning.closes if reasoning else (),
        )
    return Grammar(
        openers=tools.openers if tools else (),
        wrappers=(*(tools.wrappers if tools else ()), *(reasoning.wrappers if reasoning else ())),
        drops=(*(tools.drops if tools else ()), *(reasoning.drops if reasoning else ())),
        restored=reasoning.restored if reasoning else "",
        thought_opens=reasoning.opens if reasoning else (),
        thought_closes=reasoning.closes if reasoning else (),
        calls_in_thought=tools.calls_in_thought if tools else False,
    )


@lru_cache(maxsize=256)
def forced(tools: ToolFormat | None, named: str | None = None) -> ToolFormat:
    """Return the format of an answer that a grammar forces to call.

    The model may write the JSON array the grammar asks for, or its own markup; with one tool
    *named*, also nothing but that tool's arguments.
    """
    native = tools if tools is not None else _TOOLS["passthrough"]
    kept = tuple(opener for opener in native.openers if opener.marker not in ("{", "["))
    array, single = bare_json()
    if named is not None:
        single = Opener("{", BareArguments(named), where="start")
    return replace(native, openers=(*kept, array, single), forced=True)


def answer_formats(name: str) -> tuple[ToolFormat, ReasoningFormat | None]:
    """Return the tool format *name*, and the reasoning format it cannot be read without.

    Raises:
        UnknownFormatError: No tool format is called so.
    """
    tools = tool_format(name)
    reasoning = _REASONING.get(_key(name))
    return tools, reasoning if tools.channels is not None else None


def has_reasoning_format(name: str) -> bool:
    """Return whether some reasoning format is called *name*."""
    return _key(name) in _REASONING


def has_tool_format(name: str) -> bool:
    """Return whether some tool format is called *name*."""
    return _key(name) in _TOOLS
