"""Requests that end the real engine's process, and the one that makes it hang.

Nothing checks them on the gRPC path: SGLang's ``SamplingParams.verify`` runs on its HTTP path only.
Each was seen on a running sglang 0.5.23 with smg-grpc-servicer 0.14.1. Pure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglr_proto.sglang import scheduler_pb2 as pb


def death_of(request: pb.GenerateRequest, vocab_size: int) -> str | None:
    """Return why *request* ends the engine's process; None when it does not."""
    ids = request.tokenized.input_ids
    if not ids:
        return "input_ids is empty"
    if max(ids) >= vocab_size:
        return f"input id {max(ids)} is outside the vocabulary of {vocab_size}"
    if math.isnan(request.sampling_params.temperature):
        return "temperature is NaN"
    return _bias_death(request.sampling_params.logit_bias, vocab_size) or _logprob_death(
        request, vocab_size
    )


def hangs(request: pb.GenerateRequest) -> bool:
    """Return whether *request* is never answered: a negative repetition penalty."""
    return request.sampling_params.repetition_penalty < 0


def _bias_death(keys: Iterable[str], vocab_size: int) -> str | None:
    for key in keys:
        try:
            token = int(key)
        except ValueError:
            return f"logit_bias key {key!r} is no integer"
        if not -vocab_size <= token < vocab_size:
            return f"logit_bias key {key!r} is outside the vocabulary of {vocab_size}"
    return None


def _logprob_death(request: pb.GenerateRequest, vocab_size: int) -> str | None:
    """Return why the logprob fields end the process; they are read only when logprobs are asked."""
    if not request.return_logprob:
        return None
    if any(token >= vocab_size for token in request.token_ids_logprob):
        return "token_ids_logprob names an id outside the vocabulary"
    if request.top_logprobs_num > vocab_size:
        return f"top_logprobs_num {request.top_logprobs_num} is more than the vocabulary holds"
    if request.logprob_start_len < -1:
        return f"logprob_start_len {request.logprob_start_len} is below -1"
    return None
