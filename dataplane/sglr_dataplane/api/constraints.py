"""The grammar a worker holds an answer to: of calls, of the answer itself, and of a thought before.

What a client asks for is known from its request alone; how the model writes it is the recipe's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from sglr_dataplane.api.schema import ChatRequest
from sglr_dataplane.job import Constraint
from sglr_dataplane.output.call_tags import (
    ThoughtTag,
    calls_format,
    framed_answer,
    tag_for,
    with_thought,
)
from sglr_dataplane.output.calls import ToolSignature
from sglr_dataplane.prompt.constraint import compact
from sglr_dataplane.prompt.json_values import is_object

if TYPE_CHECKING:
    from sglr_dataplane.api.dialect import Asked
    from sglr_dataplane.engine import EngineFacts
    from sglr_dataplane.output.call_tags import Format
    from sglr_dataplane.output.families.declare import ReasoningFormat
    from sglr_dataplane.output.grammar import Start
    from sglr_dataplane.recipe import PromptIds, Recipe

_TAGGING: Final = ("", "xgrammar")
"""Grammar backends that compile structural tags; sglang's default is one."""


def constraint_of(
    asked: Asked, recipe: Recipe, prompt: PromptIds, facts: EngineFacts | None
) -> tuple[Constraint | None, bool]:
    """Return the grammar of the answer to *prompt*, and whether it must wait for a thought's end.

    Calls that must come, or must keep to a schema, are held to the model's own format where it has
    a grammar, else to the array of calls that the request itself came to. A thought before them is
    left to the worker where it knows how, else it is part of the grammar: one from the first token
    on would make the model answer without thinking.

    Args:
        asked: The request.
        recipe: How its model writes.
        prompt: What is answered.
        facts: What a worker says of itself; None when nothing is known.
    """
    if not isinstance(asked, ChatRequest):
        return asked.constraint, False
    if facts is not None and facts.grammar_backend not in _TAGGING:
        waits = prompt.start(recipe.reasoning_format) == "inside"
        return asked.constraint, waits and asked.constraint is not None
    calls = _calls(asked, recipe)
    if calls is None and asked.constraint is None:
        return None, False
    start = prompt.start(recipe.reasoning_format)
    thought = _thought(recipe.reasoning_format)
    if start == "inside" and (thought is None or _lets_wait(facts)):
        return (asked.constraint if calls is None else _tagged(calls)), True
    if calls is None:
        calls = _framed(asked, thought, start)
        if calls is None:
            return asked.constraint, start == "inside"
    if thought is not None and start != "off":
        calls = with_thought(thought, calls, begun=start == "inside")
    return _tagged(calls), False


def _calls(asked: ChatRequest, recipe: Recipe) -> Format | None:
    """Return the grammar of calls in the model's own format; None when none is needed, or known."""
    choice, tools = asked.conversation.choice, asked.conversation.tools
    offered = [tool for tool in tools if choice.allowed is None or tool.name in choice.allowed]
    is_held = (
        choice.mode == "required"
        or choice.allowed is not None
        or not asked.parallel_tool_calls
        or any(tool.strict for tool in offered)
    )
    if choice.mode == "none" or not offered or not is_held or recipe.tool_format is None:
        return None
    if choice.mode == "auto" and asked.constraint is not None:
        return None  # sglang: what the client asks of the answer goes before what it asks of calls
    tag = tag_for(recipe.tool_format.tags, recipe.added_tokens)
    if tag is None:
        return None
    signatures = [ToolSignature(t.name, t.parameters, strict=t.strict) for t in offered]
    return calls_format(
        tag,
        signatures,
        required=choice.mode == "required",
        parallel=asked.parallel_tool_calls,
    )


def _framed(asked: ChatRequest, thought: ThoughtTag | None, start: Start) -> Format | None:
    """Return the client's own grammar as a format; None when it can stand as it is, or must."""
    if thought is None or asked.constraint is None:
        return None
    if start != "inside" and not thought.answer:
        return None
    answer = _format(asked.constraint)
    return None if answer is None else framed_answer(thought, answer)


def _format(constraint: Constraint) -> Format | None:
    """Return *constraint* as a format of a structural tag; None when its text is no JSON."""
    if constraint.kind == "regex":
        return {"type": "regex", "pattern": constraint.source}
    if constraint.kind == "ebnf_grammar":
        return {"type": "grammar", "grammar": constraint.source}
    try:
        said: Any = json.loads(constraint.source)
    except ValueError:
        return None
    if constraint.kind == "json_schema":
        return {"type": "json_schema", "json_schema": said}
    return said.get("format") if is_object(said) and is_object(said.get("format")) else None


def _thought(reasoning: ReasoningFormat | None) -> ThoughtTag | None:
    if reasoning is None or not reasoning.closes:
        return None
    return reasoning.tag or ThoughtTag(reasoning.opens[0], reasoning.closes[0])


def _lets_wait(facts: EngineFacts | None) -> bool:
    """Return whether a worker lets a grammar wait for a thought's end, as far as it says."""
    return facts is None or facts.reasoning_parser != ""


def _tagged(format_: Format) -> Constraint:
    return Constraint("structural_tag", compact({"type": "structural_tag", "format": format_}))
