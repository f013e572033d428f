"""From the bytes of a request to ``/generate``, SGLang's own API, to checked values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

from sglr_dataplane.api.schema.bodies import BodyReader
from sglr_dataplane.api.schema.common import SEED_WARNING
from sglr_dataplane.api.schema.completions import (
    CompletionRequest,
    PromptSource,
    check_choices,
    prompts_in,
    with_max_tokens,
)
from sglr_dataplane.api.schema.grammars import native_grammar_of
from sglr_dataplane.api.schema.native_fields import NATIVE_FIELDS, NATIVE_SAMPLING_FIELDS
from sglr_dataplane.api.schema.refusals import invalid, missing, of_validation
from sglr_dataplane.job import LogprobsWish
from sglr_dataplane.prompt.ranges import integer_in
from sglr_dataplane.prompt.sampling import INT32_MAX, SamplingParameters, in_range

DEFAULT_MAX_TOKENS: Final = 128
"""sglang's, for this API alone."""
MAX_TOP_LOGPROBS: Final = 128


class NativeBody(msgspec.Struct, frozen=True, kw_only=True):
    """The honoured fields, as they are sent; null and absent are the same."""

    model: str | None = None
    text: Any = None
    input_ids: Any = None
    sampling_params: dict[str, Any] | None = None
    stream: bool | None = None
    return_logprob: bool | None = None
    logprob_start_len: int | None = None
    top_logprobs_num: int | None = None
    return_text_in_logprobs: bool | None = None


class NativeSampling(SamplingParameters, frozen=True, kw_only=True):
    """``sampling_params``, in SGLang's names."""

    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    json_schema: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: str | None = None
    skip_special_tokens: bool | None = None
    sampling_seed: int | None = None


_READER = BodyReader(NativeBody, NATIVE_FIELDS)


@dataclass(frozen=True, slots=True)
class NativeRequest(CompletionRequest):
    """A request of SGLang's own API."""

    prompt_field: ClassVar[str] = "text"

    is_batch: bool = False
    """Whether the answer is a list: several prompts, or several choices."""
    shows_token_texts: bool = False
    """Whether log probabilities name their tokens' texts."""


def decode_native(body: bytes) -> NativeRequest:
    """Return the request in *body*.

    Raises:
        InvalidJsonError: *body* is not JSON.
        InvalidRequestError: It is no valid request; *param* is the path of what is wrong.
    """
    sent = _READER.read(body)
    prompts, paths = _prompts(sent)
    given = _given(sent.sampling_params or {})
    check_choices(len(prompts), given.n or 1, "sampling_params.n")
    return NativeRequest(
        model=sent.model,
        prompts=prompts,
        paths=paths,
        sampling=_sampling(given),
        constraint=native_grammar_of(
            ("json_schema", given.json_schema),
            ("regex", given.regex),
            ("ebnf_grammar", given.ebnf),
            ("structural_tag", given.structural_tag),
        ),
        stream=bool(sent.stream),
        logprobs=_logprobs(sent),
        shows_special=given.skip_special_tokens is False,
        warnings=(SEED_WARNING,) if given.sampling_seed is not None else (),
        is_batch=paths not in (("text",), ("input_ids",)) or (given.n or 1) > 1,
        shows_token_texts=bool(sent.return_text_in_logprobs),
    )


def _prompts(sent: NativeBody) -> tuple[tuple[PromptSource, ...], tuple[str, ...]]:
    if sent.text is not None and sent.input_ids is not None:
        raise invalid("input_ids", "expected either 'text' or 'input_ids'")
    if sent.text is None and sent.input_ids is None:
        raise missing("text")
    if sent.text is not None:
        return prompts_in(sent.text, "text")
    return prompts_in(sent.input_ids, "input_ids")


def _given(fields: dict[str, Any]) -> NativeSampling:
    for name in fields.keys() - NATIVE_SAMPLING_FIELDS.keys():
        # sglang: they are the arguments of a function, of which none may be unknown.
        raise invalid(
            f"sampling_params.{name}", "there is no parameter of that name", "unknown_parameter"
        )
    for name, field in NATIVE_SAMPLING_FIELDS.items():
        value = fields.get(name)
        if field.fate == "refused" and value is not None and value not in field.neutral:
            raise invalid(f"sampling_params.{name}", f"it is not supported: {field.note}")
    try:
        return msgspec.convert(fields, NativeSampling)
    except msgspec.ValidationError as error:
        raise of_validation(error, within="sampling_params") from error


def _sampling(given: NativeSampling) -> SamplingParameters:
    most = integer_in(given.max_new_tokens, "sampling_params.max_new_tokens", 0, INT32_MAX)
    integer_in(given.min_new_tokens, "sampling_params.min_new_tokens", 0, most or INT32_MAX)
    renamed = msgspec.structs.replace(
        given, max_tokens=most, max_completion_tokens=None, min_tokens=given.min_new_tokens
    )
    sampling = in_range(renamed, fewest_tokens=0)
    if sampling.max_tokens is None:
        return with_max_tokens(sampling, DEFAULT_MAX_TOKENS)
    return sampling


def _logprobs(sent: NativeBody) -> LogprobsWish | None:
    top, start = sent.top_logprobs_num, sent.logprob_start_len
    integer_in(top, "top_logprobs_num", 0, MAX_TOP_LOGPROBS)
    integer_in(start, "logprob_start_len", -1, INT32_MAX)
    if not sent.return_logprob:
        return None
    return LogprobsWish(top=top or 0, prompt_from=None if start in (None, -1) else start)
