"""The walk of one request: chat completions take it, and so does every other API that generates."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from sglr_dataplane.api.answer import Answer, whole
from sglr_dataplane.api.auth import caller_of
from sglr_dataplane.api.constraints import constraint_of
from sglr_dataplane.api.meanwhile import Meanwhile
from sglr_dataplane.api.presence import Presence
from sglr_dataplane.api.readings import choices_of, prompts_of
from sglr_dataplane.api.relay import Relay
from sglr_dataplane.api.replies import total_usage
from sglr_dataplane.api.together import dispatch_all
from sglr_dataplane.errors import NoAvailableWorkersError, NotServedError, RouterError
from sglr_dataplane.job import Job, LogprobsWish, new_job_id
from sglr_dataplane.prompt.length import check_length
from sglr_dataplane.prompt.sampling import defaults_of, max_new_tokens, sampling_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglr_dataplane.api.answer import Choice
    from sglr_dataplane.api.dialect import Asked, Dialect, Reply
    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.api.together import Chunks
    from sglr_dataplane.config import Limits
    from sglr_dataplane.engine import EngineFacts
    from sglr_dataplane.fleet.caller import Caller
    from sglr_dataplane.fleet.dispatch import Dispatcher
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.metrics import RouterMetrics, Stages
    from sglr_dataplane.recipe import PromptIds, Recipe, Recipes

_DECODE_IN_THREAD_ABOVE: Final = 500_000
"""Bytes: decoding holds the event loop for half a millisecond up to here."""


class Question(msgspec.Struct, frozen=True):
    """What a client asked, and all that its jobs are made from besides the recipe."""

    asked: Asked
    caller: Caller
    size: int
    """Bytes of its body."""
    began: float
    """When it was read."""


class Sent(msgspec.Struct, frozen=True):
    """What a question became, and what comes of it."""

    recipe: Recipe
    prompts: Sequence[PromptIds]
    jobs: Sequence[Job]
    chunks: Chunks
    """To be closed; the first has come."""
    told: Meanwhile[tuple[Reply, list[Choice]]]
    """What its answer is told with."""
    stages: Stages
    """Where its times are observed."""


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
        if len(body) <= _DECODE_IN_THREAD_ABOVE:
            asked = self._dialect.decode(body)
        else:
            asked = await asyncio.to_thread(self._dialect.decode, body)
        question = Question(asked, caller_of(exchange), len(body), began)
        recipe = self._recipes.find(asked.model, question.caller)
        sent: Sent | None = None
        exchange.facts |= {"model": asked.model or recipe.model, "stream": asked.stream}
        exchange.warnings = asked.warnings
        try:
            with Presence(exchange, self._keepalive if asked.stream else None):
                try:
                    sent = await self._sent(exchange, question, recipe)
                except NoAvailableWorkersError as failure:
                    recipe = self._spare(question, recipe, failure)
                    sent = await self._sent(exchange, question, recipe)
                await self._answer(exchange, asked, sent)
        except RouterError as failure:
            told = None if sent is None else sent.told.made
            reply = self._reply(asked, recipe) if told is None else told[0]
            await exchange.fail(failure, reply.failure)

    async def _sent(self, exchange: Exchange, question: Question, recipe: Recipe) -> Sent:
        """Return what *question* becomes with *recipe*, sent to workers, of whom one has answered."""
        asked, key = question.asked, recipe.backend_key
        abilities = self._registry.abilities(key)
        facts = abilities.facts
        if facts is not None and not facts.is_generation:
            raise NotServedError(
                f"The model {asked.model or recipe.model!r} embeds; it generates no text.",
                param="model",
            )
        fits = partial(
            check_length,
            max_new_tokens=max_new_tokens(asked.sampling),
            longest_prompt=abilities.longest_prompt,
            context=abilities.context,
            param=asked.prompt_field,
        )
        make = partial(prompts_of, asked, recipe, fits)
        is_quick = recipe.is_quick(question.size)
        prompts = make() if is_quick else await recipe.aside(question.size, make)
        warnings, jobs, tokens = list(asked.warnings), list[Job](), 0
        for prompt in prompts:
            jobs.append(self._job(asked, recipe, prompt, facts, warnings))
            tokens += len(prompt.ids)
        exchange.warnings = warnings
        exchange.facts |= {"job": jobs[0].id, "prompt_tokens": tokens}
        stages = self._metrics.stages(key)
        stages.prompt.observe(self._clock() - question.began)
        told = Meanwhile(
            exchange.task.get_loop(), partial(self._told, asked, recipe, prompts, jobs)
        )
        chunks = await dispatch_all(self._dispatcher, key, jobs, question.caller)
        return Sent(recipe, prompts, jobs, chunks, told, stages)

    def _reply(self, asked: Asked, recipe: Recipe) -> Reply:
        return self._dialect.reply(asked, recipe, created=int(self._now()))

    def _told(
        self, asked: Asked, recipe: Recipe, prompts: Sequence[PromptIds], jobs: Sequence[Job]
    ) -> tuple[Reply, list[Choice]]:
        """Return what the answer of *jobs* is told with."""
        return self._reply(asked, recipe), choices_of(asked, recipe, prompts, jobs)

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

    def _job(
        self,
        asked: Asked,
        recipe: Recipe,
        prompt: PromptIds,
        facts: EngineFacts | None,
        warnings: list[str],
    ) -> Job:
        """Return the job of one prompt; *warnings* gets what has no effect on it."""
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

    async def _answer(self, exchange: Exchange, asked: Asked, sent: Sent) -> None:
        """Tell the client what comes, and count what it has cost, whether or not it is complete."""
        try:
            reply, choices = sent.told.take()
            answer = Answer(sent.chunks, choices)
            began, is_complete = self._clock(), False
            try:
                tell = self._tell_events if asked.stream else self._tell_whole
                await tell(exchange, reply, answer, sent)
                is_complete = True
            finally:
                self._count(exchange, sent, answer, began, is_complete=is_complete)
        finally:
            await sent.chunks.aclose()

    async def _tell_whole(
        self, exchange: Exchange, reply: Reply, answer: Answer, sent: Sent
    ) -> None:
        choices = await whole(answer, sent.chunks.batches)
        await exchange.answer(reply.whole(sent.prompts, choices))

    async def _tell_events(
        self, exchange: Exchange, reply: Reply, answer: Answer, sent: Sent
    ) -> None:
        first = await anext(answer)
        batches, outlet = sent.chunks.batches, exchange.outlet
        frames = reply.begin(sent.prompts, first.usage) + reply.news(first)
        if batches is None or outlet is None:
            await self._say(exchange, frames)
            async for news in answer:
                await self._say(exchange, reply.news(news))
            frames = b""
        else:
            if batches.are_quiet and not answer.told and not answer.finished:
                # Nothing is there that could go with it in one write.
                await self._say(exchange, frames)
                frames = b""
            relay = Relay(batches, answer, reply, exchange, outlet, sent.recipe.vocabulary.escaped)
            relay.begin()
            frames += relay.held()
            if not answer.finished:
                if frames:
                    await self._say(exchange, frames)
                await relay.run()
                frames = relay.held()
        await self._say(exchange, frames + reply.end(answer.usages), is_last=True)

    async def _say(self, exchange: Exchange, frames: bytes, *, is_last: bool = False) -> None:
        await exchange.send_events(frames, is_last=is_last)
        if exchange.content_sent_at is None:
            exchange.content_sent_at = self._clock()

    def _count(
        self, exchange: Exchange, sent: Sent, answer: Answer, began: float, *, is_complete: bool
    ) -> None:
        """Count what an answer that *began* has cost; it may not be complete."""
        ended, sent_at, job = self._clock(), exchange.content_sent_at, sent.jobs[0]
        usages = answer.usages
        usage = total_usage(usages, job.sampling.n)
        completion, cached = usage.completion_tokens, usage.cached_tokens
        sent.stages.answer.observe(ended - began)
        self._metrics.used(job.model, usage.prompt_tokens, cached, completion)
        exchange.facts |= {"completion_tokens": completion, "cached_tokens": cached}
        if sent_at is not None:
            first, rest = sent_at - exchange.arrived, ended - sent_at
            each = completion // len(usages)
            self._metrics.streamed(job.model, first, rest if is_complete else None, each)
            exchange.facts["first_token_seconds"] = round(first, 4)


def _logprobs(wish: LogprobsWish, vocab_size: int) -> LogprobsWish:
    """Return *wish* within the vocabulary: more alternatives than it holds end the engine."""
    if wish.top <= vocab_size:
        return wish
    return LogprobsWish(vocab_size, wish.prompt_from)
