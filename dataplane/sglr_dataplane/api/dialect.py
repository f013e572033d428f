"""What each generating API brings to the walk that all of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglr_dataplane.api.answer import News, WholeChoice
    from sglr_dataplane.api.schema import ChatRequest, CompletionRequest
    from sglr_dataplane.errors import RouterError
    from sglr_dataplane.job import Usage
    from sglr_dataplane.output.deltas import Reasoning, Text
    from sglr_dataplane.recipe import PromptIds, Recipe

    Asked = ChatRequest | CompletionRequest


class Reply(Protocol):
    """One answer in the words of one API: as the frames of a stream, or whole."""

    def begin(self, prompts: Sequence[PromptIds], usage: Usage, /) -> bytes:
        """Return what comes before the first news; *usage* is what is known by then."""
        ...

    def news(self, news: News, /) -> bytes:
        """Return the frames that tell *news*."""
        ...

    def around(self, kind: type[Text | Reasoning], /) -> tuple[bytes, bytes] | None:
        """Return what stands around the text in the frame of one such delta of the only choice.

        With the text between, as JSON escapes it, that is what :meth:`news` returns for it. None
        where a frame tells more than the text, such as counters.
        """
        ...

    def end(self, usages: Sequence[Usage], /) -> bytes:
        """Return what ends a complete stream; *usages* by choice."""
        ...

    def failure(self, error: RouterError, /) -> bytes:
        """Return what ends a stream that failed after its status was sent."""
        ...

    def whole(self, prompts: Sequence[PromptIds], choices: Sequence[WholeChoice], /) -> object:
        """Return the whole answer, ready for JSON."""
        ...


class Dialect(Protocol):
    """One API: how it asks, and how it is answered."""

    def decode(self, body: bytes) -> Asked:
        """Return the request in *body*.

        Raises:
            InvalidRequestError: It is no valid request.
        """
        ...

    def reply(self, asked: Asked, recipe: Recipe, *, created: int) -> Reply:
        """Return the reply to *asked*, which came at *created*, in seconds since 1970."""
        ...
