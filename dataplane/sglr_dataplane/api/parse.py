"""A text through the parsers, by itself: SGLang's two paths for it, and SMG's.

They read as a request's answer is read, with the same machine; no worker is asked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from sglr_dataplane.api.auth import caller_of
from sglr_dataplane.api.schema.parsing import (
    CALLS,
    THOUGHTS,
    CallsBody,
    ThoughtsBody,
    named_calls,
    named_thoughts,
)
from sglr_dataplane.api.schema.refusals import invalid
from sglr_dataplane.api.schema.tools import tools_of
from sglr_dataplane.output.calls import ToolSignature
from sglr_dataplane.output.collect import collect
from sglr_dataplane.output.replay import Reader, one
from sglr_dataplane.output.thinking import start_without_prompt

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.config import Limits
    from sglr_dataplane.fleet.caller import Caller
    from sglr_dataplane.output.collect import Message
    from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
    from sglr_dataplane.recipe import Recipes

Told = dict[str, Any]

_IN_THREAD_ABOVE: Final = 10_000
"""Characters: parsing them takes a millisecond."""


class ParseCalls:
    """``POST /parse_function_call`` and ``/parse/function_call``: the tool calls in a text."""

    def __init__(self, recipes: Recipes, limits: Limits, tell: Callable[[Message], Told]) -> None:
        """Answer what *tell* makes of a parsed message."""
        self._recipes = recipes
        self._limits = limits
        self._tell = tell

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request; raises RouterError."""
        sent = CALLS.read(await exchange.body(self._limits.max_body_bytes))
        tools, thoughts = self._formats(sent, caller_of(exchange))
        reader = Reader(
            tools=tools,
            reasoning=thoughts,
            signatures=tuple(ToolSignature(t.name, t.parameters) for t in tools_of(sent.tools, ())),
        )
        await exchange.answer(self._tell(await _read(reader, sent.text)))

    def _formats(
        self, sent: CallsBody, caller: Caller
    ) -> tuple[ToolFormat, ReasoningFormat | None]:
        if sent.tool_call_parser is not None:
            return named_calls(sent.tool_call_parser)
        found = self._recipes.find(sent.model, caller).tool_format
        if found is None:
            raise invalid("tool_call_parser", "the model has no parser of its own, so name one")
        return named_calls(found.name)


class ParseThoughts:
    """``POST /separate_reasoning`` and ``/parse/reasoning``: thought and answer of a text."""

    def __init__(self, recipes: Recipes, limits: Limits, tell: Callable[[Message], Told]) -> None:
        """Answer what *tell* makes of a parsed message."""
        self._recipes = recipes
        self._limits = limits
        self._tell = tell

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request; raises RouterError."""
        sent = THOUGHTS.read(await exchange.body(self._limits.max_body_bytes))
        thoughts = self._format(sent, caller_of(exchange))
        reader = Reader(reasoning=thoughts, starts=start_without_prompt(sent.text, thoughts))
        await exchange.answer(self._tell(await _read(reader, sent.text)))

    def _format(self, sent: ThoughtsBody, caller: Caller) -> ReasoningFormat:
        if sent.reasoning_parser is not None:
            return named_thoughts(sent.reasoning_parser)
        found = self._recipes.find(sent.model, caller).reasoning_format
        if found is None:
            raise invalid("reasoning_parser", "the model has no parser of its own, so name one")
        return found


async def _read(reader: Reader, text: str) -> Message:
    if len(text) <= _IN_THREAD_ABOVE:
        return _message(reader, text)
    return await asyncio.to_thread(_message, reader, text)


def _message(reader: Reader, text: str) -> Message:
    return collect(reader.read(one(text, frozenset())))


def calls_as_sglang(message: Message) -> Told:
    """Return *message* as SGLang's ``/parse_function_call`` answers."""
    calls = [
        {"tool_index": at, "name": call.name, "parameters": call.arguments}
        for at, call in enumerate(message.tool_calls)
    ]
    return {"normal_text": message.content or "", "calls": calls} | _beside(message)


def calls_as_smg(message: Message) -> Told:
    """Return *message* as SMG's ``/parse/function_call`` answers."""
    calls = [
        {"function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    told = {"remaining_text": message.content or "", "tool_calls": calls, "success": True}
    return told | _beside(message)


def _beside(message: Message) -> Told:
    """Return the thoughts of a family whose calls cannot be read without them: nothing is lost."""
    return {} if message.reasoning is None else {"reasoning_text": message.reasoning}


def thoughts_as_sglang(message: Message) -> Told:
    """Return *message* as SGLang's ``/separate_reasoning`` answers."""
    return {"reasoning_text": message.reasoning or "", "text": message.content or ""}


def thoughts_as_smg(message: Message) -> Told:
    """Return *message* as SMG's ``/parse/reasoning`` answers."""
    return {
        "normal_text": message.content or "",
        "reasoning_text": message.reasoning or "",
        "success": True,
    }
