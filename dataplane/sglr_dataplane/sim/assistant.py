"""A small assistant that needs no model: the same prompt always gets the same answer. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from sglr_dataplane.sim.constrained import constrained
from sglr_dataplane.sim.conversation import Conversation, Tool, read_prompt
from sglr_dataplane.sim.instance import fill

if TYPE_CHECKING:
    from sglr_proto.sglang import scheduler_pb2 as pb

_SHORTEST_TELLING_WORD = 4
_LONGEST_ECHO = 2000


def answer(prompt: str, request: pb.GenerateRequest, *, chooses_thinking: bool) -> str:
    """Return what the assistant says to *prompt*, markup included, EOS not.

    Args:
        prompt: The decoded prompt; ChatML, or any text.
        request: A grammar in it is obeyed from the first token, or after the thought if it says so.
        chooses_thinking: Whether the model opens a thought itself unless the prompt closed one.
    """
    said = read_prompt(prompt)
    obedient = constrained(request.sampling_params, said.user)
    if obedient is not None and not request.require_reasoning:
        return obedient
    thought = _thought(said, chooses_thinking=chooses_thinking)
    if obedient is not None:
        return thought + obedient
    tool = None if said.results else _asked(said)
    return thought + (_words(said) if tool is None else _call(tool, said.user))


def _thought(said: Conversation, *, chooses_thinking: bool) -> str:
    """Return the thought with its closing tag, and its opening one where the prompt has none."""
    opened = said.tail.rstrip().endswith("<think>")
    if not opened and (not chooses_thinking or "</think>" in said.tail):
        return ""
    opening = "" if opened else "<think>\n"
    return f"{opening}The user says: {_short(said.user)}\nI answer in one go.\n</think>\n\n"


def _words(said: Conversation) -> str:
    if said.results:
        return f"The tool says: {' and '.join(_short(result) for result in said.results)}"
    if not said.user:
        return "Hello! What would you like to talk about?"
    echo = said.user[:_LONGEST_ECHO]
    return f"You said: {echo}\nThat is {len(said.user.split())} words. What else?"


def _short(text: str) -> str:
    """Return *text* on one line, cut at 200 characters."""
    return " ".join(text.split())[:200]


def _asked(said: Conversation) -> Tool | None:
    """Return the tool whose name or description shares the most words with the message."""
    words = _telling_words(said.user)
    scores = [
        (2 * len(words & _telling_words(tool.name)) + len(words & _telling_words(tool.description)))
        for tool in said.tools
    ]
    best = max(scores, default=0)
    return said.tools[scores.index(best)] if best else None


def _telling_words(text: str) -> set[str]:
    """Return the words of *text*, ``get_weather`` and ``getWeather`` as two, short ones left out."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    found = re.findall(r"[^\W_]+", apart.lower())
    return {word for word in found if len(word) >= _SHORTEST_TELLING_WORD}


def _call(tool: Tool, message: str) -> str:
    """Return a call of *tool* in the hermes and qwen markup."""
    arguments = fill({"type": "object", **tool.parameters}, message)
    call = {"name": tool.name, "arguments": arguments}
    return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"
