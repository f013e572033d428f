"""The grammar a worker holds an answer to: of calls, of the answer itself, and of a thought before.

What a client asks for is known from its request alone; how the model writes it is the recipe's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
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
    from sglr_dataplane.prompt.conversation import Tool
    from sglr_dataplane.recipe import PromptIds, Recipe

_TAGGING: Final = ("", "xgrammar")
"""Grammar backends that compile structural tags; sglang's default is one."""
_ANSWER_FIRST: Final = "the grammar of the answer goes before that of its calls"
_OTHER_BACKEND: Final = "no grammar of calls is known to the workers' grammar backend"
_NO_GRAMMAR: Final = "the model's format of calls has no grammar"


@dataclass(frozen=True, slots=True)
class Held:
    """What an answer is held to."""

    constraint: Constraint | None
    """The grammar; None when the model may write freely."""
    waits: bool = False
    """Whether the grammar must wait for a thought's end."""
    warnings: tuple[str, ...] = ()
    """What of the request has no effect, for the answer's header."""


_FREE: Final = Held(None)


def constraint_of(
    asked: Asked, recipe: Recipe, prompt: PromptIds, facts: EngineFacts | None
) -> Held:
    """Return the grammar of the answer to *prompt*, and what it cannot hold the answer to.

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
        return Held(asked.constraint)
    if asked.constraint is None and not asked.conversation.tools:
        return _FREE
    wishes = _wishes(asked)
    calls, missing = _calls(asked, recipe, facts) if wishes else (None, "")
    start = prompt.start(recipe.reasoning_format)
    if calls is None:
        # A call that must come keeps to the array of calls, which holds to all the rest too.
        unmet = wishes if missing and asked.conversation.choice.mode == "auto" else ()
        warnings = tuple(f"{wish} has no effect: {missing}" for wish in unmet)
        return Held(*_answer(asked, recipe, start, facts), warnings)
    thought = _thought(recipe.reasoning_format)
    if start == "inside" and (thought is None or _lets_wait(facts)):
        return Held(_tagged(calls), waits=True)
    if thought is not None and start != "off":
        calls = with_thought(thought, calls, begun=start == "inside")
    return Held(_tagged(calls))


def _answer(
    asked: ChatRequest, recipe: Recipe, start: Start, facts: EngineFacts | None
) -> tuple[Constraint | None, bool]:
    """Return the request's own grammar, and whether it must wait for a thought's end."""
    if asked.constraint is None:
        return None, False
    thought = _thought(recipe.reasoning_format)
    is_inside = start == "inside"
    if not _takes_tags(facts) or (is_inside and (thought is None or _lets_wait(facts))):
        return asked.constraint, is_inside
    framed = _framed(asked, thought, start)
    if framed is None or thought is None:
        return asked.constraint, is_inside
    if start != "off":
        framed = with_thought(thought, framed, begun=is_inside)
    return _tagged(framed), False


def _offered(asked: ChatRequest) -> list[Tool]:
    choice, tools = asked.conversation.choice, asked.conversation.tools
    return [tool for tool in tools if choice.allowed is None or tool.name in choice.allowed]


def _wishes(asked: ChatRequest) -> tuple[str, ...]:
    """Return the fields that ask for a grammar of calls; none when the model may call freely."""
    choice, offered = asked.conversation.choice, _offered(asked)
    if choice.mode == "none" or not offered:
        return ()
    held = {
        "tool_choice": choice.mode == "required" or choice.allowed is not None,
        "parallel_tool_calls": not asked.parallel_tool_calls,
        "strict": any(tool.strict for tool in offered),
    }
    return tuple(wish for wish, is_held in held.items() if is_held)


def _calls(
    asked: ChatRequest, recipe: Recipe, facts: EngineFacts | None
) -> tuple[Format | None, str]:
    """Return the grammar of calls in the model's own format, or None and why there is none."""
    choice = asked.conversation.choice
    if choice.mode == "auto" and asked.constraint is not None:
        return None, _ANSWER_FIRST  # as in sglang
    if not _takes_tags(facts):
        return None, _OTHER_BACKEND
    tags = recipe.tool_format.tags if recipe.tool_format is not None else ()
    tag = tag_for(tags, recipe.added_tokens)
    if tag is None:
        return None, _NO_GRAMMAR
    calls = calls_format(
        tag,
        [ToolSignature(t.name, t.parameters, strict=t.strict) for t in _offered(asked)],
        required=choice.mode == "required",
        parallel=asked.parallel_tool_calls,
    )
    return calls, ""


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


def _takes_tags(facts: EngineFacts | None) -> bool:
    """Return whether a worker compiles structural tags, as far as it says."""
    return facts is None or facts.grammar_backend in _TAGGING


def _lets_wait(facts: EngineFacts | None) -> bool:
    """Return whether a worker lets a grammar wait for a thought's end, as far as it says."""
    return facts is None or facts.reasoning_parser != ""


def _tagged(format_: Format) -> Constraint:
    return Constraint("structural_tag", compact({"type": "structural_tag", "format": format_}))
