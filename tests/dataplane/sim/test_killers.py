"""The nine requests that end the real engine, and the one it hangs on."""

from __future__ import annotations

import math
from typing import Any

import grpc
import pytest

from sglr_dataplane.sim.killers import death_of, hangs
from sglr_proto.sglang import scheduler_pb2 as pb
from support.sim import sim_worker
from support.sim_client import a_request, completes_of, connected

VOCAB = 4160
"""What the demo model's config.json says."""

DEADLY: dict[str, pb.GenerateRequest] = {
    "empty prompt": a_request(ids=()),
    "first id outside the vocabulary": a_request(ids=(1, VOCAB)),
    "huge id": a_request(ids=(9_999_999,)),
    "temperature NaN": a_request(temperature=math.nan),
    "logit_bias key that is no number": a_request(logit_bias={"abc": 1.0}),
    "logit_bias key outside the vocabulary": a_request(logit_bias={"99999999": 1.0}),
    "token_ids_logprob outside the vocabulary": a_request(
        fields={"return_logprob": True, "token_ids_logprob": [99_999_999]}
    ),
    "more top logprobs than tokens": a_request(
        fields={"return_logprob": True, "top_logprobs_num": VOCAB + 1}
    ),
    "logprob_start_len below -1": a_request(
        fields={"return_logprob": True, "logprob_start_len": -5}
    ),
}

HARMLESS: dict[str, pb.GenerateRequest] = {
    "last id of the vocabulary": a_request(ids=(VOCAB - 1,)),
    "temperature infinite": a_request(temperature=math.inf),
    "logit_bias at the edges": a_request(logit_bias={"0": 1.0, str(VOCAB - 1): -1.0}),
    "logprob fields without logprobs": a_request(
        fields={"token_ids_logprob": [99_999_999], "logprob_start_len": -5}
    ),
    "as many top logprobs as tokens": a_request(
        fields={"return_logprob": True, "top_logprobs_num": VOCAB, "logprob_start_len": -1}
    ),
}


@pytest.mark.parametrize("request_", DEADLY.values(), ids=DEADLY)
async def test_a_deadly_request_takes_every_call_with_it(request_: pb.GenerateRequest) -> None:
    """The connection breaks without a status from the worker, and the port is closed."""
    async with sim_worker() as worker:
        async with connected(worker.address) as client:
            messages, error = await client.partial(request_)
        async with connected(worker.address) as late:
            _, refused = await late.partial(a_request())

    assert messages == []
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    broken = (
        "Connection",
        "Socket closed",
        "Broken pipe",
    )  # as reading or writing notices it first
    assert any(sign in str(error.details()) for sign in broken)
    assert refused.code() is grpc.StatusCode.UNAVAILABLE
    assert len(worker.recorder.deaths) == 1


@pytest.mark.parametrize("request_", HARMLESS.values(), ids=HARMLESS)
async def test_what_only_looks_deadly_is_answered(request_: pb.GenerateRequest) -> None:
    """The borders of the nine are where the engine has them."""
    async with sim_worker() as worker, connected(worker.address) as client:
        messages = await client.generate(request_)

    assert len(completes_of(messages)) == 1
    assert worker.recorder.deaths == []


async def test_the_way_of_dying_can_be_injected() -> None:
    """A test may keep the worker alive and read why it would have died."""
    reasons: list[str] = []
    async with (
        sim_worker(die=reasons.append) as worker,
        connected(worker.address) as client,
    ):
        await client.partial(a_request(ids=()))
        answered = await client.generate(a_request())

    assert reasons == ["input_ids is empty"]
    assert completes_of(answered)


async def test_a_negative_repetition_penalty_is_never_answered() -> None:
    """The engine hangs on it; the others go on."""
    async with sim_worker() as worker, connected(worker.address) as client:
        hung = await client.hangs(a_request("hung", repetition_penalty=-1.0))
        answered = await client.generate(a_request("fine", repetition_penalty=1.0))

    assert hung
    assert completes_of(answered)


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [({"repetition_penalty": -1.0}, True), ({"repetition_penalty": 0.0}, False), ({}, False)],
)
def test_hanging_needs_a_negative_penalty(sampling: dict[str, Any], *, expected: bool) -> None:
    """Zero means unset."""
    assert hangs(a_request(**sampling)) is expected


def test_the_reason_names_the_value() -> None:
    """What killed a worker is read from its journal."""
    assert death_of(a_request(ids=(7,)), 7) == "input id 7 is outside the vocabulary of 7"
