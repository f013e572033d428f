"""The blocking client; one serves any number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import httpx2

from sglr_client import asked, calls, readiness
from sglr_client.asked import Asked
from sglr_client.deadlines import DeadlineTransport
from sglr_client.errors import ClientError
from sglr_client.health import Health
from sglr_client.in_flight import InFlight
from sglr_client.limits import Timeouts
from sglr_client.readiness import LOOK_TIMEOUT, POLL
from sglr_client.results import ChatChunk, ChatCompletion, Completion, Embeddings, Models
from sglr_client.settings import GRACE, Settings, headers_of, rules_of
from sglr_client.steps import Flow
from sglr_client.stream import Stream
from sglr_client.transport import Address, PoolUse, pool_limits, tls_context
from sglr_client.wire import Wire, walk

T = TypeVar("T")


class Client:
    """Speaks to one server of the OpenAI API: this router, SGLang, vLLM.

    Close it, or use it as a context manager.
    """

    def __init__(
        self,
        base_url: str,
        *,
        http: httpx2.BaseTransport | None = None,
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
        transport = http or DeadlineTransport(
            tls_context(settings.get("tls", True), self._address),
            pool_limits(limits),
            http2=limits.http2,
        )
        self._http = httpx2.Client(transport=transport, headers=headers_of(settings))
        self._pool = PoolUse(
            lambda count: self.rules.sink.pool(self._address.host, count, limits.connections)
        )
        self._in_flight = InFlight()

    def __repr__(self) -> str:
        return f"<Client {self._address.root} {self._in_flight!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, grace: float = GRACE) -> None:
        """Refuse new calls, wait for those in flight, close the connections.

        Args:
            grace: Seconds to wait at most. A stream that this thread itself left open is not
                waited for: it could not go on meanwhile.
        """
        self._in_flight.close()
        self._in_flight.wait(grace)
        self._http.close()

    def chat(
        self,
        model: str,
        messages: Sequence[calls.JsonObject],
        **arguments: Unpack[calls.ChatArguments],
    ) -> ChatCompletion:
        """Return the whole answer to a chat.

        Raises:
            ClientError: See `sglr_client.errors`.
        """
        return self._only(asked.chat(calls.chat(model, messages, **arguments), self.rules))

    @overload
    def chat_stream(
        self,
        model: str,
        messages: Sequence[calls.JsonObject],
        *,
        raw: Literal[False] = False,
        skip_invalid: bool = False,
        **arguments: Unpack[calls.ChatArguments],
    ) -> Stream[ChatChunk]: ...
    @overload
    def chat_stream(
        self,
        model: str,
        messages: Sequence[calls.JsonObject],
        *,
        raw: Literal[True],
        skip_invalid: bool = False,
        **arguments: Unpack[calls.ChatArguments],
    ) -> Stream[bytes]: ...
    def chat_stream(
        self,
        model: str,
        messages: Sequence[calls.JsonObject],
        *,
        raw: bool = False,
        skip_invalid: bool = False,
        **arguments: Unpack[calls.ChatArguments],
    ) -> Stream[Any]:
        """Return the answer to a chat as a stream, which raises what goes wrong.

        Args:
            model: Its name.
            messages: The conversation.
            raw: Hand out the chunks' JSON as bytes instead of structs.
            skip_invalid: Count events that are no chunks in ``Stream.skipped`` instead of raising.
            arguments: Parameters of the chat, and `Options`.
        """
        call = calls.chat(model, messages, stream=True, **arguments)
        return self._stream(
            asked.chunks(call, self.rules, ChatChunk, raw=raw, skip_invalid=skip_invalid)
        )

    def completions(
        self, model: str, prompt: calls.Prompt, **arguments: Unpack[calls.CompletionArguments]
    ) -> Completion:
        """Return the whole continuation of *prompt*."""
        call = calls.completions(model, prompt, **arguments)
        return self._only(asked.completion(call, self.rules))

    def completions_stream(
        self, model: str, prompt: calls.Prompt, **arguments: Unpack[calls.CompletionArguments]
    ) -> Stream[Completion]:
        """Return the continuation of *prompt* as a stream."""
        call = calls.completions(model, prompt, stream=True, **arguments)
        return self._stream(
            asked.chunks(call, self.rules, Completion, raw=False, skip_invalid=False)
        )

    def embeddings(
        self, model: str, given: calls.Prompt, **arguments: Unpack[calls.EmbeddingArguments]
    ) -> Embeddings:
        """Return the vectors of what is *given*, in its order."""
        call = calls.embeddings(model, given, **arguments)
        return self._only(asked.embeddings(call, self.rules))

    def models(self, *, timeout: float | Timeouts | None = None) -> Models:
        """Return the models the server offers; *timeout* None: the client's."""
        return self._only(asked.models(calls.models(timeout), self.rules))

    def post(
        self, path: str, body: calls.JsonObject, **options: Unpack[calls.Options]
    ) -> dict[str, Any]:
        """Return the answer to *body* at *path*, for what the API does not name."""
        return self._only(asked.document(calls.post(path, body, options), self.rules))

    def batch_chat(
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
            on_progress: Called in this thread with how many are done, and of how many.

        Raises:
            ValueError: A request has no model or no messages; nothing was sent.
        """
        batch = [calls.batch_entry(request) for request in requests]
        with ThreadPoolExecutor(concurrency) as threads:
            futures = [threads.submit(self._answer_or_error, call) for call in batch]
            for done, _ in enumerate(as_completed(futures), 1):
                on_progress(done, len(batch))
            return [future.result() for future in futures]

    def health(self, timeout: float = LOOK_TIMEOUT) -> Health:
        """Return what a look at ``/health`` finds, within *timeout* seconds; never raises."""
        found: Health = self._first(readiness.health(self.rules, timeout))
        return found

    def is_model_ready(self, model: str) -> bool:
        """Say whether the server is up and lists *model*: alive alone is not ready."""
        ready: bool = self._first(readiness.is_ready(self.rules, model))
        return ready

    def wait_for_model(self, model: str, timeout: float, *, interval: float = POLL) -> None:
        """Return when *model* is ready; look every *interval* seconds.

        Raises:
            ModelNotReadyError: It was not after *timeout* seconds; says what was found last.
        """
        self._first(readiness.wait(self.rules, model, timeout, interval))

    @contextmanager
    def checking_health(self, every: float = 5.0) -> Generator[None]:
        """Look at ``/health`` in the background; while it is down, calls raise at once.

        Args:
            every: Seconds between looks; a finding counts for twice that.
        """
        stopped = threading.Event()
        thread = threading.Thread(
            target=self._check_health, args=(every, stopped), name="sglr-client-health", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()
            self.rules.health.forget()

    def _check_health(self, every: float, stopped: threading.Event) -> None:
        while True:
            found = self.health(min(every, LOOK_TIMEOUT))
            self.rules.health.note(found, self.rules.clock() + 2 * every + LOOK_TIMEOUT)
            if stopped.wait(every):
                return

    def _answer_or_error(self, call: calls.Call) -> ChatCompletion | ClientError:
        try:
            return self._only(asked.chat(call, self.rules))
        except ClientError as error:
            return error

    def _only(self, question: Asked[T]) -> T:
        answer: T = self._first(question.flow)
        return answer

    def _stream(self, question: Asked[T]) -> Stream[T]:
        return Stream(question.account, self._walk(question.flow))

    def _first(self, flow: Flow) -> Any:
        (answer,) = self._walk(flow)
        return answer

    def _walk(self, flow: Flow) -> Generator[Any]:
        wire = Wire(self._http, self._address, self.rules.limits, self._pool)
        with self._in_flight.call():
            yield from walk(flow, wire)
