"""A ChatML prompt read back into its turns and tools. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from sglr_dataplane.sim.shapes import object_of

_TURN = re.compile(r"<\|im_start\|>(\w+)\n?(.*?)(?=<\|im_end\|>|<\|im_start\|>|\Z)", re.DOTALL)
_TOOLS = re.compile(r"<tools>\n(.*?)\n</tools>", re.DOTALL)
_RESULT = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the prompt offers."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a prompt says, as far as an answer depends on it."""

    user: str
    """The last user message that is no tool result; ``""`` when there is none."""
    tools: tuple[Tool, ...]
    results: tuple[str, ...]
    """Tool results after that message, in order."""
    tail: str
    """The beginning of the answer that the prompt has already written."""


def read_prompt(prompt: str) -> Conversation:
    """Return the conversation in *prompt*; text that is no ChatML is one user message."""
    turns = [(role, body) for role, body in _TURN.findall(prompt)]
    if not turns:
        return Conversation(user=prompt, tools=(), results=(), tail="")
    tail = turns.pop()[1] if turns[-1][0] == "assistant" else ""
    results: list[str] = []
    user = ""
    for role, body in turns:
        found = _RESULT.findall(body) if role in {"user", "tool"} else []
        results += found
        if role == "user" and not found:
            user, results = body.strip(), []
    return Conversation(user, _tools_of(turns), tuple(results), tail)


def _tools_of(turns: list[tuple[str, str]]) -> tuple[Tool, ...]:
    """Return the tools that system turns offer; a line that is no tool is left out."""
    lines = [
        line
        for role, body in turns
        if role == "system"
        for block in _TOOLS.findall(body)
        for line in block.splitlines()
    ]
    return tuple(tool for tool in map(_tool_of, lines) if tool is not None)


def _tool_of(line: str) -> Tool | None:
    """Return the tool in a JSON *line*, in OpenAI's wrapping or bare; None when it is none."""
    try:
        loaded = json.loads(line)
    except ValueError:
        return None
    wrapper = object_of(loaded)
    function = object_of(wrapper.get("function", wrapper))
    name = function.get("name")
    if not isinstance(name, str):
        return None
    return Tool(
        name=name,
        description=str(function.get("description") or ""),
        parameters=object_of(function.get("parameters")),
    )
