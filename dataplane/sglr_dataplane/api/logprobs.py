"""Log probabilities in the shapes of OpenAI's two APIs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sglr_dataplane.job import TokenLogprob
    from sglr_dataplane.vocab import Vocabulary

LOWEST: Final = -9999.0
"""OpenAI's way to write minus infinity, which JSON has no number for."""


def token_text(vocabulary: Vocabulary, token_id: int) -> str:
    """Return *token_id* as text of its own; U+FFFD for bytes that are no whole character."""
    return vocabulary.bytes_of(token_id).decode("utf-8", "replace")


def chat_logprobs(vocabulary: Vocabulary, tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
    """Return the ``logprobs`` of a chat choice."""
    return {
        "content": [
            _entry(vocabulary, each.token_id, each.logprob)
            | {"top_logprobs": [_entry(vocabulary, *other) for other in each.top]}
            for each in tokens
        ],
        "refusal": None,
    }


def _entry(vocabulary: Vocabulary, token_id: int, logprob: float | None) -> dict[str, Any]:
    spelled = vocabulary.bytes_of(token_id)
    return {
        "token": spelled.decode("utf-8", "replace"),
        "logprob": finite(logprob),
        "bytes": list(spelled),
    }


class CompletionLogprobs:
    """The ``logprobs`` of a completion choice, piece by piece: offsets count from its text's start."""

    def __init__(self, vocabulary: Vocabulary, *, top: int) -> None:
        """Start at the beginning of a text; *top* alternatives are told of each token."""
        self._vocabulary = vocabulary
        self._top = top
        self._decoder = vocabulary.decoder(vocabulary.special)
        self._offset = 0

    def told(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
        """Return what is said of the next *tokens*."""
        return {
            "tokens": [token_text(self._vocabulary, each.token_id) for each in tokens],
            "token_logprobs": [
                None if each.logprob is None else finite(each.logprob) for each in tokens
            ],
            "top_logprobs": [self._alternatives(each) for each in tokens] if self._top else None,
            "text_offset": [self._next_offset(each.token_id) for each in tokens],
        }

    def _alternatives(self, token: TokenLogprob) -> dict[str, float] | None:
        if token.logprob is None:
            return None
        found: dict[str, float] = {}
        # OpenAI: the token itself is listed too, when it is not among the best.
        for token_id, logprob in (*token.top, (token.token_id, token.logprob)):
            found.setdefault(token_text(self._vocabulary, token_id), finite(logprob))
        return found

    def _next_offset(self, token_id: int) -> int:
        offset = self._offset
        self._offset += sum(len(piece.text) for piece in self._decoder.feed((token_id,)))
        return offset


def finite(logprob: float | None) -> float:
    """Return *logprob* as JSON has numbers for: LOWEST for minus infinity and below."""
    if logprob is None or math.isnan(logprob):
        return LOWEST
    return max(logprob, LOWEST)
