"""Sampling parameters as the engine sees them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglr_dataplane.sim.generation import Limits
from sglr_proto.sglang import scheduler_pb2 as pb

if TYPE_CHECKING:
    from sglr_dataplane.sim.settings import WorkerSettings


def effective_sampling(wire: pb.SamplingParams) -> pb.SamplingParams:
    """Return *wire* with the three proto3 zeroes rewritten that the servicer takes for unset.

    A temperature of 0 stays: it is greedy. ``n`` 0 acts as 1.
    """
    seen = pb.SamplingParams()
    seen.CopyFrom(wire)
    seen.top_p = wire.top_p or 1.0
    seen.top_k = wire.top_k or -1
    seen.repetition_penalty = wire.repetition_penalty or 1.0
    return seen


def choices_of(request: pb.GenerateRequest) -> int:
    """Return how many choices *request* is answered with."""
    return max(request.sampling_params.n, 1)


def limits_of(
    request: pb.GenerateRequest, settings: WorkerSettings, eos_ids: tuple[int, ...]
) -> Limits:
    """Return what ends the generation of *request*; more tokens than fit are clipped in silence."""
    sampling = request.sampling_params
    room = settings.room(len(request.tokenized.input_ids))
    wanted = sampling.max_new_tokens if sampling.HasField("max_new_tokens") else room
    return Limits(
        max_new_tokens=min(wanted, room),
        min_new_tokens=sampling.min_new_tokens,
        ignore_eos=sampling.ignore_eos,
        eos_ids=frozenset(eos_ids),
        stop_token_ids=frozenset(sampling.stop_token_ids),
        stop=tuple(sampling.stop),
    )
