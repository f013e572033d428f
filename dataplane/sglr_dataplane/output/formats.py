"""The formats by name."""

from __future__ import annotations

from functools import lru_cache

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
from sglr_dataplane.output.machine import Grammar

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
    channeled,
    gemma,
    channeled,
)
_TOOLS: dict[str, ToolFormat] = {
    name: tool
    for family in _FAMILIES
    for tool in family.TOOLS
    for name in (tool.name, *tool.aliases)
}
_REASONING: dict[str, ReasoningFormat] = {
    name: reasoning
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
    if name not in _TOOLS:
        raise UnknownFormatError(f"Tool parser {name!r} is unknown; known are {tool_formats()}.")
    return _TOOLS[name]


def reasoning_format(name: str) -> ReasoningFormat:
    """Return the reasoning format that SGLang, vLLM or SMG calls *name*.

    Raises:
        UnknownFormatError: None does.
    """
    if name not in _REASONING:
        known = reasoning_formats()
        raise UnknownFormatError(f"Reasoning parser {name!r} is unknown; known are {known}.")
    return _REASONING[name]


def tool_formats() -> list[str]:
    """Return all names ``tool_format`` knows, sorted."""
    return sorted(_TOOLS)


def reasoning_formats() -> list[str]:
    """Return all names ``reasoning_format`` knows, sorted."""
    return sorted(_REASONING)


@lru_cache(maxsize=256)
def grammar(tools: ToolFormat | None, reasoning: ReasoningFormat | None) -> Grammar:
    """Return what the machine reads an answer by."""
    framed = [f.channels for f in (tools, reasoning) if f is not None and f.channels is not None]
    if framed:
        return Grammar(
            channels=framed[0],
            has_tools=tools is not None,
            thought_closes=reasoning.closes if reasoning else (),
        )
    return Grammar(
        openers=tools.openers if tools else (),
        wrappers=(*(tools.wrappers if tools else ()), *(reasoning.wrappers if reasoning else ())),
        drops=(*(tools.drops if tools else ()), *(reasoning.drops if reasoning else ())),
        thought_opens=reasoning.opens if reasoning else (),
        thought_closes=reasoning.closes if reasoning else (),
        calls_in_thought=tools.calls_in_thought if tools else False,
    )


def answer_formats(name: str) -> tuple[ToolFormat, ReasoningFormat | None]:
    """Return the tool format *name*, and the reasoning format it cannot be read without.

    Raises:
        UnknownFormatError: No tool format is called so.
    """
    tools = tool_format(name)
    reasoning = _REASONING.get(name)
    return tools, reasoning if tools.channels is not None else None
