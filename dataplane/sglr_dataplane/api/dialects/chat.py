"""OpenAI's chat completions."""

from __future__ import annotations

from functools import partial
from os import urandom
from typing import TYPE_CHECKING, Any

from sglr_dataplane.api.logprobs import chat_logprobs
from sglr_dataplane.api.replies import chat_completion
from sglr_dataplane.api.schema import decode_chat
from sglr_dataplane.api.sse import ChatFrames, failure_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglr_dataplane.api.answer import WholeChoice
    from sglr_dataplane.api.dialect import Asked
    from sglr_dataplane.errors import RouterError
    from sglr_dataplane.job import Usage
    from sglr_dataplane.recipe import PromptIds, Recipe


class ChatDialect:
    """``POST /v1/chat/completions``."""

    decode = staticmethod(decode_chat)

    def reply(self, asked: Asked, recipe: Recipe, *, created: int) -> ChatReply:
        """Return a chat completion to be told."""
        return ChatReply(asked, recipe, created=created)


class ChatReply(ChatFrames):
    """One chat completion: the frames of its stream, or the whole of it."""

    def __init__(self, asked: Asked, recipe: Recipe, *, created: int) -> None:
        """Have an id of its own: neither the client's request id nor the worker's."""
        self._id = f"chatcmpl-{urandom(16).hex()}"
        self._model = asked.model or recipe.model
        self._created = created
        self._n = asked.sampling.n or 1
        self._rows = None if asked.logprobs is None else partial(chat_logprobs, recipe.vocabulary)
        super().__init__(
            id=self._id,
            created=created,
            model=self._model,
            usage=asked.usage,
            logprobs=self._rows,
        )

    def begin(self, _prompts: Sequence[PromptIds], _usage: Usage) -> bytes:
        """Return each choice's role."""
        return self.roles(self._n)

    def failure(self, error: RouterError) -> bytes:
        """Return the error frame and ``[DONE]``."""
        return failure_frame(error)

    def whole(
        self, _prompts: Sequence[PromptIds], choices: Sequence[WholeChoice]
    ) -> dict[str, Any]:
        """Return the chat completion."""
        return chat_completion(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=choices,
            rows=self._rows,
        )
