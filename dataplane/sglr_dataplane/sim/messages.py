"""The messages of one choice: chunks, complete, and simple deterministic logprobs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglr_proto.sglang import scheduler_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sglr_dataplane.sim.generation import Finish


@dataclass(frozen=True, slots=True)
class Told:
    """What a message says besides its ids; counts are cumulative."""

    completion_tokens: int
    first: bool = False
    """Whether this is the choice's first message: the only one with input logprobs."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the messages of one choice."""

    request: pb.GenerateRequest
    vocab_size: int
    cached_tokens: int = 0
    index: int = 0
    reasoning_tokens: int = 0
    """How many tokens the answer's thought has, its end included; counted only on request."""

    def chunk(self, ids: Sequence[int], told: Told) -> pb.GenerateResponse:
        """Return a streamed chunk of *ids*."""
        chunk = pb.GenerateStreamChunk(
            token_ids=ids,
            prompt_tokens=len(self.request.tokenized.input_ids),
            completion_tokens=told.completion_tokens,
            cached_tokens=self.cached_tokens,
            index=self.index,
            reasoning_tokens=min(told.completion_tokens, self.reasoning_tokens),
        )
        if self.request.return_logprob:
            chunk.output_logprobs.CopyFrom(self._output_logprobs(ids, ids))
            if told.first and self.request.logprob_start_len >= 0:
                chunk.input_logprobs.CopyFrom(self._input_logprobs())
        return pb.GenerateResponse(request_id=self.request.request_id, chunk=chunk)

    def complete(
        self, ids: Sequence[int], finish: Finish, told: Told, spoken: Sequence[int]
    ) -> pb.GenerateResponse:
        """Return the message that ends the choice.

        Args:
            ids: The ids it repeats; in a stream the last delta only, and logprobs likewise.
            finish: How the generation ended.
            told: The counts.
            spoken: All ids of the choice: selected-token logprobs are complete in both modes.
        """
        complete = pb.GenerateComplete(
            output_ids=ids,
            finish_reason=finish.reason,
            prompt_tokens=len(self.request.tokenized.input_ids),
            completion_tokens=told.completion_tokens,
            cached_tokens=self.cached_tokens,
            index=self.index,
            reasoning_tokens=min(told.completion_tokens, self.reasoning_tokens),
        )
        if isinstance(finish.matched, int):
            complete.matched_token_id = finish.matched
        elif finish.matched is not None:
            complete.matched_stop_str = finish.matched
        if self.request.return_logprob:
            complete.output_logprobs.CopyFrom(self._output_logprobs(ids, spoken))
            if told.first and self.request.logprob_start_len >= 0:
                complete.input_logprobs.CopyFrom(self._input_logprobs())
        return pb.GenerateResponse(request_id=self.request.request_id, complete=complete)

    def _output_logprobs(self, ids: Iterable[int], selected: Iterable[int]) -> pb.OutputLogProbs:
        wanted = self.request.token_ids_logprob
        return pb.OutputLogProbs(
            token_logprobs=[logprob(token) for token in ids],
            token_ids=ids,
            top_logprobs=self._top(ids),
            token_ids_logprobs=[
                pb.TopLogProbs(values=[logprob(token) for token in wanted], token_ids=wanted)
                for _ in (selected if wanted else ())
            ],
        )

    def _input_logprobs(self) -> pb.InputLogProbs:
        """Return the prompt's logprobs from logprob_start_len on; the first has no value."""
        ids = self.request.tokenized.input_ids[self.request.logprob_start_len :]
        values = [pb.InputTokenLogProb(value=logprob(token)) for token in ids[1:]]
        return pb.InputLogProbs(
            token_logprobs=[pb.InputTokenLogProb(), *values],
            token_ids=ids,
            top_logprobs=self._top(ids),
        )

    def _top(self, ids: Iterable[int]) -> list[pb.TopLogProbs]:
        """Return per token its *top_logprobs_num* best: itself, then the ids after it."""
        count = self.request.top_logprobs_num
        if count <= 0:
            return []
        return [
            pb.TopLogProbs(
                values=[logprob(token) - rank for rank in range(count)],
                token_ids=[(token + rank) % self.vocab_size for rank in range(count)],
            )
            for token in ids
        ]


def logprob(token: int) -> float:
    """Return the logprob of *token*: between -1 and -1/64, exact in a float32."""
    return -(token % 64 + 1) / 64
