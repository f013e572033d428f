"""From the bytes of a completion request to values that need no further checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import msgspec

from sglr_dataplane.api.schema.bodies import BodyReader
from sglr_dataplane.api.schema.common import (
    MAX_TOP_LOGPROBS,
    SEED_WARNING,
    GeneratingBody,
    StreamUsage,
    constraint_part,
    stream_usage,
)
from sglr_dataplane.api.schema.fields import COMPLETION_FIELDS
from sglr_dataplane.api.schema.refusals import invalid, missing, mistyped
from sglr_dataplane.job import Constraint, LogprobsWish
from sglr_dataplane.prompt.json_values import is_array
from sglr_dataplane.prompt.ranges import at_most, integer_in
from sglr_dataplane.prompt.sampling import SamplingParameters, in_range

MAX_PROMPTS: Final = 512
"""Each is a job of its own; evaluations send a few hundred at once."""
MAX_CHOICES: Final = 1024
"""Prompts times n."""
DEFAULT_MAX_TOKENS: Final = 16
"""OpenAI's, and SGLang's, for completions alone."""

PromptSource = str | tuple[int, ...]


class CompletionBody(GeneratingBody, frozen=True, kw_only=True):
    """The honoured fields, as they are sent; null and absent are the same."""

    prompt: Any = None
    echo: bool | None = None
    logprobs: int | None = None
    best_of: int | None = None


_READER = BodyReader(CompletionBody, COMPLETION_FIELDS)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request to go on writing one or several texts."""

    prompt_field: ClassVar[str] = "prompt"
    """Evaluations ask for no token at all, and for the prompt's log probabilities."""

    model: str | None
    """A backend's name or alias; None: the only one there is."""
    prompts: tuple[PromptSource, ...]
    paths: tuple[str, ...]
    """What a refusal calls each of *prompts*."""
    sampling: SamplingParameters
    constraint: Constraint | None = None
    stream: bool = False
    usage: StreamUsage = field(default_factory=StreamUsage)
    logprobs: LogprobsWish | None = None
    echo: bool = False
    shows_special: bool = False
    warnings: tuple[str, ...] = ()


def decode_completion(body: bytes) -> CompletionRequest:
    """Return the request in *body*.

    Raises:
        InvalidJsonError: *body* is not JSON.
        InvalidRequestError: It is no valid request; *param* is the path of what is wrong.
    """
    sent = _READER.read(body)
    prompts, paths = prompts_in(sent.prompt, "prompt")
    return CompletionRequest(
        model=sent.model,
        prompts=prompts,
        paths=paths,
        sampling=_sampling(sent, len(prompts)),
        constraint=constraint_part(sent),
        stream=bool(sent.stream),
        usage=stream_usage(sent),
        logprobs=_logprobs(sent),
        echo=bool(sent.echo),
        shows_special=sent.skip_special_tokens is False,
        warnings=(SEED_WARNING,) if sent.seed is not None else (),
    )


def prompts_in(value: Any, param: str) -> tuple[tuple[PromptSource, ...], tuple[str, ...]]:
    """Return the prompts in *value*: a text, a list of texts, ids, or a list of lists of ids.

    Returns:
        The prompts, and what a refusal calls each of them.

    Raises:
        InvalidRequestError: It is none of these, holds too many, or one is empty.
    """
    if value is None:
        raise missing(param)
    if isinstance(value, str):
        return (_source(value, param),), (param,)
    if not is_array(value):
        raise mistyped(param, "a string or an array", value)
    if not value:
        raise invalid(param, "expected at least one prompt", "empty_array")
    if isinstance(value[0], int):
        return (_source(value, param),), (param,)
    at_most(value, param, MAX_PROMPTS)
    paths = tuple(f"{param}[{at}]" for at in range(len(value)))
    return tuple(_source(each, path) for each, path in zip(value, paths, strict=True)), paths


def _source(value: Any, path: str) -> PromptSource:
    if isinstance(value, str):
        return value
    if not is_array(value):
        raise mistyped(path, "a string or an array of token ids", value)
    if not value:
        # sglang over gRPC: an empty prompt ends the engine's process.
        raise invalid(path, "expected at least one token id", "empty_array")
    for at, token_id in enumerate(value):
        if not isinstance(token_id, int) or isinstance(token_id, bool):
            raise mistyped(f"{path}[{at}]", "an integer", token_id)
    return tuple(value)


def _sampling(sent: CompletionBody, prompts: int) -> SamplingParameters:
    fields = in_range(sent, fewest_tokens=0)
    n = sent.n or 1
    if sent.best_of is not None and sent.best_of != n:
        raise invalid("best_of", f"expected the value of 'n', {n}: candidates are not ranked here")
    check_choices(prompts, n, "n")
    if fields.max_tokens is None and fields.max_completion_tokens is None:
        return with_max_tokens(fields, DEFAULT_MAX_TOKENS)
    return fields


def check_choices(prompts: int, n: int, param: str) -> None:
    """Refuse more than MAX_CHOICES choices in all; *param* is what asks for *n* of each prompt.

    Raises:
        InvalidRequestError: There are more.
    """
    if prompts * n > MAX_CHOICES:
        raise invalid(
            param, f"expected at most {MAX_CHOICES} choices in all, but got {prompts * n}"
        )


def with_max_tokens(fields: SamplingParameters, count: int) -> SamplingParameters:
    """Return *fields* with a limit of *count* tokens, or of as many as must come at least."""
    return msgspec.structs.replace(fields, max_tokens=max(count, fields.min_tokens or 0))


def _logprobs(sent: CompletionBody) -> LogprobsWish | None:
    integer_in(sent.logprobs, "logprobs", 0, MAX_TOP_LOGPROBS)
    if sent.logprobs is None:
        return None
    return LogprobsWish(top=sent.logprobs, prompt_from=0 if sent.echo else None)
