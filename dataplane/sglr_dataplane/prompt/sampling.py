"""From a client's sampling parameters to what an engine can be told without harm.

The engine checks nothing over gRPC: an id outside the vocabulary, a NaN or a bad logit_bias key
ends its process (sglang 0.5.23 with smg-grpc-servicer 0.14.1, seen running). Its ``verify`` runs on
its HTTP path only; the ranges here are that method's, or narrower where it lets harm through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec

from sglr_dataplane.errors import InvalidRequestError
from sglr_dataplane.job import Constraint, Sampling
from sglr_dataplane.prompt.json_values import is_object
from sglr_dataplane.prompt.ranges import at_most, integer_in, number_in, shown

INT32_MAX = 2**31 - 1
"""The wire's lengths and ids are int32."""
MAX_N = 128
MAX_STOPS = 32
"""sglang refuses more stop strings."""
MAX_STOP_LENGTH = 4096
"""Characters; sglang decodes as many tokens again at each step to look for the string."""
MAX_STOP_TOKEN_IDS = 1024
MAX_BIASES = 1024
"""OpenAI takes 300."""
MIN_REPETITION_PENALTY = 0.01
"""sglang allows all above 0, but dividing logits by 1e-38 gives infinities, then NaN."""
_GREEDY_TOP_K = 1
_ROUNDED_TO_ZERO = 2.0**-150
"""Up to here a number is 0 on the wire, whose ``float`` has 32 bits."""
_USUAL: Final = 256
"""Sets of numbers that are kept complete."""
_MODELS = 256
"""Whose defaults are kept as read."""


class SamplingParameters(msgspec.Struct, frozen=True):
    """How a client wants tokens chosen, in OpenAI's and SGLang's names; None means unset."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    no_stop_trim: bool | None = None
    include_stop_str_in_output: bool | None = None
    n: int | None = None
    logit_bias: dict[str, float] | None = None


_VALUES: Final = attrgetter(*SamplingParameters.__struct_fields__)
_LIMITS: tuple[tuple[Callable[[Any, str, Any, Any], object], str, float, float], ...] = (
    (number_in, "temperature", 0, 2),
    (number_in, "top_p", 0, 1),
    (integer_in, "top_k", -1, INT32_MAX),
    (number_in, "min_p", 0, 1),
    (number_in, "frequency_penalty", -2, 2),
    (number_in, "presence_penalty", -2, 2),
    (number_in, "repetition_penalty", MIN_REPETITION_PENALTY, 2),
)
"""Of the first fields, in their order."""
_UNSET: Final = (None,) * len(_LIMITS)
_LISTS: Final = attrgetter("stop", "stop_token_ids", "logit_bias")
_NO_LISTS: Final = (None,) * 3


class SamplingDefaults(msgspec.Struct, frozen=True):
    """What counts where the client says nothing: OpenAI's values, or the model's own."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    repetition_penalty: float = 1.0


_OPENAI: Final = SamplingDefaults()


def in_range(sent: SamplingParameters, *, fewest_tokens: int = 1) -> SamplingParameters:
    """Return the sampling parameters in *sent*, and nothing else that it holds.

    Args:
        sent: What the client sent; refused if a value is out of range for any model.
        fewest_tokens: The least that it may ask for.

    Raises:
        InvalidRequestError: A value is out of range; *param* names it.
    """
    values = _VALUES(sent)
    if values[: len(_LIMITS)] != _UNSET:
        for value, (check, param, low, high) in zip(values, _LIMITS, strict=False):
            if value is not None:
                check(value, param, low, high)
    if sent.max_completion_tokens is not None:
        integer_in(sent.max_completion_tokens, "max_completion_tokens", fewest_tokens, INT32_MAX)
    if sent.max_tokens is not None:
        integer_in(sent.max_tokens, "max_tokens", fewest_tokens, INT32_MAX)
    if sent.min_tokens is not None:
        most = max_new_tokens(sent)
        integer_in(sent.min_tokens, "min_tokens", 0, INT32_MAX if most is None else most)
    if sent.n is not None:
        integer_in(sent.n, "n", 1, MAX_N)
    if _LISTS(sent) != _NO_LISTS:
        _check_lists(sent)
    return SamplingParameters(*values)


def sampling_of(
    parameters: SamplingParameters,
    *,
    vocab_size: int,
    defaults: SamplingDefaults = _OPENAI,
    constraint: Constraint | None = None,
) -> Sampling:
    """Return *parameters* as an engine takes them: finite, in range, and complete.

    Args:
        parameters: What the client sent, as ``in_range`` returned it.
        vocab_size: The tokenizer's real vocabulary; ids must be below.
        defaults: Values for what the client left unset.
        constraint: The grammar to keep to, if any.

    Raises:
        InvalidRequestError: An id is none of the vocabulary; *param* names it.
    """
    if constraint is None and _LISTS(parameters) == _NO_LISTS:
        return _usual(parameters, vocab_size, defaults)
    return _complete(parameters, vocab_size, defaults, constraint)


def _complete(
    parameters: SamplingParameters,
    vocab_size: int,
    defaults: SamplingDefaults,
    constraint: Constraint | None = None,
) -> Sampling:
    temperature, top_p, top_k, min_p, repetition_penalty = [
        default if value is None else value
        for value, default in zip(_DEFAULTED(parameters), _DEFAULTED(defaults), strict=True)
    ]
    if top_p <= _ROUNDED_TO_ZERO:  # OpenAI takes 0; on the wire it would mean 1
        top_p, top_k = 1.0, _GREEDY_TOP_K
    stop, ids, biases = parameters.stop, parameters.stop_token_ids, parameters.logit_bias
    return Sampling(
        temperature=temperature,
        top_p=top_p,
        top_k=min(top_k, vocab_size) or -1,
        min_p=min_p,
        frequency_penalty=parameters.frequency_penalty or 0.0,
        presence_penalty=parameters.presence_penalty or 0.0,
        repetition_penalty=repetition_penalty,
        max_new_tokens=max_new_tokens(parameters),
        min_new_tokens=parameters.min_tokens or 0,
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        stop_token_ids=_stop_ids(ids, vocab_size) if ids else (),
        ignore_eos=bool(parameters.ignore_eos),
        no_stop_trim=bool(parameters.no_stop_trim or parameters.include_stop_str_in_output),
        n=parameters.n or 1,
        logit_bias=_biases(biases, vocab_size) if biases else (),
        constraint=constraint,
    )


_DEFAULTED: Final = attrgetter(*SamplingDefaults.__struct_fields__)
_usual = lru_cache(_USUAL)(_complete)
"""What clients of a model mostly ask for, complete: numbers only, so that it stays small."""


@lru_cache(_MODELS)
def defaults_of(text: str) -> SamplingDefaults:
    """Return the defaults in *text*, a worker's ``default_sampling_params_json``.

    A model's file may hold anything: what is no number, or out of range, counts as unset.
    """
    try:
        config: Any = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return _OPENAI
    if not is_object(config):
        return _OPENAI
    return SamplingDefaults(
        temperature=_default(config, "temperature"),
        top_p=_default(config, "top_p"),
        top_k=_default_top_k(config),
        min_p=_default(config, "min_p"),
        repetition_penalty=_default(config, "repetition_penalty"),
    )


def _default(config: Mapping[str, Any], name: str) -> float:
    value = config.get(name)
    unset: float = getattr(_OPENAI, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return unset
    try:
        value = float(value)
        in_range(msgspec.structs.replace(SamplingParameters(), **{name: value}))
    except (InvalidRequestError, OverflowError):
        return unset
    return value


def _default_top_k(config: Mapping[str, Any]) -> int:
    value = config.get("top_k")
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= INT32_MAX:
        return _OPENAI.top_k
    return value


def max_new_tokens(parameters: SamplingParameters) -> int | None:
    """Return how many tokens *parameters* ask for at most; None: as many as fit."""
    # OpenAI: max_tokens is the deprecated name.
    if parameters.max_completion_tokens is not None:
        return parameters.max_completion_tokens
    return parameters.max_tokens


def _check_lists(sent: SamplingParameters) -> None:
    if sent.stop is not None:
        _check_stops(sent.stop)
    if sent.stop_token_ids is not None:
        _stop_ids(sent.stop_token_ids, INT32_MAX)
    if sent.logit_bias is not None:
        _biases(sent.logit_bias, INT32_MAX)


def _check_stops(sent: str | list[str]) -> None:
    stops = [sent] if isinstance(sent, str) else sent
    at_most(stops, "stop", MAX_STOPS)
    for at, stop in enumerate(stops):
        param = "stop" if isinstance(sent, str) else f"stop[{at}]"
        if not stop:
            raise InvalidRequestError(
                f"Invalid '{param}': an empty string would stop before the first token; leave it"
                " out instead.",
                param=param,
                code="invalid_value",
            )
        if len(stop) > MAX_STOP_LENGTH:
            raise InvalidRequestError(
                f"Invalid '{param}': expected at most {MAX_STOP_LENGTH} characters, but got"
                f" {len(stop)}.",
                param=param,
                code="string_above_max_length",
            )


def _stop_ids(ids: list[int], vocab_size: int) -> tuple[int, ...]:
    at_most(ids, "stop_token_ids", MAX_STOP_TOKEN_IDS)
    for at, token_id in enumerate(ids):
        integer_in(token_id, f"stop_token_ids[{at}]", 0, vocab_size - 1)
    return tuple(ids)


def _biases(biases: dict[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    at_most(tuple(biases), "logit_bias", MAX_BIASES)
    checked: dict[int, float] = {}
    for key, bias in biases.items():
        token_id = _token_id(key, vocab_size)
        number_in(bias, f"logit_bias.{token_id}", -100, 100)
        checked[token_id] = bias
    return tuple(checked.items())


def _token_id(key: str, vocab_size: int) -> int:
    if key.isascii() and key.isdigit() and len(key) <= len(str(INT32_MAX)):
        token_id = int(key)
        if token_id < vocab_size:
            return token_id
    raise InvalidRequestError(
        f"Invalid 'logit_bias': the key {shown(key)} is no token id; expected the digits of an"
        f" integer from 0 to {vocab_size - 1}.",
        param="logit_bias",
        code="invalid_value",
    )
