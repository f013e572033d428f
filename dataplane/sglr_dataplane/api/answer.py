"""All choices of one answer: a worker's chunks in, each choice's deltas out."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Self

from sglr_dataplane.job import Usage
from sglr_dataplane.output.pipeline import Pipeline
from sglr_dataplane.output.sink import ToolSignature
from sglr_dataplane.output.thinking import reasoning_start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sglr_dataplane.api.schema import ChatRequest
    from sglr_dataplane.job import Chunk, Job
    from sglr_dataplane.output.deltas import Delta
    from sglr_dataplane.recipe import PromptIds, Recipe


class Answer:
    """The choices of one answer as they come; ends when every choice has finished.

    The stream of chunks stays the caller's to close: when stop strings ended every choice before
    the worker noticed, it still runs.
    """

    def __init__(self, chunks: AsyncIterator[Chunk], pipelines: Sequence[Pipeline]) -> None:
        """Feed *chunks* to the pipeline of their choice."""
        self._chunks = chunks
        self._pipelines = pipelines
        self._open = len(pipelines)
        self.usages = [Usage()] * len(pipelines)
        """By choice, what it has cost so far."""

    def __aiter__(self) -> Self:
        """Return the answer itself."""
        return self

    async def __anext__(self) -> tuple[int, list[Delta]]:
        """Return a choice's index and what the client learns next of it; may be nothing.

        Raises:
            RouterError: The worker failed.
            StopAsyncIteration: Every choice has finished.
        """
        if not self._open:
            raise StopAsyncIteration
        chunk = await anext(self._chunks)
        pipeline = self._pipelines[chunk.index]
        if pipeline.finished:
            return chunk.index, []
        deltas = pipeline.feed(chunk)
        self.usages[chunk.index] = chunk.usage
        self._open -= pipeline.finished
        return chunk.index, deltas


def pipelines_for(
    request: ChatRequest, recipe: Recipe, prompt: PromptIds, job: Job
) -> list[Pipeline]:
    """Return one fresh pipeline for each choice of *job*."""
    conversation = request.conversation
    calls = conversation.choice.mode != "none" and bool(conversation.tools)
    thoughts = recipe.reasoning_format if request.separate_reasoning else None
    return [
        Pipeline(
            recipe.vocabulary.decoder(),
            tool_format=recipe.tool_format if calls else None,
            reasoning_format=thoughts,
            starts=reasoning_start(prompt.text, thoughts),
            tools=tuple(ToolSignature(t.name, t.parameters) for t in conversation.tools),
            stop=job.sampling.stop,
            trim_stop=not job.sampling.no_stop_trim,
            hidden=recipe.vocabulary.special,
            tokens=recipe.added_tokens,
            calls_before=sum(len(message.tool_calls or ()) for message in conversation.messages),
            new_call_id=_new_call_id,
        )
        for _ in range(job.sampling.n)
    ]


def _new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
