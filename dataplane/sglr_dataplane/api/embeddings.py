"""``POST /v1/embeddings``: each input is a job of its own, on any worker of an embedding model."""

from __future__ import annotations

import base64
import struct
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from sglr_dataplane.api.aside import aside
from sglr_dataplane.api.auth import caller_of
from sglr_dataplane.api.presence import Presence
from sglr_dataplane.api.schema.embeddings import decode_embedding
from sglr_dataplane.api.schema.refusals import invalid
from sglr_dataplane.api.together import dispatch_all
from sglr_dataplane.errors import NotServedError, WorkerError
from sglr_dataplane.job import Extras, Job, new_job_id
from sglr_dataplane.prompt.length import check_length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.api.schema.embeddings import EmbeddingRequest
    from sglr_dataplane.config import Limits
    from sglr_dataplane.fleet.caller import Caller
    from sglr_dataplane.fleet.dispatch import Dispatcher
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.metrics import RouterMetrics
    from sglr_dataplane.recipe import PromptIds, Recipe, Recipes

    Vector = tuple[float, ...]


class Embeddings:
    """Answers embedding requests."""

    def __init__(
        self,
        recipes: Recipes,
        registry: Registry,
        dispatcher: Dispatcher,
        metrics: RouterMetrics,
        *,
        limits: Limits,
    ) -> None:
        """Embed with these parts."""
        self._recipes = recipes
        self._registry = registry
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._limits = limits

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request.

        Raises:
            RouterError: It fails.
            ClientGoneError: The client left; the workers' calls are cancelled.
        """
        body = await exchange.body(self._limits.max_body_bytes)
        asked = await aside(len(body), lambda: decode_embedding(body))
        caller = caller_of(exchange)
        recipe = self._recipes.find(asked.model, caller)
        if recipe.adapter:
            raise NotServedError(
                "Workers are spoken to over gRPC, whose call for embeddings takes no adapter.",
                param="model",
            )
        exchange.note(model=asked.model, stream=False)
        with Presence(exchange):
            inputs = zip(asked.inputs, asked.paths, strict=True)
            prompts = await recipe.aside(
                len(body), lambda: [recipe.text_prompt(each, path) for each, path in inputs]
            )
            jobs = [self._job(asked, recipe, prompt) for prompt in prompts]
            vectors, tokens = await self._embedded(recipe, jobs, caller)
        _check_dimensions(asked, len(vectors[0]))
        self._metrics.tokens.labels(asked.model, "prompt").inc(tokens)
        exchange.note(prompt_tokens=tokens)
        await exchange.answer(
            {
                "object": "list",
                "data": [
                    {"object": "embedding", "index": at, "embedding": _encoded(vector, asked)}
                    for at, vector in enumerate(vectors)
                ],
                "model": asked.model,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )

    def _job(self, asked: EmbeddingRequest, recipe: Recipe, prompt: PromptIds) -> Job:
        abilities = self._registry.abilities(recipe.backend_key)
        facts = abilities.facts
        if facts is not None and facts.is_generation:
            raise NotServedError(
                f"The model {asked.model!r} generates text; it has no embeddings.", param="model"
            )
        check_length(
            len(prompt.ids),
            None,
            longest_prompt=abilities.longest_prompt,
            context=abilities.context,
            param="input",
        )
        return Job(new_job_id(), asked.model, prompt.ids, stream=False, task="embed")

    async def _embedded(
        self, recipe: Recipe, jobs: Sequence[Job], caller: Caller
    ) -> tuple[list[Vector], int]:
        """Return the vector of each job, and what all prompts had in tokens."""
        vectors: dict[int, Vector] = {}
        tokens = 0
        chunks = await dispatch_all(self._dispatcher, recipe.backend_key, jobs, caller)
        async with aclosing(chunks):
            async for chunk in chunks:
                vectors[chunk.index] = (chunk.extras or Extras()).embedding
                tokens += chunk.usage.prompt_tokens
        if len({len(vector) for vector in vectors.values()}) != 1 or not vectors[0]:
            raise WorkerError("The worker's embeddings are empty, or not of one length.")
        return [vectors[at] for at in range(len(jobs))], tokens


def _check_dimensions(asked: EmbeddingRequest, own: int) -> None:
    if asked.dimensions not in (None, own):
        raise invalid("dimensions", f"the model's embeddings have {own}; they are not shortened")


def _encoded(vector: Vector, asked: EmbeddingRequest) -> Any:
    if not asked.base64:
        return vector
    # openai-python reads little-endian float32, and asks for them unless it is told otherwise.
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
