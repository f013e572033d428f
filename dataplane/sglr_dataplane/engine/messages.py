"""Jobs as messages of ``sglang.grpc.scheduler``, and its messages as answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglr_dataplane.errors import WorkerError
from sglr_dataplane.job import Extras, TokenLogprob, Usage
from sglr_proto.sglang import scheduler_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglr_dataplane.engine.answers import Answers
    from sglr_dataplane.job import Chunk, Job, Sampling


def generate_request(job: Job) -> scheduler_pb2.GenerateRequest:
    """Return the message that asks a worker for *job*."""
    return scheduler_pb2.GenerateRequest(
        request_id=job.id,
        tokenized=scheduler_pb2.TokenizedInput(input_ids=job.input_ids),
        sampling_params=sampling_params(job.sampling),
        return_logprob=job.logprobs is not None,
        logprob_start_len=_logprobs_from(job),
        top_logprobs_num=job.logprobs.top if job.logprobs is not None else 0,
        log_metrics=True,
        stream=job.stream,
        require_reasoning=job.require_reasoning,
        lora_id=job.lora_id,
    )


def _logprobs_from(job: Job) -> int:
    if job.logprobs is None or job.logprobs.prompt_from is None:
        # The wire's default, 0, makes the engine compute the whole prompt's log probabilities and
        # bypass its prefix cache.
        return -1
    return job.logprobs.prompt_from


def sampling_params(sampling: Sampling) -> scheduler_pb2.SamplingParams:
    """Return *sampling* with every field set: proto3's zeroes are not the engine's defaults."""
    params = scheduler_pb2.SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        repetition_penalty=sampling.repetition_penalty,
        # None stays absent: the engine then generates up to the context limit.
        max_new_tokens=sampling.max_new_tokens,
        # sglang's minimum keeps end tokens away, but not strings: then only the router looks.
        stop=() if sampling.min_new_tokens else sampling.stop,
        stop_token_ids=sampling.stop_token_ids,
        # Ids come back, not text: nothing may be left out of what stop strings are held against.
        skip_special_tokens=False,
        spaces_between_special_tokens=True,
        # Passed on raw by the servicer: 0 would be no choice at all.
        n=max(sampling.n, 1),
        min_new_tokens=sampling.min_new_tokens,
        ignore_eos=sampling.ignore_eos,
        no_stop_trim=sampling.no_stop_trim,
    )
    for token_id, bias in sampling.logit_bias:
        params.logit_bias[str(token_id)] = bias
    if sampling.constraint is not None:
        setattr(params, sampling.constraint.kind, sampling.constraint.source)
    return params


def take(answers: Answers, message: scheduler_pb2.GenerateResponse) -> Chunk | None:
    """Return what *message* adds to *answers*; None when it adds nothing.

    Raises:
        WorkerError: The message is neither a chunk nor a completion, or contradicts the others.
        TruncatedStreamError: The engine aborted the generation.
    """
    kind = message.WhichOneof("response")
    if kind == "chunk":
        chunk = message.chunk
        return answers.chunk(tuple(chunk.token_ids), _usage(chunk), chunk.index, _extras(chunk))
    if kind == "complete":
        complete = message.complete
        return answers.complete(
            tuple(complete.output_ids),
            _usage(complete),
            complete.index,
            reason=complete.finish_reason,
            matched=_matched(complete),
            extras=_extras(complete),
        )
    # The contract of 2025, before smg-grpc-proto 0.4.8, had other arms under the same name.
    raise WorkerError("The worker's answer is of a contract this router does not speak.")


def _usage(message: scheduler_pb2.GenerateStreamChunk | scheduler_pb2.GenerateComplete) -> Usage:
    return Usage(
        prompt_tokens=message.prompt_tokens,
        completion_tokens=message.completion_tokens,
        cached_tokens=message.cached_tokens,
        reasoning_tokens=message.reasoning_tokens,
    )


def _extras(
    message: scheduler_pb2.GenerateStreamChunk | scheduler_pb2.GenerateComplete,
) -> Extras | None:
    """Return the log probabilities in *message*; None when it has none."""
    if not message.HasField("output_logprobs") and not message.HasField("input_logprobs"):
        return None
    output, given = message.output_logprobs, message.input_logprobs
    values = [each.value if each.HasField("value") else None for each in given.token_logprobs]
    return Extras(
        logprobs=_logprobs(output.token_ids, output.token_logprobs, output.top_logprobs),
        prompt_logprobs=_logprobs(given.token_ids, values, given.top_logprobs),
    )


def _logprobs(
    ids: Sequence[int],
    values: Sequence[float | None],
    tops: Sequence[scheduler_pb2.TopLogProbs],
) -> tuple[TokenLogprob, ...]:
    """Return one entry for each token that has its id and its value; *tops* may be missing."""
    alternatives = [tuple(zip(top.token_ids, top.values, strict=False)) for top in tops]
    alternatives += [()] * (len(ids) - len(alternatives))
    return tuple(map(TokenLogprob, ids, values, alternatives))


def _matched(complete: scheduler_pb2.GenerateComplete) -> int | str | None:
    match complete.WhichOneof("matched_stop"):
        case "matched_token_id":
            return complete.matched_token_id
        case "matched_stop_str":
            return complete.matched_stop_str
        case None:
            return None
