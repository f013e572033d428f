"""Every field of a request is the engine's, not proto3's zero."""

from __future__ import annotations

import pytest
from google.protobuf.struct_pb2 import Struct
from msgspec.structs import replace

from sglr_dataplane.engine.answers import Answers
from sglr_dataplane.engine.facts import engine_facts
from sglr_dataplane.engine.messages import generate_request, take
from sglr_dataplane.errors import WorkerError
from sglr_dataplane.job import Constraint, Extras, Job, LogprobsWish, Sampling, TokenLogprob
from sglr_proto.sglang import scheduler_pb2


def test_defaults_are_spelled_out() -> None:
    """A job with a prompt only asks for OpenAI's defaults in so many words."""
    request = generate_request(Job(id="ab" * 16, model="m", input_ids=(5, 6)))
    params = request.sampling_params

    assert request.request_id == "ab" * 16
    assert list(request.tokenized.input_ids) == [5, 6]
    assert request.stream
    assert request.logprob_start_len == -1
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (1.0, 1.0, -1, 0.0)
    assert (params.repetition_penalty, params.n) == (1.0, 1)
    assert not params.HasField("max_new_tokens")
    assert not params.skip_special_tokens
    assert params.spaces_between_special_tokens
    assert params.WhichOneof("constraint") is None


def test_every_parameter_reaches_its_field() -> None:
    """No two fields are swapped and none is left out."""
    sampling = Sampling(
        temperature=0.5,
        top_p=0.25,
        top_k=7,
        min_p=0.125,
        frequency_penalty=1.5,
        presence_penalty=-0.5,
        repetition_penalty=1.25,
        max_new_tokens=0,
        min_new_tokens=0,
        stop=("a", "b"),
        stop_token_ids=(3,),
        ignore_eos=True,
        no_stop_trim=True,
        n=4,
        logit_bias=((9, -1.0), (10, 2.0)),
    )
    request = generate_request(
        Job(
            id="0" * 32,
            model="m",
            input_ids=(1,),
            sampling=sampling,
            stream=False,
            require_reasoning=True,
        )
    )
    params = request.sampling_params

    assert params.temperature == 0.5
    assert params.top_p == 0.25
    assert params.top_k == 7
    assert params.min_p == 0.125
    assert params.frequency_penalty == 1.5
    assert params.presence_penalty == -0.5
    assert params.repetition_penalty == 1.25
    assert params.HasField("max_new_tokens")
    assert params.max_new_tokens == 0
    assert list(params.stop) == ["a", "b"]
    assert list(params.stop_token_ids) == [3]
    assert params.ignore_eos
    assert params.no_stop_trim
    assert params.n == 4
    assert dict(params.logit_bias) == {"9": -1.0, "10": 2.0}
    assert not request.stream
    assert request.require_reasoning


def test_with_a_minimum_of_tokens_stop_strings_are_the_routers_alone() -> None:
    """An engine's minimum keeps end tokens away, but ends at a stop string all the same."""
    wanted = Sampling(min_new_tokens=3, stop=("a",), stop_token_ids=(7,))
    params = generate_request(Job("0" * 32, "m", (1,), wanted)).sampling_params

    assert list(params.stop) == []
    assert (params.min_new_tokens, list(params.stop_token_ids)) == (3, [7])


@pytest.mark.parametrize("kind", ["json_schema", "regex", "ebnf_grammar", "structural_tag"])
def test_a_grammar_fills_its_own_arm(kind: str) -> None:
    """Each kind of constraint is the arm of the same name."""
    constraint = Constraint(kind, "source")  # type: ignore[arg-type]  # one of the literals
    job = Job(id="0" * 32, model="m", input_ids=(1,), sampling=Sampling(constraint=constraint))
    params = generate_request(job).sampling_params

    assert params.WhichOneof("constraint") == kind
    assert getattr(params, kind) == "source"


def test_a_message_of_another_contract_is_an_error() -> None:
    """A response without a known arm, as the contract of 2025 sends, is not skipped."""
    answers = Answers(Job(id="0" * 32, model="m", input_ids=(1,)))

    with pytest.raises(WorkerError, match="contract"):
        take(answers, scheduler_pb2.GenerateResponse(request_id="x"))


def test_a_matched_token_zero_is_not_nothing() -> None:
    """Token id 0 that ended a choice is told apart from no token."""
    answers = Answers(Job(id="0" * 32, model="m", input_ids=(1,)))
    complete = scheduler_pb2.GenerateComplete(finish_reason="stop", matched_token_id=0)

    chunk = take(answers, scheduler_pb2.GenerateResponse(complete=complete))

    assert chunk is not None
    assert chunk.finish is not None
    assert chunk.finish.matched == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"tool_call_parser": "glm47", "reasoning_parser": "glm45"}, ("glm47", "glm45")),
        ({"tool_call_parser": None, "reasoning_parser": None}, ("", "")),
        ({}, (None, None)),
    ],
)
def test_facts_tell_the_parsers_of_a_worker(
    arguments: dict[str, str | None], told: tuple[str | None, str | None]
) -> None:
    """None that is named is told apart from a worker that does not say."""
    named = Struct()
    named.update(arguments)
    server = scheduler_pb2.GetServerInfoResponse(server_args=named)

    facts = engine_facts(scheduler_pb2.GetModelInfoResponse(), server)

    assert (facts.tool_call_parser, facts.reasoning_parser) == told


def test_facts_leave_out_what_cannot_be_trusted() -> None:
    """Numbers that are null, zero or absent are None, not limits."""
    arguments = Struct()
    arguments.update({"context_length": None, "max_running_requests": 32})
    server = scheduler_pb2.GetServerInfoResponse(server_args=arguments, sglang_version="0.5.23")
    model = scheduler_pb2.GetModelInfoResponse(
        served_model_name="qwen", max_context_length=65536, vocab_size=128256
    )

    facts = engine_facts(model, server)

    assert facts.served_model_name == "qwen"
    assert facts.max_req_input_len is None
    assert facts.context_length is None
    assert facts.max_running_requests == 32
    assert facts.version == "0.5.23"


@pytest.mark.parametrize(
    ("declared", "longest", "window"),
    [(8192, 8186, 8192), (None, 8186, 8192), (32768, 4090, 4096), (4096, 0, 4096), (None, 0, None)],
)
def test_the_window_is_what_the_worker_has_room_for(
    declared: int | None, longest: int, window: int | None
) -> None:
    """What is declared, or what the longest prompt tells: whichever is less; a prompt may be six short."""
    arguments = Struct()
    arguments.update({"context_length": declared})
    server = scheduler_pb2.GetServerInfoResponse(server_args=arguments)
    model = scheduler_pb2.GetModelInfoResponse(max_req_input_len=longest)

    assert engine_facts(model, server).context_length == window


def test_wished_logprobs_reach_their_fields() -> None:
    """A job that asks for them says how many, and from where in the prompt; 0 is its beginning."""
    job = Job(id="0" * 32, model="m", input_ids=(1,), logprobs=LogprobsWish(top=3, prompt_from=0))
    asked = generate_request(job)
    answer_only = generate_request(replace(job, logprobs=LogprobsWish()))

    assert (asked.return_logprob, asked.logprob_start_len, asked.top_logprobs_num) == (True, 0, 3)
    assert (answer_only.return_logprob, answer_only.logprob_start_len) == (True, -1)


def test_logprobs_are_read_with_their_alternatives() -> None:
    """Each token has its value and its alternatives; a prompt's first token has no value."""
    top = scheduler_pb2.TopLogProbs(values=[-0.5, -1.5], token_ids=[7, 8])
    message = scheduler_pb2.GenerateResponse(
        chunk=scheduler_pb2.GenerateStreamChunk(
            token_ids=[7],
            completion_tokens=1,
            output_logprobs=scheduler_pb2.OutputLogProbs(
                token_logprobs=[-0.5], token_ids=[7], top_logprobs=[top]
            ),
            input_logprobs=scheduler_pb2.InputLogProbs(
                token_logprobs=[
                    scheduler_pb2.InputTokenLogProb(),
                    scheduler_pb2.InputTokenLogProb(value=-0.25),
                ],
                token_ids=[1, 2],
            ),
        )
    )
    chunk = take(Answers(Job("0" * 32, "m", (1, 2), logprobs=LogprobsWish(top=2))), message)

    assert chunk is not None
    assert chunk.extras == Extras(
        logprobs=(TokenLogprob(7, -0.5, ((7, -0.5), (8, -1.5))),),
        prompt_logprobs=(TokenLogprob(1, None), TokenLogprob(2, -0.25)),
    )
