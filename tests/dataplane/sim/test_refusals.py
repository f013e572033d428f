"""INVALID_ARGUMENT: what the real worker refuses, in its words."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest

from sglr_dataplane.sim.refusals import refusal_of
from sglr_proto.sglang import scheduler_pb2 as pb
from support.sim import sim_worker
from support.sim_client import a_request, completes_of, connected

LIMIT = 100

REFUSED: dict[str, tuple[pb.GenerateRequest, str]] = {
    "no prompt field": (pb.GenerateRequest(), "Tokenized input must be provided"),
    "33 stops": (a_request(stop=["x"] * 33), "stop strings (33)"),
    "hidden states": (a_request(fields={"return_hidden_states": True}), "Hidden states"),
    "prompt at the limit": (
        a_request(ids=range(LIMIT)),
        "Input length (100 tokens) exceeds the maximum allowed length (100 tokens).",
    ),
    "regex": (a_request(regex="((("), "Failed to compile regex"),
    "schema that is no JSON": (a_request(json_schema="{nope"), "Failed to compile json_schema"),
    "schema that is no schema": (a_request(json_schema="[1]"), "Failed to compile json_schema"),
    "grammar without root": (a_request(ebnf_grammar="a ::= b"), "Failed to compile ebnf_grammar"),
    "tag that is no JSON": (a_request(structural_tag="<"), "Failed to compile structural_tag"),
    "tag of another type": (a_request(structural_tag="{}"), "Failed to compile structural_tag"),
    "tag without content": (
        a_request(structural_tag='{"type": "structural_tag"}'),
        "Failed to compile structural_tag",
    ),
}

TAKEN: dict[str, dict[str, Any]] = {
    "32 stops": {"stop": ["x"] * 32},
    "regex": {"regex": "[ab]{4}"},
    "schema": {"json_schema": json.dumps({"type": "object"})},
    "boolean schema": {"json_schema": "true"},
    "grammar": {"ebnf_grammar": 'root ::= "yes" | "no"'},
    "tag": {"structural_tag": '{"type": "structural_tag", "format": {"type": "any_text"}}'},
    "legacy tag": {
        "structural_tag": '{"type": "structural_tag", "structures": [], "triggers": []}'
    },
}


@pytest.mark.parametrize(("request_", "words"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_says_what_is_wrong(request_: pb.GenerateRequest, words: str) -> None:
    """Each message begins as the real worker's."""
    assert words in (refusal_of(request_, LIMIT) or "")


@pytest.mark.parametrize("sampling", TAKEN.values(), ids=TAKEN)
def test_what_compiles_is_taken(sampling: dict[str, Any]) -> None:
    """Both formats of a structural tag are known."""
    assert refusal_of(a_request(**sampling), LIMIT) is None


async def test_a_refusal_is_invalid_argument_and_harms_nobody() -> None:
    """The next request is answered as if nothing had been."""
    async with sim_worker(context_length=106) as worker, connected(worker.address) as client:
        _, error = await client.partial(a_request(ids=range(100)))
        answered = await client.generate(a_request(ids=range(99)))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(error.details()).startswith(
        "Input length (100 tokens) exceeds the maximum allowed length (100 tokens)."
    )
    assert completes_of(answered)
