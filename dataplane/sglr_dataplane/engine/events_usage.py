"""What an answer has cost, as far as its JSON says so; pure."""

from __future__ import annotations

import msgspec

from sglr_dataplane.job import Usage


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    """OpenAI's two ways, Anthropic's, and SGLang's ``meta_info``."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    input_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    output_tokens_details: _CompletionDetails | None = None


class _Holder(msgspec.Struct):
    usage: _Usage | None = None


class _Document(msgspec.Struct):
    usage: _Usage | None = None
    meta_info: _Usage | None = None
    message: _Holder | str | None = None
    """Of Anthropic's first event."""
    response: _Holder | None = None
    """Of a Response's last."""


_DECODER = msgspec.json.Decoder(_Document)


class Counted(msgspec.Struct, frozen=True):
    """What was told so far; None: nothing."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None

    def usage(self, events: int) -> Usage:
        """Return it as usage; while no completion was told, *events* count as tokens."""
        return Usage(
            prompt_tokens=self.prompt or 0,
            completion_tokens=events if self.completion is None else self.completion,
            cached_tokens=self.cached or 0,
            reasoning_tokens=self.reasoning or 0,
        )


def counted_in(data: bytes, before: Counted) -> Counted:
    """Return what the JSON *data* says of usage over what was known *before*."""
    try:
        document = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return before
    told = document.usage or document.meta_info
    for holder in (document.message, document.response):
        if isinstance(holder, _Holder):
            told = told or holder.usage
    return before if told is None else _over(told, before)


def _over(told: _Usage, before: Counted) -> Counted:
    prompt_details = told.prompt_tokens_details or told.input_tokens_details or _PromptDetails()
    details = told.completion_tokens_details or told.output_tokens_details or _CompletionDetails()
    return Counted(
        prompt=_first(told.prompt_tokens, told.input_tokens, before.prompt),
        completion=_first(told.completion_tokens, told.output_tokens, before.completion),
        cached=_first(
            prompt_details.cached_tokens,
            told.cache_read_input_tokens,
            told.cached_tokens,
            before.cached,
        ),
        reasoning=_first(details.reasoning_tokens, told.reasoning_tokens, before.reasoning),
    )


def _first(*values: int | None) -> int | None:
    """Return the first that is told."""
    return next((value for value in values if value is not None), None)
