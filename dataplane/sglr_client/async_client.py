"""The asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import httpx2

from sglr_client import asked, calls, readiness
from sglr_client.asked import Asked
from sglr_client.async_stream import AsyncStream
from sglr_client.async_wire import AsyncWire, walk
from sglr_client.errors import ClientError
from sglr_client.health import Health
from sglr_client.in_flight import AsyncInFlight
from sglr_client.limits import Timeouts
from sglr_client.readiness import LOOK_TIMEOUT, POLL
from sglr_client.results import ChatChunk, ChatCompletion, Completion, Embeddings, Models
from sglr_client.settings import GRACE, Settings, headers_of, rules_of
from sglr_client.steps import Flow
from sglr_client.transport import Address, PoolUse, pool_limits, tls_context

T = TypeVar("T")


class AsyncClient:
    """Speaks to one server of the OpenAI API: this router, SGLang, vLLM.

    Close it, or use it as a context manager.
    """

    def __init__(
        self,
        base_url: str,
        *,
        http: httpx2.AsyncBaseTransport | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        """Speak to *base_url*, with or without ``/v1``; nothing is sent yet.

        Args:
            base_url: Such as ``http://localhost:8080``.
            http: Your own transport, for a proxy or a test; the client closes it. With it
                *limits.connections* and *tls* are the transport's business. None: ours.
            settings: See `Settings`.
        """
        self._address = Address.of(base_url)
        self.rules = rules_of(self._address, settings)
        """What its calls go by: the breaker, the budget, the newest health."""
        limits = self.rules.limits
        transport = http or httpx2.AsyncHTTPTransport(
            verify=tls_context(settings.get("tls", True), self._address),
            trust_env=False,
            http2=limits.http2,
            limits=pool_limits(limits),
        )
        self._http = httpx2.AsyncClient(transport=transport, headers=headers_of(settings))
        self._pool = PoolUse(
            lambda count: self.rules.sink.pool(self._address.host, count, limits.connections)
        )
        self._in_flight = AsyncInFlight()

    def __repr__(self) -> str:
        return f"<AsyncClient {self._address.root} {self._in_flight!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self, grace: float = GRACE) -> None:
        """Refuse new calls, wait for those in flight, close the connections.

        Args:
            grace: Seconds to wait at most. A stream that this task itself left open is not
                waited for: it could not go on meanwhile.
        """
        self._in_flight.close()
        await self._in_flight.wait(grace)
        await self._http.aclose()

    async def chat(
        self,
        model: str,
        messages: Sequence[calls.JsonObject],
        **arguments: Unpack[calls.ChatArguments],
    ) -> ChatCompletion:
        """Return the whole answer to a chat.

        Raises:
            ClientError: See `sglr_client.errors`.
        """
        return await self._only(asked.chat(calls.chat(model, messages, **arguments), self.rules))

    @overload
    def chat_stream(
        self,
        model: str,
        messages: Sequence[calls.JsonObject],
        *,
        raw: Literal[False] = False,
        skip_invalid: bool = False,
        **arguments: Unpack[calls.ChatArguments],
    ) -> AsyncStream[ChatChunk]: ...
    @overload
    def chat_stream(
        self,
        model: str,
        messages: Sequence[calls.JsonObject],
        *,
        raw: Literal[True],
        skip_invalid: bool = False,
        **arguments: Unpack[calls.ChatArguments],
    ) -> AsyncStream[bytes]: ...
    def chat_stream(
        self,
        model: str,
        messages: Sequence[calls.JsonObject],
        *,
        raw: bool = False,
        skip_invalid: bool = False,
        **arguments: Unpack[calls.ChatArguments],
    ) -> AsyncStream[Any]:
        """Return the answer to a chat as a stream, which raises what goes wrong.

        Args:
            model: Its name.
            messages: The conversation.
            raw: Hand out the chunks' JSON as bytes instead of structs.
            skip_invalid: Count events that are no chunks in ``AsyncStream.skipped`` instead of raising.
            arguments: Parameters of the chat, and `Options`.
        """
        call = calls.chat(model, messages, stream=True, **arguments)
        return self._stream(
            asked.chunks(call, self.rules, ChatChunk, raw=raw, skip_invalid=skip_invalid)
        )

    async def completions(
        self, model: str, prompt: calls.Prompt, **arguments: Unpack[calls.CompletionArguments]
    ) -> Completion:
        """Return the whole continuation of *prompt*."""
        call = calls.completions(model, prompt, **arguments)
        return await self._only(asked.completion(call, self.rules))

    def completions_stream(
        self, model: str, prompt: calls.Prompt, **arguments: Unpack[calls.CompletionArguments]
    ) -> AsyncStream[Completion]:
        """Return the continuation of *prompt* as a stream."""
        call = calls.completions(model, prompt, stream=True, **arguments)
        return self._stream(
            asked.chunks(call, self.rules, Completion, raw=False, skip_invalid=False)
        )

    async def embeddings(
        self, model: str, given: calls.Prompt, **arguments: Unpack[calls.EmbeddingArguments]
    ) -> Embeddings:
        """Return the vectors of what is *given*, in its order."""
        call = calls.embeddings(model, given, **arguments)
        return await self._only(asked.embeddings(call, self.rules))

    async def models(
        self,
        *,
        timeout: float | Timeouts | None = None,  # noqa: ASYNC109  # the call's, retries included
    ) -> Models:
        """Return the models the server offers; *timeout* None: the client's."""
        return await self._only(asked.models(calls.models(timeout), self.rules))

    async def post(
        self, path: str, body: calls.JsonObject, **options: Unpack[calls.Options]
    ) -> dict[str, Any]:
        """Return the answer to *body* at *path*, for what the API does not name."""
        return await self._only(asked.document(calls.post(path, body, options), self.rules))

    async def batch_chat(
        self,
        requests: Iterable[calls.JsonObject],
        *,
        concurrency: int = 10,
        on_progress: Callable[[int, int], object] = lambda _done, _all: None,
    ) -> list[ChatCompletion | ClientError]:
        """Return the answers to *requests* in their order; what went wrong stands in its place.

        Args:
            requests: Bodies of chats, see `ChatRequest`.
            concurrency: At once.
            on_progress: Called with how many are done, and of how many.

        Raises:
            ValueError: A request has no model or no messages; nothing was sent.
        """
        batch = [calls.batch_entry(request) for request in requests]
        answers: dict[int, ChatCompletion | ClientError] = {}
        remaining = enumerate(batch)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(batch))):
                group.create_task(self._work_off(remaining, answers, on_progress, len(batch)))
        return [answers[place] for place in range(len(batch))]

    async def health(
        self,
        timeout: float = LOOK_TIMEOUT,  # noqa: ASYNC109  # its passing is a finding, not an error
    ) -> Health:
        """Return what a look at ``/health`` finds, within *timeout* seconds; never raises."""
        found: Health = await self._first(readiness.health(self.rules, timeout))
        return found

    async def is_model_ready(self, model: str) -> bool:
        """Say whether the server is up and lists *model*: alive alone is not ready."""
        ready: bool = await self._first(readiness.is_ready(self.rules, model))
        return ready

    async def wait_for_model(
        self,
        model: str,
        timeout: float,  # noqa: ASYNC109  # its passing raises what was found last
        *,
        interval: float = POLL,
    ) -> None:
        """Return when *model* is ready; look every *interval* seconds.

        Raises:
            ModelNotReadyError: It was not after *timeout* seconds; says what was found last.
        """
        await self._first(readiness.wait(self.rules, model, timeout, interval))

    @asynccontextmanager
    async def checking_health(self, every: float = 5.0) -> AsyncGenerator[None]:
        """Look at ``/health`` in the background; while it is down, calls raise at once.

        Args:
            every: Seconds between looks; a finding counts for twice that.
        """
        async with asyncio.TaskGroup() as group:
            checking = group.create_task(self._check_health(every))
            try:
                yield
            finally:
                checking.cancel()
                self.rules.health.forget()

    async def _check_health(self, every: float) -> None:
        while True:
            found = await self.health(min(every, LOOK_TIMEOUT))
            self.rules.health.note(found, self.rules.clock() + 2 * every + LOOK_TIMEOUT)
            await asyncio.sleep(every)

    async def _work_off(
        self,
        remaining: Iterator[tuple[int, calls.Call]],
        answers: dict[int, ChatCompletion | ClientError],
        on_progress: Callable[[int, int], object],
        total: int,
    ) -> None:
        for place, call in remaining:
            answers[place] = await self._answer_or_error(call)
            on_progress(len(answers), total)

    async def _answer_or_error(self, call: calls.Call) -> ChatCompletion | ClientError:
        try:
            return await self._only(asked.chat(call, self.rules))
        except ClientError as error:
            return error

    async def _only(self, question: Asked[T]) -> T:
        answer: T = await self._first(question.flow)
        return answer

    def _stream(self, question: Asked[T]) -> AsyncStream[T]:
        return AsyncStream(question.account, self._walk(question.flow))

    async def _first(self, flow: Flow) -> Any:
        answers = [answer async for answer in self._walk(flow)]
        return answers[0]

    async def _walk(self, flow: Flow) -> AsyncGenerator[Any]:
        wire = AsyncWire(self._http, self._address, self.rules.limits, self._pool)
        with self._in_flight.call():
            async with aclosing(walk(flow, wire)) as answers:
                async for answer in answers:
                    yield answer
