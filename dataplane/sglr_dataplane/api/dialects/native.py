"""SGLang's own ``/generate``: texts and ids in, texts and ids out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from sglr_dataplane.api.logprobs import finite, token_text
from sglr_dataplane.api.replies import finish_of
from sglr_dataplane.api.schema.native import NativeRequest, decode_native
from sglr_dataplane.api.sse import DONE, failure_frame
from sglr_dataplane.job import new_job_id
from sglr_dataplane.output.deltas import Finished, Reasoning, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglr_dataplane.api.answer import News, WholeChoice
    from sglr_dataplane.api.dialect import Asked
    from sglr_dataplane.errors import RouterError
    from sglr_dataplane.job import TokenLogprob, Usage
    from sglr_dataplane.recipe import PromptIds, Recipe


class NativeDialect:
    """``POST /generate``."""

    def decode(self, body: bytes) -> NativeRequest:
        """Return the request in *body*; raises InvalidRequestError."""
        return decode_native(body)

    def reply(self, asked: Asked, recipe: Recipe, *, created: int) -> NativeReply:  # noqa: ARG002  # it tells no time
        """Return an answer to be told."""
        return NativeReply(asked, recipe)


class NativeReply:
    """One answer: an object, or a list of them where several were asked for.

    A stream's events have what is new, as with SGLang's ``--incremental-streaming-output``: all so
    far each time would cost the square of the answer's length.
    """

    def __init__(self, asked: Asked, recipe: Recipe) -> None:
        """Have ids of its own, one for each choice."""
        self._is_batch = isinstance(asked, NativeRequest) and asked.is_batch
        self._names_tokens = isinstance(asked, NativeRequest) and asked.shows_token_texts
        self._wish = asked.logprobs
        self._vocabulary = recipe.vocabulary
        self._ids: dict[int, str] = {}

    def begin(self, _prompts: Sequence[PromptIds], _usage: Usage) -> bytes:
        """Return nothing: there is no frame before the first text."""
        return b""

    def news(self, news: News) -> bytes:
        """Return the event that tells *news*."""
        text = "".join(delta.text for delta in news.deltas if isinstance(delta, Text))
        finish = next((delta for delta in news.deltas if isinstance(delta, Finished)), None)
        item = self._item(news.index, text, finish, news)
        if self._is_batch:
            item["index"] = news.index
        return b"data: " + orjson.dumps(item) + b"\n\n"

    def around(self, _kind: type[Text | Reasoning]) -> None:
        """Return None: every event has counters."""

    def end(self, _usages: Sequence[Usage]) -> bytes:
        """Return ``[DONE]``."""
        return DONE

    def failure(self, error: RouterError) -> bytes:
        """Return the error frame and ``[DONE]``."""
        return failure_frame(error)

    def whole(self, _prompts: Sequence[PromptIds], choices: Sequence[WholeChoice]) -> object:
        """Return the object, or the list of them."""
        items = [
            self._item(at, choice.message.content or "", finish_of(choice.message), choice)
            for at, choice in enumerate(choices)
        ]
        return items if self._is_batch else items[0]

    def _item(
        self, index: int, text: str, finish: Finished | None, told: News | WholeChoice
    ) -> dict[str, Any]:
        usage = told.usage
        facts: dict[str, Any] = {
            "id": self._ids.setdefault(index, new_job_id()),
            "finish_reason": _finish(finish, usage),
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        }
        if self._wish is not None:
            facts |= self._logprobs("output", told.logprobs)
            if told.prompt_logprobs:
                facts |= self._logprobs("input", told.prompt_logprobs)
        return {"text": text, "output_ids": list(told.token_ids), "meta_info": facts}

    def _logprobs(self, kind: str, tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
        facts: dict[str, Any] = {
            f"{kind}_token_logprobs": [self._row(each.token_id, each.logprob) for each in tokens]
        }
        if self._wish is not None and self._wish.top:
            facts[f"{kind}_top_logprobs"] = [
                [self._row(*other) for other in each.top] or None for each in tokens
            ]
        return facts

    def _row(self, token_id: int, logprob: float | None) -> list[Any]:
        text = token_text(self._vocabulary, token_id) if self._names_tokens else None
        return [None if logprob is None else finite(logprob), token_id, text]


def _finish(finish: Finished | None, usage: Usage) -> dict[str, Any] | None:
    if finish is None:
        return None
    if finish.reason == "length":
        return {"type": "length", "length": usage.completion_tokens}
    return {"type": "stop", "matched": finish.matched}
