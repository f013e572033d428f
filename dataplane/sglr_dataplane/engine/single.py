"""A stream of one chunk: calls that are answered by one message, behind the engines' one protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self

from sglr_dataplane.job import Chunk, Extras, Finish, Job, Usage
from sglr_proto.sglang import scheduler_pb2


class SingleChunk:
    """The one chunk of a job that does not generate."""

    def __init__(self, ask: Callable[[], Awaitable[Chunk]]) -> None:
        """Ask with *ask*, at the first ``__anext__``; cancelling that cancels the call."""
        self._ask = ask
        self._is_over = False

    def __repr__(self) -> str:
        return f"<SingleChunk{' over' if self._is_over else ''}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        """Return the chunk, once; raises what the call raises."""
        if self._is_over:
            raise StopAsyncIteration
        self._is_over = True
        return await self._ask()

    async def aclose(self) -> None:
        """Be over."""
        self._is_over = True


def embed_request(job: Job) -> scheduler_pb2.EmbedRequest:
    """Return the message that asks a worker for the embedding of *job*'s prompt."""
    return scheduler_pb2.EmbedRequest(
        request_id=job.id,
        tokenized=scheduler_pb2.TokenizedInput(input_ids=job.input_ids),
    )


def embedding_chunk(answer: scheduler_pb2.EmbedResponse) -> Chunk:
    """Return *answer* as the chunk of a finished job."""
    return Chunk(
        token_ids=(),
        usage=Usage(prompt_tokens=answer.prompt_tokens),
        finish=Finish("stop"),
        extras=Extras(embedding=tuple(answer.embedding)),
    )
