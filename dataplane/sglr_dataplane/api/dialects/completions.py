"""OpenAI's completions: texts that are gone on with, without template, tools or thoughts."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

import orjson

from sglr_dataplane.api.logprobs import CompletionLogprobs
from sglr_dataplane.api.replies import finish_of, total_usage, usage_object
from sglr_dataplane.api.schema import CompletionRequest, decode_completion
from sglr_dataplane.api.sse import DONE, failure_frame
from sglr_dataplane.output.deltas import Finished, Reasoning, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglr_dataplane.api.answer import News, WholeChoice
    from sglr_dataplane.api.dialect import Asked
    from sglr_dataplane.errors import RouterError
    from sglr_dataplane.job import Usage
    from sglr_dataplane.recipe import PromptIds, Recipe

_MARK: Final = "\0"
"""Stands for a text; whatever follows a text in a chunk is without it."""


class CompletionDialect:
    """``POST /v1/completions``."""

    def decode(self, body: bytes) -> CompletionRequest:
        """Return the request in *body*; raises InvalidRequestError."""
        return decode_completion(body)

    def reply(self, asked: Asked, recipe: Recipe, *, created: int) -> CompletionReply:
        """Return a completion to be told."""
        return CompletionReply(asked, recipe, created=created)


class CompletionReply:
    """One completion: choice *i* of prompt *p* is choice ``p * n + i``."""

    def __init__(self, asked: Asked, recipe: Recipe, *, created: int) -> None:
        """Have an id of its own."""
        self._n = asked.sampling.n or 1
        self._usage = asked.usage
        self._echo = isinstance(asked, CompletionRequest) and asked.echo
        self._wish = asked.logprobs
        self._vocabulary = recipe.vocabulary
        self._shared: dict[str, Any] = {
            "id": f"cmpl-{secrets.token_hex(16)}",
            "object": "text_completion",
            "created": created,
            "model": asked.model or recipe.model,
        }
        self._echoes: list[str] = []
        self._logprobs: dict[int, CompletionLogprobs] = {}

    def begin(self, prompts: Sequence[PromptIds], _usage: Usage) -> bytes:
        """Return nothing: an echo comes with the first news of its choice."""
        if self._echo:
            self._echoes = [prompt.text for prompt in prompts for _ in range(self._n)]
        return b""

    def news(self, news: News) -> bytes:
        """Return the chunk that tells *news*."""
        text = "".join(delta.text for delta in news.deltas if isinstance(delta, Text))
        finish = next((delta for delta in news.deltas if isinstance(delta, Finished)), None)
        echo = ""
        if self._echoes:
            echo, self._echoes[news.index] = self._echoes[news.index], ""
        choice = self._choice(news.index, echo + text, finish, self._told(news.index, news))
        return self._chunk(choice, news.usage if self._usage.always else None)

    def _chunk(self, choice: dict[str, Any], usage: Usage | None) -> bytes:
        """Return a chunk; one that does not tell *usage* says null if another will."""
        extras: dict[str, Any] = {}
        if self._usage.at_end:
            extras["usage"] = None if usage is None else usage_object(usage)
        return _frame(self._shared | {"choices": [choice]} | extras)

    def around(self, _kind: type[Text | Reasoning]) -> tuple[bytes, bytes] | None:
        """Return what stands around a text in its chunk; None where chunks tell more."""
        if self._wish is not None or self._usage.always or any(self._echoes):
            return None
        chunk = self._chunk(self._choice(0, _MARK, None, None), None)
        before, _, after = chunk.rpartition(orjson.dumps(_MARK)[1:-1])
        return before, after

    def end(self, usages: Sequence[Usage]) -> bytes:
        """Return the usage, where it was asked for, and ``[DONE]``."""
        if not self._usage.at_end:
            return DONE
        total = usage_object(total_usage(usages, self._n))
        return _frame(self._shared | {"choices": [], "usage": total}) + DONE

    def failure(self, error: RouterError) -> bytes:
        """Return the error frame and ``[DONE]``."""
        return failure_frame(error)

    def whole(self, prompts: Sequence[PromptIds], choices: Sequence[WholeChoice]) -> dict[str, Any]:
        """Return the completion."""
        told: list[dict[str, Any]] = []
        for index, choice in enumerate(choices):
            echo = prompts[index // self._n].text if self._echo else ""
            text = echo + (choice.message.content or "")
            logprobs = self._told(index, choice)
            told.append(self._choice(index, text, finish_of(choice.message), logprobs))
        usage = total_usage([choice.usage for choice in choices], self._n)
        return self._shared | {"choices": told, "usage": usage_object(usage)}

    def _choice(
        self, index: int, text: str, finish: Finished | None, logprobs: dict[str, Any] | None
    ) -> dict[str, Any]:
        choice = {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish.reason if finish is not None else None,
        }
        return choice if finish is None else choice | {"matched_stop": finish.matched}

    def _told(self, index: int, news: News | WholeChoice) -> dict[str, Any] | None:
        """Return the log probabilities of *news*, those of an echoed prompt first."""
        if self._wish is None:
            return None
        writer = self._logprobs.get(index)
        if writer is None:
            writer = self._logprobs[index] = CompletionLogprobs(
                self._vocabulary, top=self._wish.top
            )
        tokens = (*news.prompt_logprobs, *news.logprobs)
        return writer.told(tokens) if tokens else None


def _frame(chunk: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"
