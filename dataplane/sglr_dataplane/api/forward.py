"""The walk of a forwarded request: what a backend of HTTP workers is asked, and what it answers.

Body and answer pass as they are. What is read of them is what choosing a worker, trying another one
and counting need; everything else is between the client and the worker.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from sglr_dataplane.api.auth import caller_of
from sglr_dataplane.api.faults import anthropic_envelope, named_event
from sglr_dataplane.api.forwarded import headers_for_worker, read, stand_in
from sglr_dataplane.api.forwarding import Forwarder
from sglr_dataplane.api.presence import Presence
from sglr_dataplane.api.sse import DONE, failure_frame
from sglr_dataplane.engine.renaming import with_model
from sglr_dataplane.errors import RouterError, WorkerError
from sglr_dataplane.job import Forward, Job, Piece, Usage, new_job_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from sglr_dataplane.api.exchange import Exchange
    from sglr_dataplane.api.forwarded import Asked
    from sglr_dataplane.api.front_door import Endpoint
    from sglr_dataplane.config import Limits
    from sglr_dataplane.fleet.dispatch import Dispatcher
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.fleet.routes import Target
    from sglr_dataplane.fleet.signpost import Signpost
    from sglr_dataplane.fleet.stream import Stream
    from sglr_dataplane.job import Chunk
    from sglr_dataplane.metrics import RouterMetrics

_A = TypeVar("_A")
_B = TypeVar("_B")

_READ_IN_THREAD_ABOVE: Final = 250_000
"""Bytes: reading holds the event loop for a millisecond up to here."""
_NAMED: Final = frozenset({"/v1/messages", "/v1/responses"})
"""Paths whose streams have named events, and no ``[DONE]``."""
_AT_WORKERS: Final = {
    "/v1/tokenize": "/tokenize",
    "/v1/detokenize": "/detokenize",
    "/rerank": "/v1/rerank",
    "/score": "/v1/score",
}
"""Paths that workers have under another name as well; vLLM has the second only, SGLang both."""

FORWARDED: Final = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/generate",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/responses",
        "/v1/embeddings",
        "/tokenize",
        "/detokenize",
        "/v1/rerank",
        "/v1/score",
        "/v1/classify",
        "/classify",
        *_AT_WORKERS,
    }
)
"""Every path whose requests HTTP workers get; what they do not serve is 501."""


class Forwarding:
    """Forwards requests to the backends that have HTTP workers."""

    def __init__(
        self,
        registry: Registry,
        dispatcher: Dispatcher,
        metrics: RouterMetrics,
        signpost: Signpost,
        *,
        limits: Limits,
        keepalive: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Forward with these parts.

        Args:
            registry: Who there is.
            dispatcher: Finds workers.
            metrics: Where it is counted.
            signpost: Says which backend a request goes to, of whichever protocol.
            limits: What one request may use.
            keepalive: Seconds of silence after which a stream gets a comment.
            clock: The access log's.
        """
        self._registry = registry
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._signpost = signpost
        self._limits = limits
        self._keepalive = keepalive
        self._clock = clock

    def before(self, endpoint: Endpoint, path: str) -> Fork:
        """Return what answers *path*: HTTP workers for their models, *endpoint* for the others."""
        return Fork(self, endpoint, path, self._limits, self._registry)

    def target(self, asked: Asked, exchange: Exchange) -> Target | None:
        """Return where a request goes; None: to a backend of another protocol.

        Raises:
            RouterError: To none.
        """
        target = self._signpost.target(asked.model, caller_of(exchange))
        return target if self._registry.is_http(target.backend_key) else None

    async def answer(self, exchange: Exchange, target: Target, job: Job) -> None:
        """Answer one request.

        Raises:
            RouterError: It fails before the answer has begun.
            ClientGoneError: The client left; the worker's connection is closed.
        """
        exchange.note(model=job.model, stream=job.stream, job=job.id)
        try:
            with Presence(exchange, self._keepalive if job.stream else None):
                stream = await self._dispatcher.dispatch(
                    target.backend_key, job, caller_of(exchange)
                )
                async with aclosing(stream):
                    with self._counting(exchange, target.backend_key, job) as count:
                        await self._tell(exchange, stream, job, count)
        except RouterError as failure:
            await exchange.fail(failure, lambda error: _failure(error, job))

    async def job(
        self, exchange: Exchange, body: bytes, asked: Asked, target: Target, path: str
    ) -> Job:
        """Return the job that asks a worker what *body* asks."""
        name = asked.model
        if name is None:
            name = self._registry.backend(target.backend_key).spec.model.name
            body = with_model(body, name)
        return Job(
            id=new_job_id(),
            model=name,
            input_ids=await _off_loop(stand_in, asked, len(body)),
            stream=bool(asked.stream),
            adapter=target.adapter,
            forward=Forward(
                path=_AT_WORKERS.get(path, path),
                body=body,
                headers=headers_for_worker(exchange.headers, exchange.request_id),
                finishes=asked.choices,
                has_named_events=path in _NAMED,
            ),
        )

    async def _tell(
        self, exchange: Exchange, stream: Stream, job: Job, count: Callable[[Usage], None]
    ) -> None:
        """Tell the client what *stream* brings: one piece with a media type, or frames."""
        piece = _piece(await anext(stream))
        count(piece.usage)
        if piece.media_type:
            await self._tell_whole(exchange, piece)
            return
        rest = piece.data
        if piece.finish is None:
            await exchange.send_events(piece.data)
            exchange.content_sent_at = self._clock()
            rest = await self._relay(exchange, stream, count)
        await exchange.send_events(rest + (b"" if _is_named(job) else DONE), is_last=True)

    async def _relay(
        self, exchange: Exchange, stream: Stream, count: Callable[[Usage], None]
    ) -> bytes:
        """Pass frames on as they come; return those that end the stream."""
        outlet, batches = exchange.outlet, stream.batches
        if outlet is not None and batches is not None:
            forwarder = Forwarder(batches, exchange, outlet)
            try:
                return await forwarder.run()
            finally:
                if forwarder.usage is not None:
                    count(forwarder.usage)
        async for chunk in stream:
            piece = _piece(chunk)
            count(piece.usage)
            if piece.finish is not None:
                return piece.data
            await exchange.send_events(piece.data)
        return b""

    async def _tell_whole(self, exchange: Exchange, piece: Piece) -> None:
        if exchange.streams:
            raise WorkerError("The worker answered in one piece what was asked for as a stream.")
        await exchange.answer_as_it_is(piece.data, piece.media_type)

    @contextmanager
    def _counting(
        self, exchange: Exchange, backend_key: str, job: Job
    ) -> Generator[Callable[[Usage], None]]:
        """Count what the answer has cost when the block ends, whether or not it is complete."""
        usage = Usage()
        began, is_complete = self._clock(), False

        def count(news: Usage) -> None:
            nonlocal usage
            usage = news

        try:
            yield count
            is_complete = True
        finally:
            ended, sent_at = self._clock(), exchange.content_sent_at
            self._metrics.stages(backend_key).answer.observe(ended - began)
            prompt, cached = usage.prompt_tokens, usage.cached_tokens
            completion = usage.completion_tokens
            self._metrics.used(job.model, prompt, cached, completion)
            if sent_at is not None:
                first, rest = sent_at - exchange.arrived, ended - sent_at
                each = completion // max(job.forward.finishes if job.forward else 1, 1)
                self._metrics.streamed(job.model, first, rest if is_complete else None, each)
                exchange.note(first_token_seconds=round(first, 4))
            exchange.note(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached)


class Fork:
    """One path: the protocol of a model's workers decides who answers."""

    def __init__(
        self,
        forwarding: Forwarding,
        endpoint: Endpoint,
        path: str,
        limits: Limits,
        registry: Registry,
    ) -> None:
        """Answer *path* by *forwarding*, or let *endpoint* answer, as the *registry* has it."""
        self._forwarding = forwarding
        self._endpoint = endpoint
        self._path = path
        self._limits = limits
        self._registry = registry

    def __call__(self, exchange: Exchange) -> Awaitable[None]:
        """Return the answering of one request; it raises RouterError and ClientGoneError."""
        return self._decided(exchange) if self._registry.has_http else self._endpoint(exchange)

    async def _decided(self, exchange: Exchange) -> None:
        """Read which model is asked for, and let answer who answers for it."""
        body = await exchange.body(self._limits.max_body_bytes)
        try:
            asked = await _off_loop(read, body, len(body))
        except RouterError:
            # Whoever reads the whole body says best what is wrong with it.
            await self._endpoint(exchange)
            return
        target = self._forwarding.target(asked, exchange)
        if target is None:
            await self._endpoint(exchange)
            return
        job = await self._forwarding.job(exchange, body, asked, target, self._path)
        await self._forwarding.answer(exchange, target, job)


def _piece(chunk: Chunk) -> Piece:
    assert isinstance(chunk, Piece)  # noqa: S101  # an engine of HTTP sends nothing else
    return chunk


def _is_named(job: Job) -> bool:
    return job.forward is not None and job.forward.has_named_events


async def _off_loop(do: Callable[[_A], _B], given: _A, size: int) -> _B:
    """Return what *do* makes of *given*, in a thread if its *size* is large."""
    if size <= _READ_IN_THREAD_ABOVE:
        return do(given)
    return await asyncio.to_thread(do, given)


def _failure(error: RouterError, job: Job) -> bytes:
    """Return what ends a stream of *job*'s kind that failed after its status was sent."""
    match job.forward.path if job.forward is not None else "":
        case "/v1/messages":
            return named_event(anthropic_envelope(error))
        case "/v1/responses":
            told = {"code": error.code, "message": error.message, "param": error.param}
            return named_event({"type": "error", **told})
        case _:
            return failure_frame(error)
