"""The walk of one request: chat completions take it, and so does every other API that generates."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from sglr_dataplane.api.answer import Answer, whole
from sglr_dataplane.api.constraints import constraint_of
from sglr_dataplane.api.readings import choices_of, prompts_of
from sglr_dataplane.api.relay import Relay
from sglr_dataplane.api.replies import total_usage
from sglr_dataplane.api.together import dispatch_all
from sglr_dataplane.errors import NoAvailableWorkersError, NotServedError, RouterError
from sglr_dataplane.job import Job, LogprobsWish, new_job_id
from sglr_dataplane.prompt.length import check_length
from sglr_dataplane.prompt.sampling import defaults_of, sampling_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from sglr_dataplane.api.dialect import Asked, Dialect, Reply
    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.api.follow import Batches
    from sglr_dataplane.api.together import Chunks
    from sglr_dataplane.config import Limits
    from sglr_dataplane.fleet.caller import Caller
    from sglr_dataplane.fleet.dispatch import Dispatcher
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.metrics import RouterMetrics
    from sglr_dataplane.prompt.tokenizer import Fits
    from sglr_dataplane.recipe import PromptIds, Recipe, Recipes

_DECODE_IN_THREAD_ABOVE: Final = 500_000
"""Bytes: decoding holds the event loop for half a millisecond up to here."""


@dataclass(frozen=True, slots=True)
class Told:
    """An answer and what it takes to tell it."""

    reply: Reply
    prompts: Sequence[PromptIds]
    answer: Answer
    batches: Batches | None
    """The answer's chunks by batches, where they come so."""
    escaped: Mapping[int, bytes]
    """The model's tokens as JSON writes them."""


@dataclass(slots=True)
class Question:
    """What a client asked, and all that its jobs are made from besides the recipe."""

    asked: Asked
    caller: Caller
    size: int
    """Bytes of its body."""
    began: float
    """When it was read."""


class Walk:
    """Answers the requests of one dialect, streamed or in one piece, by one and the same walk."""

    def __init__(
        self,
        dialect: Dialect,
        recipes: Recipes,
        registry: Registry,
        dispatcher: Dispatcher,
        metrics: RouterMetrics,
        *,
        limits: Limits,
        keepalive: float,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Walk with these parts.

        Args:
            dialect: How requests are read and answers are told.
            recipes: What models need.
            registry: What workers say of themselves.
            dispatcher: Finds workers.
            metrics: Where it is counted.
            limits: What one request may use.
            keepalive: Seconds of silence after which a stream gets a comment.
            clock: The access log's.
            now: Seconds since 1970.
        """
        self._dialect = dialect
        self._recipes = recipes
        self._registry = registry
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._limits = limits
        self._keepalive = keepalive
        self._clock = clock
        self._now = now

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request.

        Raises:
            RouterError: It fails before the answer has begun.
            ClientGoneError: The client left; the worker's call is cancelled.
        """
        body = await exchange.body(self._limits.max_body_bytes)
        began = self._clock()
        asked = await self._decoded(body)
        caller = exchange.caller
        recipe = self._recipes.find(asked.model, caller)
        reply = self._dialect.reply(asked, recipe, created=int(self._now()))
        exchange.note(model=asked.model or recipe.model, stream=asked.stream)
        exchange.warn(*asked.warnings)
        try:
            async with exchange.while_connected(self._keepalive if asked.stream else None):
                question = Question(asked, caller, len(body), began)
                try:
                    prompts, jobs, chunks = await self._sent(exchange, question, recipe)
                except NoAvailableWorkersError as failure:
                    recipe = self._spare(question, recipe, failure)
                    reply = self._dialect.reply(asked, recipe, created=int(self._now()))
                    prompts, jobs, chunks = await self._sent(exchange, question, recipe)
                async with aclosing(chunks):
                    answer = Answer(chunks, choices_of(asked, recipe, prompts, jobs))
                    told = Told(reply, prompts, answer, chunks.batches, recipe.vocabulary.escaped)
                    tell = self._tell_events if asked.stream else self._tell_whole
                    with self._counting(exchange, recipe, jobs[0], answer):
                        await tell(exchange, told)
        except RouterError as failure:
            await exchange.fail(failure, reply.failure)

    async def _sent(
        self, exchange: Exchange, question: Question, recipe: Recipe
    ) -> tuple[Sequence[PromptIds], Sequence[Job], Chunks]:
        """Return the prompts and jobs of *question*, and their chunks, the first of which came."""
        asked, key = question.asked, recipe.backend_key
        prompts = await prompts_of(asked, recipe, question.size, self._fits(asked, recipe))
        warnings = list(asked.warnings)
        jobs = [self._job(asked, recipe, prompt, warnings) for prompt in prompts]
        exchange.warn(*warnings)
        self._metrics.stages(key).prompt.observe(self._clock() - question.began)
        exchange.note(job=jobs[0].id, prompt_tokens=sum(len(p.ids) for p in prompts))
        return prompts, jobs, await dispatch_all(self._dispatcher, key, jobs, question.caller)

    def _spare(
        self, question: Question, recipe: Recipe, failure: NoAvailableWorkersError
    ) -> Recipe:
        """Return the recipe of another backend for a request that *recipe*'s did not take.

        Raises:
            NoAvailableWorkersError: The *failure*; there is none, or it must not be sent again.
        """
        spare = None
        if failure.may_go_elsewhere:
            asked = {recipe.backend_key}
            spare = self._recipes.spare(question.asked.model, question.caller, asked)
        if spare is None:
            raise failure
        return spare

    async def _decoded(self, body: bytes) -> Asked:
        if len(body) <= _DECODE_IN_THREAD_ABOVE:
            return self._dialect.decode(body)
        return await asyncio.to_thread(self._dialect.decode, body)

    def _fits(self, asked: Asked, recipe: Recipe) -> Fits:
        """Return what refuses a prompt that no worker takes, whatever is to be generated."""
        abilities = self._registry.abilities(recipe.backend_key)
        return partial(
            check_length,
            max_new_tokens=None,
            longest_prompt=abilities.longest_prompt,
            context=abilities.context,
            param=asked.prompt_field,
        )

    def _job(self, asked: Asked, recipe: Recipe, prompt: PromptIds, warnings: list[str]) -> Job:
        """Return the job of one prompt; *warnings* gets what has no effect on it."""
        abilities = self._registry.abilities(recipe.backend_key)
        facts = abilities.facts
        if facts is not None and not facts.is_generation:
            raise NotServedError(
                f"The model {asked.model or recipe.model!r} embeds; it generates no text.",
                param="model",
            )
        vocab_size = recipe.vocabulary.size
        held = constraint_of(asked, recipe, prompt, facts)
        if held.warnings:
            warnings += held.warnings
        sampling = sampling_of(
            asked.sampling,
            vocab_size=vocab_size,
            defaults=defaults_of(facts.default_sampling_params if facts else ""),
            constraint=held.constraint,
        )
        check_length(
            len(prompt.ids),
            sampling.max_new_tokens,
            longest_prompt=abilities.longest_prompt,
            context=abilities.context,
            param=asked.prompt_field,
        )
        return Job(
            id=new_job_id(),
            model=asked.model or recipe.model,
            input_ids=prompt.ids,
            packed_ids=prompt.packed,
            sampling=sampling,
            # The worker always streams, so that its first token, its pauses and its end are watched,
            # and another worker can be tried in time, whichever way the client wants its answer.
            stream=True,
            require_reasoning=held.waits,
            logprobs=_logprobs(asked.logprobs, vocab_size) if asked.logprobs else None,
            adapter=recipe.adapter,
        )

    async def _tell_whole(self, exchange: Exchange, told: Told) -> None:
        await exchange.answer(
            told.reply.whole(told.prompts, await whole(told.answer, told.batches))
        )

    async def _tell_events(self, exchange: Exchange, told: Told) -> None:
        reply, answer, outlet = told.reply, told.answer, exchange.outlet
        first = await anext(answer)
        frames = reply.begin(told.prompts, first.usage) + reply.news(first)
        if told.batches is None or outlet is None:
            await self._begun(exchange, frames)
            async for news in answer:
                await exchange.send_events(reply.news(news))
            frames = b""
        else:
            relay = Relay(told.batches, answer, reply, exchange, outlet, told.escaped)
            relay.begin()
            frames += relay.held()
            if not answer.finished:
                await self._begun(exchange, frames)
                await relay.run()
                frames = relay.held()
        await exchange.end_events(frames + reply.end(answer.usages))
        if exchange.content_sent_at is None:
            exchange.content_sent_at = self._clock()

    async def _begun(self, exchange: Exchange, frames: bytes) -> None:
        await exchange.send_events(frames)
        exchange.content_sent_at = self._clock()

    @contextmanager
    def _counting(
        self, exchange: Exchange, recipe: Recipe, job: Job, answer: Answer
    ) -> Generator[None]:
        """Count what the answer has cost when the block ends, whether or not it is complete."""
        began, is_complete = self._clock(), False
        try:
            yield
            is_complete = True
        finally:
            ended, sent_at = self._clock(), exchange.content_sent_at
            self._metrics.stages(recipe.backend_key).answer.observe(ended - began)
            usages = answer.usages
            usage = total_usage(usages, job.sampling.n)
            completion, cached = usage.completion_tokens, usage.cached_tokens
            self._metrics.used(job.model, usage.prompt_tokens, cached, completion)
            if sent_at is not None:
                first, rest = sent_at - exchange.arrived, ended - sent_at
                each = completion // len(usages)
                self._metrics.streamed(job.model, first, rest if is_complete else None, each)
                exchange.note(first_token_seconds=round(first, 4))
            exchange.note(completion_tokens=completion, cached_tokens=cached)


def _logprobs(wish: LogprobsWish, vocab_size: int) -> LogprobsWish:
    """Return *wish* within the vocabulary: more alternatives than it holds end the engine."""
    if wish.top <= vocab_size:
        return wish
    return LogprobsWish(vocab_size, wish.prompt_from)
