"""OpenAI's objects as plain values, ready for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sglr_dataplane.job import Usage
    from sglr_dataplane.output.collect import Message


def usage_object(usages: Iterable[Usage]) -> dict[str, Any]:
    """Return the usage of a request: its prompt once, the completions of every choice."""
    counted = tuple(usages)
    prompt = max((u.prompt_tokens for u in counted), default=0)
    completion = sum(u.completion_tokens for u in counted)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": max((u.cached_tokens for u in counted), default=0)
        },
        "completion_tokens_details": {
            "reasoning_tokens": sum(u.reasoning_tokens for u in counted),
        },
    }


def chat_completion(
    *, id: str, created: int, model: str, messages: Sequence[Message], usages: Iterable[Usage]
) -> dict[str, Any]:
    """Return the chat completion with one choice per message, in order; *usages* are theirs."""
    return {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [_choice(index, message) for index, message in enumerate(messages)],
        "usage": usage_object(usages),
    }


def _choice(index: int, message: Message) -> dict[str, Any]:
    assert message.finish is not None  # noqa: S101  # an answer ends with every choice's finish
    return {
        "index": index,
        "message": _assistant(message),
        "finish_reason": message.finish.reason,
        "matched_stop": message.finish.matched,
        "logprobs": None,
    }


def _assistant(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": "assistant", "content": message.content, "refusal": None}
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    return fields


def model_card(*, id: str, created: int, owned_by: str, **extras: Any) -> dict[str, Any]:
    """Return one entry of ``/v1/models``; *extras* follow the four fields that clients require."""
    return {"id": id, "object": "model", "created": created, "owned_by": owned_by, **extras}
