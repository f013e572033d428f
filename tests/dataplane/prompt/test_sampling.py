"""Nothing that could end or hang an engine gets past the sampling checks."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sglr_dataplane.errors import InvalidRequestError
from sglr_dataplane.job import Constraint, Sampling
from sglr_dataplane.prompt.sampling import (
    SamplingDefaults,
    SamplingParameters,
    defaults_of,
    in_range,
    sampling_of,
)

VOCAB = 1000


def sampled(**fields: Any) -> Sampling:
    """Return the sampling of a request with *fields*, for a vocabulary of 1000."""
    parameters = msgspec.json.decode(json.dumps(fields), type=SamplingParameters)
    return sampling_of(in_range(parameters), vocab_size=VOCAB)


def refused(**fields: Any) -> InvalidRequestError:
    """Return what *fields* are refused with."""
    with pytest.raises(InvalidRequestError) as caught:
        sampled(**fields)
    return caught.value


def test_unset_fields_are_openais_defaults() -> None:
    """Nothing asked is temperature 1, no limits, one answer."""
    assert sampled() == Sampling()


def test_every_field_arrives() -> None:
    """What is in range is handed on as it is."""
    assert sampled(
        temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, frequency_penalty=-2, presence_penalty=2,
        repetition_penalty=1.1, max_tokens=7, min_tokens=3, stop=["a", "b"],
        stop_token_ids=[0, 999], ignore_eos=True, no_stop_trim=True, n=2,
        logit_bias={"0": -100, "999": 100},
    ) == Sampling(
        temperature=0.5, top_p=0.9, top_k=40, min_p=0.1, frequency_penalty=-2.0,
        presence_penalty=2.0, repetition_penalty=1.1, max_new_tokens=7, min_new_tokens=3,
        stop=("a", "b"), stop_token_ids=(0, 999), ignore_eos=True, no_stop_trim=True, n=2,
        logit_bias=((0, -100.0), (999, 100.0)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 5}, 5),
        ({"max_tokens": 9, "max_completion_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": None}, 5),
        ({"max_tokens": None}, None),
        ({}, None),
    ],
)
def test_a36_the_newer_length_limit_wins(fields: dict[str, Any], limit: int | None) -> None:
    """Field failure A36: max_completion_tokens over max_tokens; none means the context's end."""
    assert sampled(**fields).max_new_tokens == limit


def test_other_spellings_mean_the_same() -> None:
    """One stop as a string, vLLM's name of no_stop_trim, top_k 0, and top_p 0 as greedy."""
    assert sampled(stop="x").stop == ("x",)
    assert sampled(include_stop_str_in_output=True).no_stop_trim
    assert sampled(top_k=0).top_k == -1
    assert sampled(top_k=10**6).top_k == VOCAB
    assert (sampled(top_p=0).top_p, sampled(top_p=0).top_k) == (1.0, 1)
    # 1e-50 is 0 in the wire's 32 bits, where 0 would mean 1.
    assert (sampled(top_p=1e-50).top_p, sampled(top_p=1e-50).top_k) == (1.0, 1)


OUT_OF_RANGE: list[tuple[dict[str, Any], str, str]] = [
    ({"temperature": -0.1}, "decimal_below_min_value", "temperature"),
    ({"temperature": 2.1}, "decimal_above_max_value", "temperature"),
    ({"top_p": -0.1}, "decimal_below_min_value", "top_p"),
    ({"top_p": 1.1}, "decimal_above_max_value", "top_p"),
    ({"top_k": -2}, "integer_below_min_value", "top_k"),
    ({"top_k": 2**31}, "integer_above_max_value", "top_k"),
    ({"min_p": 2}, "decimal_above_max_value", "min_p"),
    ({"frequency_penalty": -2.1}, "decimal_below_min_value", "frequency_penalty"),
    ({"presence_penalty": 5}, "decimal_above_max_value", "presence_penalty"),
    ({"repetition_penalty": 0}, "decimal_below_min_value", "repetition_penalty"),
    ({"repetition_penalty": -1}, "decimal_below_min_value", "repetition_penalty"),
    ({"repetition_penalty": 2.1}, "decimal_above_max_value", "repetition_penalty"),
    ({"max_tokens": 0}, "integer_below_min_value", "max_tokens"),
    ({"max_completion_tokens": -5}, "integer_below_min_value", "max_completion_tokens"),
    ({"max_tokens": 2**31}, "integer_above_max_value", "max_tokens"),
    ({"min_tokens": -1}, "integer_below_min_value", "min_tokens"),
    ({"min_tokens": 6, "max_tokens": 5}, "integer_above_max_value", "min_tokens"),
    ({"n": 0}, "integer_below_min_value", "n"),
    ({"n": 129}, "integer_above_max_value", "n"),
    ({"stop": ""}, "invalid_value", "stop"),
    ({"stop": ["a", ""]}, "invalid_value", "stop[1]"),
    ({"stop": ["a"] * 33}, "array_above_max_length", "stop"),
    ({"stop": "a" * 4097}, "string_above_max_length", "stop"),
    ({"stop_token_ids": [1, -1]}, "integer_below_min_value", "stop_token_ids[1]"),
    ({"stop_token_ids": [VOCAB]}, "integer_above_max_value", "stop_token_ids[0]"),
    ({"stop_token_ids": [1] * 1025}, "array_above_max_length", "stop_token_ids"),
    ({"logit_bias": {"abc": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {" 5": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"1_0": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"\u0665": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {str(VOCAB): 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"9" * 5000: 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"5": 101}}, "decimal_above_max_value", "logit_bias.5"),
    ({"logit_bias": {str(at): 1 for at in range(1025)}}, "array_above_max_length", "logit_bias"),
]


@pytest.mark.parametrize(("fields", "code", "param"), OUT_OF_RANGE)
def test_values_out_of_range_are_refused_by_name(
    fields: dict[str, Any], code: str, param: str
) -> None:
    """Each value an engine should not be sent is 400 with OpenAI's code and the field's name."""
    error = refused(**fields)

    assert (error.status, error.code, error.param) == (400, code, param)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "name", ["temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty"]
)
def test_numbers_that_are_none_are_refused(name: str, value: float) -> None:
    """A NaN temperature ends an engine; JSON cannot say it, but another API's adapter might."""
    parameters = msgspec.structs.replace(SamplingParameters(), **{name: value})
    with pytest.raises(InvalidRequestError) as caught:
        in_range(parameters)

    assert caught.value.param == name


def test_the_constraint_is_handed_on() -> None:
    """The grammar belongs to the sampling."""
    grammar = Constraint("regex", "a+")

    sampling = sampling_of(SamplingParameters(), vocab_size=VOCAB, constraint=grammar)
    assert sampling.constraint == grammar


def test_the_models_defaults_fill_only_what_is_unset() -> None:
    """generation_config speaks where the client is silent."""
    defaults = defaults_of('{"temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": 1}')
    parameters = SamplingParameters(temperature=0.0, top_k=5)

    sampling = sampling_of(parameters, vocab_size=VOCAB, defaults=defaults)
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.0, 5, 0.95)


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "not json", "[" * 100_000, '{"temperature": "hot"}', '{"temperature": NaN}',
        '{"temperature": 99}', '{"top_k": 1.5}', '{"top_k": -7}', '{"top_p": true}',
        '{"repetition_penalty": 0}', '{"min_p": null}', '{"temperature": 1' + "0" * 400 + "}",
    ],
)  # fmt: skip
def test_broken_defaults_count_as_unset(text: str) -> None:
    """A model's file may hold anything; nothing of it may harm a request."""
    assert defaults_of(text) == SamplingDefaults()


numbers = (
    st.none()
    | st.integers()
    | st.integers(-3, 140)
    | st.floats()
    | st.floats(-3, 3)
    | st.text(max_size=3)
    | st.booleans()
    | st.sampled_from([0, -0.0, 1e-320, 1e-45, 1e308, 2**31, 2**63, 2**64, 5e-324])
)
NUMERIC = [
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty",
    "repetition_penalty", "max_completion_tokens", "max_tokens", "min_tokens", "n",
]  # fmt: skip
requests = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(NUMERIC, numbers)
    | {
        "stop": st.text(max_size=3) | st.lists(st.text(max_size=3), max_size=40) | numbers,
        "stop_token_ids": st.lists(numbers, max_size=4) | numbers,
        "logit_bias": st.dictionaries(
            st.text(max_size=4) | st.integers(-2, 2 * VOCAB).map(str), numbers, max_size=4
        ),
    },
)


def as_sent(value: float) -> float:
    """Return *value* as the wire's 32 bits carry it."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def assert_safe(sampling: Sampling) -> None:
    """Fail unless every field is one that sglang's own ``verify`` accepts, on the wire too."""
    assert 0 <= as_sent(sampling.temperature) <= 2
    assert 0 < as_sent(sampling.top_p) <= 1
    assert sampling.top_k == -1 or 1 <= sampling.top_k <= VOCAB
    assert 0 <= as_sent(sampling.min_p) <= 1
    assert -2 <= as_sent(sampling.frequency_penalty) <= 2
    assert -2 <= as_sent(sampling.presence_penalty) <= 2
    assert 0.009 < as_sent(sampling.repetition_penalty) <= 2
    limit = sampling.max_new_tokens
    assert limit is None or 1 <= limit < 2**31
    assert 0 <= sampling.min_new_tokens <= (2**31 - 1 if limit is None else limit)
    assert 1 <= sampling.n <= 128
    assert len(sampling.stop) <= 32
    assert all(sampling.stop)
    assert all(0 <= token_id < VOCAB for token_id in sampling.stop_token_ids)
    assert all(0 <= token_id < VOCAB for token_id, _ in sampling.logit_bias)
    assert all(-100 <= bias <= 100 for _, bias in sampling.logit_bias)
    integers = [sampling.top_k, sampling.min_new_tokens, sampling.n, *sampling.stop_token_ids]
    assert {type(value) for value in integers} == {int}


@given(requests)
@example({"top_p": 1e-320})
@example({"temperature": -0.0, "repetition_penalty": 5e-324})
def test_any_json_is_safe_for_the_engine_or_refused(fields: dict[str, Any]) -> None:
    """Whatever stands in the numeric fields: a safe Sampling or a refusal."""
    try:
        sampling = sampled(**fields)
    except (InvalidRequestError, msgspec.DecodeError):  # the schema tells the second
        return

    assert_safe(sampling)


def test_the_same_wish_is_made_complete_for_each_vocabulary_and_each_models_defaults() -> None:
    """What is kept for one model is not what another one is told."""
    wish = in_range(SamplingParameters(top_k=50, max_tokens=7))
    warm = SamplingDefaults(temperature=0.3)

    told = [
        sampling_of(wish, vocab_size=size, defaults=defaults)
        for _ in range(2)
        for size, defaults in ((1000, SamplingDefaults()), (20, SamplingDefaults()), (1000, warm))
    ]

    assert told[:3] == told[3:]
    assert [(each.top_k, each.temperature) for each in told[:3]] == [
        (50, 1.0),
        (20, 1.0),
        (50, 0.3),
    ]
