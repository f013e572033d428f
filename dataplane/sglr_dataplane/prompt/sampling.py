"""From a client's sampling parameters to what an engine can be told without harm.

The engine checks nothing over gRPC: an id outside the vocabulary, a NaN or a bad logit_bias key
ends its process (sglang 0.5.23 with smg-grpc-servicer 0.14.1, seen running). Its ``verify`` runs on
its HTTP path only; the ranges here are that method's, or narrower where it lets harm through.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

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
_Number = TypeVar("_Number", int, float)


class SamplingParameters(msgspec.Struct, frozen=True, kw_only=True):
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


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What the model's ``generation_config`` says where the client says nothing."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


_UNSET = SamplingDefaults()


def sampling_of(
    parameters: SamplingParameters,
    *,
    vocab_size: int,
    defaults: SamplingDefaults = _UNSET,
    constraint: Constraint | None = None,
    fewest_tokens: int = 1,
) -> Sampling:
    """Return *parameters* as an engine takes them: finite, in range, and complete.

    Args:
        parameters: What the client sent.
        vocab_size: The tokenizer's real vocabulary; ids must be below.
        defaults: Values for what the client left unset.
        constraint: The grammar to keep to, if any.
        fewest_tokens: The least that a client may ask for.

    Raises:
        InvalidRequestError: A value is out of range; *param* names it.
    """
    check_ranges(parameters, fewest_tokens=fewest_tokens)
    top_p = _first(parameters.top_p, defaults.top_p, 1.0)
    top_k = _first(parameters.top_k, defaults.top_k, -1)
    if _as_float32(top_p) == 0.0:  # OpenAI takes 0; on the wire it would mean 1
        top_p, top_k = 1.0, _GREEDY_TOP_K
    return Sampling(
        temperature=_first(parameters.temperature, defaults.temperature, 1.0),
        top_p=top_p,
        top_k=min(top_k, vocab_size) or -1,
        min_p=_first(parameters.min_p, defaults.min_p, 0.0),
        frequency_penalty=parameters.frequency_penalty or 0.0,
        presence_penalty=parameters.presence_penalty or 0.0,
        repetition_penalty=_first(parameters.repetition_penalty, defaults.repetition_penalty, 1.0),
        max_new_tokens=_max_new_tokens(parameters),
        min_new_tokens=parameters.min_tokens or 0,
        stop=_stops(parameters),
        stop_token_ids=_stop_ids(parameters, vocab_size),
        ignore_eos=bool(parameters.ignore_eos),
        no_stop_trim=bool(parameters.no_stop_trim or parameters.include_stop_str_in_output),
        n=parameters.n or 1,
        logit_bias=_biases(parameters, vocab_size),
        constraint=constraint,
    )


def check_ranges(parameters: SamplingParameters, *, fewest_tokens: int = 1) -> None:
    """Refuse every value that is out of range for any model.

    Args:
        parameters: What the client sent.
        fewest_tokens: The least that it may ask for.

    Raises:
        InvalidRequestError: One is; *param* names it.
    """
    number_in(parameters.temperature, "temperature", 0, 2)
    number_in(parameters.top_p, "top_p", 0, 1)
    number_in(parameters.min_p, "min_p", 0, 1)
    number_in(parameters.frequency_penalty, "frequency_penalty", -2, 2)
    number_in(parameters.presence_penalty, "presence_penalty", -2, 2)
    number_in(parameters.repetition_penalty, "repetition_penalty", MIN_REPETITION_PENALTY, 2)
    integer_in(parameters.top_k, "top_k", -1, INT32_MAX)
    integer_in(parameters.max_completion_tokens, "max_completion_tokens", fewest_tokens, INT32_MAX)
    integer_in(parameters.max_tokens, "max_tokens", fewest_tokens, INT32_MAX)
    most = _max_new_tokens(parameters)
    integer_in(parameters.min_tokens, "min_tokens", 0, INT32_MAX if most is None else most)
    integer_in(parameters.n, "n", 1, MAX_N)
    _stops(parameters)
    _stop_ids(parameters, INT32_MAX)
    _biases(parameters, INT32_MAX)


def defaults_of(text: str) -> SamplingDefaults:
    """Return the defaults in *text*, a worker's ``default_sampling_params_json``.

    A model's file may hold anything: what is no number, or out of range, counts as unset.
    """
    try:
        config: Any = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return _UNSET
    if not is_object(config):
        return _UNSET
    return SamplingDefaults(
        temperature=_default(config, "temperature"),
        top_p=_default(config, "top_p"),
        top_k=_default_top_k(config),
        min_p=_default(config, "min_p"),
        repetition_penalty=_default(config, "repetition_penalty"),
    )


def _default(config: Mapping[str, Any], name: str) -> float | None:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        value = float(value)
        check_ranges(msgspec.structs.replace(SamplingParameters(), **{name: value}))
    except (InvalidRequestError, OverflowError):
        return None
    return value


def _default_top_k(config: Mapping[str, Any]) -> int | None:
    value = config.get("top_k")
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= INT32_MAX:
        return None
    return value


def _first(value: _Number | None, default: _Number | None, otherwise: _Number) -> _Number:
    if value is not None:
        return value
    return otherwise if default is None else default


def _as_float32(value: float) -> float:
    """Return *value* as it arrives: the wire's ``float`` has 32 bits."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _max_new_tokens(parameters: SamplingParameters) -> int | None:
    # OpenAI: max_tokens is the deprecated name.
    if parameters.max_completion_tokens is not None:
        return parameters.max_completion_tokens
    return parameters.max_tokens


def _stops(parameters: SamplingParameters) -> tuple[str, ...]:
    stops = [parameters.stop] if isinstance(parameters.stop, str) else parameters.stop or []
    at_most(stops, "stop", MAX_STOPS)
    for at, stop in enumerate(stops):
        param = "stop" if isinstance(parameters.stop, str) else f"stop[{at}]"
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
    return tuple(stops)


def _stop_ids(parameters: SamplingParameters, vocab_size: int) -> tuple[int, ...]:
    ids = parameters.stop_token_ids or []
    at_most(ids, "stop_token_ids", MAX_STOP_TOKEN_IDS)
    for at, token_id in enumerate(ids):
        integer_in(token_id, f"stop_token_ids[{at}]", 0, vocab_size - 1)
    return tuple(ids)


def _biases(parameters: SamplingParameters, vocab_size: int) -> tuple[tuple[int, float], ...]:
    biases = parameters.logit_bias or {}
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
