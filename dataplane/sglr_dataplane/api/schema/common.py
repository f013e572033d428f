"""What the requests of all generating APIs have in common."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final, Literal

import msgspec

from sglr_dataplane.api.schema.grammars import grammar_of
from sglr_dataplane.api.schema.refusals import invalid
from sglr_dataplane.job import Constraint
from sglr_dataplane.prompt.sampling import SamplingParameters

MAX_TOP_LOGPROBS: Final = 20
"""OpenAI's limit; above the vocabulary's size the engine's process ends."""

Thoughts = Literal["streamed", "whole", "dropped"]
"""How a client gets the model's thinking: as it comes, in one piece, or not at all."""

SEED_WARNING: Final = "seed has no effect: SGLang's gRPC interface has no field for it"


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream carries beside the answer."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GeneratingBody(SamplingParameters, frozen=True, kw_only=True):
    """The fields that chat completions and completions share, as they are sent."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: Any = None
    regex: Any = None
    ebnf: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_grammar: Any = None
    guided_choice: Any = None
    structured_outputs: Any = None
    skip_special_tokens: bool | None = None
    seed: int | None = None


_GRAMMARS: Final = (
    "response_format",
    "regex",
    "ebnf",
    "guided_json",
    "guided_regex",
    "guided_grammar",
    "guided_choice",
    "structured_outputs",
)
_GRAMMAR_VALUES: Final = attrgetter(*_GRAMMARS)
_NO_GRAMMAR: Final = (None,) * len(_GRAMMARS)


class StreamUsage(msgspec.Struct, frozen=True):
    """When a stream tells what it has cost."""

    at_end: bool = False
    always: bool = False
    """On every chunk, so far."""


UNTOLD: Final = StreamUsage()


def stream_usage(sent: GeneratingBody) -> StreamUsage:
    """Return when usage is told.

    Raises:
        InvalidRequestError: There are options for a stream, but none is asked for.
    """
    options = sent.stream_options
    if options is None:
        return UNTOLD
    if not sent.stream:
        raise invalid("stream_options", "it is only allowed when 'stream' is true")
    always = bool(options.continuous_usage_stats)
    # vLLM and SGLang: the one without the other says nothing.
    return StreamUsage(bool(options.include_usage), always and bool(options.include_usage))


def constraint_part(sent: GeneratingBody) -> Constraint | None:
    """Return the grammar that *sent* asks for, under whichever of its names.

    Raises:
        InvalidRequestError: It is malformed, or there are two.
    """
    values = _GRAMMAR_VALUES(sent)
    if values == _NO_GRAMMAR:
        return None
    return grammar_of(dict(zip(_GRAMMARS, values, strict=True)))
