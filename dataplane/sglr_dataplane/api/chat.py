"""``POST /v1/chat/completions``: the walk of one request."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from sglr_dataplane.api.answer import Answer, pipelines_for
from sglr_dataplane.api.exchange import Exchange
from sglr_dataplane.api.replies import chat_completion, usage_object
from sglr_dataplane.api.schema import ChatRequest, decode_chat
from sglr_dataplane.api.sse import ChatFrames
from sglr_dataplane.errors import RouterError
from sglr_dataplane.job import Job, new_job_id
from sglr_dataplane.output.collect import collect
from sglr_dataplane.prompt.length import check_length
from sglr_dataplane.prompt.sampling import defaults_of, sampling_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from sglr_dataplane.config import Limits
    from sglr_dataplane.fleet.dispatch import Dispatcher
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.metrics import RouterMetrics
    from sglr_dataplane.output.deltas import Delta
    from sglr_dataplane.recipe import PromptIds, Recipe, Recipes

_DECODE_IN_THREAD_ABOVE: Final = 500_000
"""Bytes: decoding holds the event loop for half a millisecond up to here."""


class ChatCompletions:
    """Answers chat completions, streamed or in one piece, by one and the same walk."""

    def __init__(
        self,
        recipes: Recipes,
        registry: Registry,
        dispatcher: Dispatcher,
        metrics: RouterMetrics,
        *,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Walk with these parts; *clock* is the access log's, *now* gives seconds since 1970."""
        self._recipes = recipes
        self._registry = registry
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._limits = limits
        self._clock = clock
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            RouterError: It fails before the answer has begun.
            ClientGoneError: The client left; the worker's call is cancelled.
        """
        exchange = Exchange(scope, receive, send)
        body = await exchange.body(self._limits.max_body_bytes)
        request = await self._decoded(body)
        recipe = self._recipes.find(request.model)
        exchange.note(model=request.model, stream=request.stream)
        if request.seed is not None:
            exchange.warn("seed has no effect: SGLang's gRPC interface has no field for it")
        async with exchange.while_connected():
            prompt = await recipe.prompt(request.conversation, len(body))
            job = self._job(request, recipe, prompt)
            exchange.note(job=job.id, prompt_tokens=len(job.input_ids))
            chunks = await self._dispatcher.dispatch(recipe.backend_key, job)
            async with aclosing(chunks):
                self._observe_first_token(exchange, request)
                answer = Answer(chunks, pipelines_for(request, recipe, prompt, job))
                send_answer = self._send_events if request.stream else self._send_whole
                await send_answer(exchange, request, answer)
                self._observe_tokens(exchange, request, answer)

    async def _decoded(self, body: bytes) -> ChatRequest:
        if len(body) <= _DECODE_IN_THREAD_ABOVE:
            return decode_chat(body)
        return await asyncio.to_thread(decode_chat, body)

    def _job(self, request: ChatRequest, recipe: Recipe, prompt: PromptIds) -> Job:
        facts = self._registry.facts(recipe.backend_key)
        sampling = sampling_of(
            request.sampling,
            vocab_size=recipe.vocabulary.size,
            defaults=defaults_of(facts.default_sampling_params if facts else ""),
            constraint=request.constraint,
        )
        check_length(
            len(prompt.ids),
            sampling.max_new_tokens,
            longest_prompt=self._registry.max_prompt_tokens(recipe.backend_key),
            context=facts.context_length if facts else None,
        )
        return Job(
            id=new_job_id(),
            model=request.model,
            input_ids=prompt.ids,
            sampling=sampling,
            stream=request.stream,
            require_reasoning=request.constraint is not None and recipe.thinks_after(prompt),
        )

    async def _send_whole(self, exchange: Exchange, request: ChatRequest, answer: Answer) -> None:
        deltas: list[list[Delta]] = [[] for _ in answer.usages]
        async for index, new in answer:
            deltas[index] += new
        completion = chat_completion(
            id=_new_completion_id(),
            created=int(self._now()),
            model=request.model,
            messages=[collect(choice) for choice in deltas],
            usages=answer.usages,
        )
        await exchange.answer(completion)

    async def _send_events(self, exchange: Exchange, request: ChatRequest, answer: Answer) -> None:
        frames = ChatFrames(
            id=_new_completion_id(),
            created=int(self._now()),
            model=request.model,
            include_usage=request.include_usage,
        )
        await exchange.start_events()
        await exchange.send_events(b"".join(map(frames.role, range(len(answer.usages)))))
        try:
            async for index, new in answer:
                if new:
                    await exchange.send_events(b"".join(frames.frame(index, d) for d in new))
        except RouterError as failure:
            # The status is sent: the failure travels in the stream, and there is no retry.
            exchange.note_failure(failure.code)
            await exchange.end_events(frames.failure(failure))
        else:
            await exchange.end_events(frames.end(answer.usages))

    def _observe_first_token(self, exchange: Exchange, request: ChatRequest) -> None:
        seconds = self._clock() - exchange.arrived
        self._metrics.first_token.labels(request.model).observe(seconds)
        exchange.note(first_token_seconds=round(seconds, 4))

    def _observe_tokens(self, exchange: Exchange, request: ChatRequest, answer: Answer) -> None:
        usage = usage_object(answer.usages)
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        for kind, count in (
            ("prompt", usage["prompt_tokens"]),
            ("cached", cached),
            ("completion", usage["completion_tokens"]),
        ):
            self._metrics.tokens.labels(request.model, kind).inc(count)
        exchange.note(completion_tokens=usage["completion_tokens"], cached_tokens=cached)


def _new_completion_id() -> str:
    """Return an id for the client alone: neither its own request id nor the worker's."""
    return f"chatcmpl-{secrets.token_hex(16)}"
