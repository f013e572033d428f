"""Anthropic's Messages: the same walk in other words."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import orjson

from sglr_dataplane.api.faults import anthropic_envelope, named_event
from sglr_dataplane.api.schema.anthropic import decode_messages
from sglr_dataplane.output.deltas import (
    CallArguments,
    CallStart,
    Finished,
    Reasoning,
    Text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sglr_dataplane.api.answer import News, WholeChoice
    from sglr_dataplane.api.dialect import Asked
    from sglr_dataplane.api.schema import ChatRequest
    from sglr_dataplane.errors import RouterError
    from sglr_dataplane.job import Usage
    from sglr_dataplane.output.deltas import Delta
    from sglr_dataplane.recipe import PromptIds, Recipe

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessagesDialect:
    """``POST /v1/messages``."""

    def decode(self, body: bytes) -> ChatRequest:
        """Return the request in *body*; raises InvalidRequestError."""
        return decode_messages(body)

    def reply(self, asked: Asked, recipe: Recipe, *, created: int) -> MessagesReply:  # noqa: ARG002  # it tells no time
        """Return a message to be told."""
        return MessagesReply(asked.model or recipe.model)


class MessagesReply:
    """One message: blocks of thinking, text and calls, in the order in which they came."""

    def __init__(self, model: str) -> None:
        """Have an id of its own."""
        self._shared: dict[str, Any] = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }
        self._index = -1
        self._open: dict[str, Any] | None = None

    def begin(self, _prompts: Sequence[PromptIds], usage: Usage) -> bytes:
        """Return ``message_start``, which says what the prompt has cost."""
        message: dict[str, Any] = self._shared | {
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(usage),
        }
        return named_event({"type": "message_start", "message": message})

    def news(self, news: News) -> bytes:
        """Return the events that tell *news*."""
        return b"".join(named_event(event) for delta in news.deltas for event in self._told(delta))

    def around(self, _kind: type[Text | Reasoning]) -> None:
        """Return None: events follow one another by more than their texts."""

    def end(self, _usages: Sequence[Usage]) -> bytes:
        """Return ``message_stop``."""
        return named_event({"type": "message_stop"})

    def failure(self, error: RouterError) -> bytes:
        """Return the error event."""
        return named_event(anthropic_envelope(error))

    def whole(self, _prompts: Sequence[PromptIds], choices: Sequence[WholeChoice]) -> object:
        """Return the message."""
        (choice,) = choices
        blocks: list[dict[str, Any]] = []
        ending: dict[str, Any] = {}
        deltas = (delta for news in choice.news for delta in news.deltas)
        for event in (event for delta in deltas for event in self._told(delta)):
            if event["type"] == "content_block_start":
                opened: dict[str, Any] = event["content_block"]
                blocks.append(opened.copy())
            elif event["type"] == "content_block_delta":
                _grow(blocks[-1], event["delta"])
            elif event["type"] == "message_delta":
                ending = event["delta"]
        content = [_complete(block) for block in blocks]
        return self._shared | {"content": content} | ending | {"usage": _usage(choice.usage)}

    def _told(self, delta: Delta) -> Iterator[dict[str, Any]]:
        match delta:
            case Text(text):
                yield from self._within({"type": "text", "text": ""})
                yield self._more({"type": "text_delta", "text": text})
            case Reasoning(text):
                # Nothing is signed here; a client that sends the block back is not asked to.
                yield from self._within({"type": "thinking", "thinking": "", "signature": ""})
                yield self._more({"type": "thinking_delta", "thinking": text})
            case CallStart(_, id, name):
                yield from self._close()
                yield from self._within({"type": "tool_use", "id": id, "name": name, "input": {}})
            case CallArguments(_, text):
                yield self._more({"type": "input_json_delta", "partial_json": text})
            case Finished():
                yield from self._close()
                yield _ending(delta)

    def _within(self, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Open *block* unless one of its kind is open."""
        if self._open is not None and self._open["type"] == block["type"]:
            return
        yield from self._close()
        self._index += 1
        self._open = block
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _more(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _close(self) -> Iterator[dict[str, Any]]:
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._index}


def _ending(finish: Finished) -> dict[str, Any]:
    reason, matched = _REASONS[finish.reason], None
    if finish.reason == "stop" and isinstance(finish.matched, str):
        reason, matched = "stop_sequence", finish.matched
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": matched},
        "usage": _usage(finish.usage),
    }


def _usage(usage: Usage) -> dict[str, int]:
    # Anthropic: tokens found in a cache are no input tokens; together they are the prompt.
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    key = {"text": "text", "thinking": "thinking", "tool_use": "partial_json"}[block["type"]]
    block[key] = block.get(key, "") + delta[key]


def _complete(block: dict[str, Any]) -> dict[str, Any]:
    """Return *block*, a call's input as the object it is; of one that was cut, nothing is left."""
    text = block.pop("partial_json", None)
    if text is None:
        return block
    try:
        return block | {"input": orjson.loads(text)}
    except orjson.JSONDecodeError:
        return block
