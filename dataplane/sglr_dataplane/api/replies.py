"""OpenAI's objects as plain values, ready for JSON."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from sglr_dataplane.job import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglr_dataplane.api.answer import WholeChoice
    from sglr_dataplane.job import TokenLogprob
    from sglr_dataplane.output.collect import Message
    from sglr_dataplane.output.deltas import Finished


def total_usage(usages: Sequence[Usage], n: int = 1) -> Usage:
    """Return what *usages* come to: each prompt once, the completions of every choice.

    Args:
        usages: By choice, those of one prompt next to each other.
        n: Choices of one prompt.
    """
    if len(usages) == 1:
        return usages[0]
    prompts = [usages[at : at + n] for at in range(0, len(usages), n)]
    return Usage(
        prompt_tokens=sum(max(each.prompt_tokens for each in of) for of in prompts),
        completion_tokens=sum(each.completion_tokens for each in usages),
        cached_tokens=sum(max(each.cached_tokens for each in of) for of in prompts),
        reasoning_tokens=sum(each.reasoning_tokens for each in usages),
    )


def usage_object(usage: Usage) -> dict[str, Any]:
    """Return *usage* in OpenAI's shape."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


_USAGE: Final = attrgetter("usage")


def chat_completion(
    *,
    id: str,
    created: int,
    model: str,
    choices: Sequence[WholeChoice],
    rows: Callable[[Sequence[TokenLogprob]], dict[str, Any]] | None,
) -> dict[str, Any]:
    """Return the chat completion with *choices*, in order; *rows* tells their log probabilities."""
    told: list[dict[str, Any]] = []
    for index, choice in enumerate(choices):
        logprobs = None if rows is None else rows(choice.logprobs)
        told.append(_choice(index, choice.message, logprobs))
    return {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": told,
        "usage": usage_object(total_usage([*map(_USAGE, choices)], len(choices))),
    }


def _choice(index: int, message: Message, logprobs: dict[str, Any] | None) -> dict[str, Any]:
    finish = finish_of(message)
    return {
        "index": index,
        "message": _assistant(message),
        "finish_reason": finish.reason,
        "matched_stop": finish.matched,
        "logprobs": logprobs,
    }


def finish_of(message: Message) -> Finished:
    """Return how *message*, which is complete, ended."""
    assert message.finish is not None  # noqa: S101  # an answer ends with every choice's finish
    return message.finish


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
