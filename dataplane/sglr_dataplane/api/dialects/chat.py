"""OpenAI's chat completions."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

from sglr_dataplane.api.logprobs import chat_logprobs
from sglr_dataplane.api.replies import chat_completion
from sglr_dataplane.api.schema import decode_chat
from sglr_dataplane.api.sse import ChatFrames, failure_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglr_dataplane.api.answer import News, WholeChoice
    from sglr_dataplane.api.dialect import Asked
    from sglr_dataplane.errors import RouterError
    from sglr_dataplane.job import Usage
    from sglr_dataplane.output.deltas import Reasoning, Text
    from sglr_dataplane.recipe import PromptIds, Recipe


class ChatDialect:
    """``POST /v1/chat/completions``."""

    decode = staticmethod(decode_chat)

    def reply(self, asked: Asked, recipe: Recipe, *, created: int) -> ChatReply:
        """Return a chat completion to be told."""
        return ChatReply(asked, recipe, created=created)


class ChatReply:
    """One chat completion."""

    def __init__(self, asked: Asked, recipe: Recipe, *, created: int) -> None:
        """Have an id of its own: neither the client's request id nor the worker's."""
        self._id = f"chatcmpl-{secrets.token_hex(16)}"
        self._model = asked.model or recipe.model
        self._created = created
        self._n = asked.sampling.n or 1
        self._logprobs = (
            partial(chat_logprobs, recipe.vocabulary) if asked.logprobs is not None else None
        )
        self._frames = ChatFrames(
            id=self._id,
            created=created,
            model=self._model,
            usage=asked.usage,
            logprobs=self._logprobs,
        )

    def begin(self, _prompts: Sequence[PromptIds], _usage: Usage) -> bytes:
        """Return each choice's role."""
        return self._frames.begin(self._n)

    def news(self, news: News) -> bytes:
        """Return the chunks that tell *news*."""
        return self._frames.news(news)

    def around(self, kind: type[Text | Reasoning]) -> tuple[bytes, bytes] | None:
        """Return what stands around a text in its chunk."""
        return self._frames.around(kind)

    def end(self, usages: Sequence[Usage]) -> bytes:
        """Return the usage, where it was asked for, and ``[DONE]``."""
        return self._frames.end(usages)

    def failure(self, error: RouterError) -> bytes:
        """Return the error frame and ``[DONE]``."""
        return failure_frame(error)

    def whole(
        self, _prompts: Sequence[PromptIds], choices: Sequence[WholeChoice]
    ) -> dict[str, Any]:
        """Return the chat completion."""
        told = self._logprobs
        return chat_completion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=choices,
            logprobs=[told(choice.logprobs) if told else None for choice in choices],
        )
