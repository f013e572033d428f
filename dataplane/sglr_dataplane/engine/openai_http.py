"""The client of one worker that serves OpenAI's HTTP API: SGLang's own server, vLLM, and the like.

Requests and answers are relayed; what is read of them on the way is what routing, retries and
counting need. Closing the connection is how a generation is ended.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from sglr_dataplane.engine import EngineFacts, TokenizerBundle
from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.events import Expected
from sglr_dataplane.engine.h1.call import CallError
from sglr_dataplane.engine.h1.head import Heads
from sglr_dataplane.engine.h1.pool import Pool, PoolOptions
from sglr_dataplane.engine.http_statuses import UNAUTHORISED, error_of_status
from sglr_dataplane.engine.json_values import is_array, is_object, object_in
from sglr_dataplane.engine.openai_stream import RelayStream
from sglr_dataplane.engine.outlets import RelayLimits
from sglr_dataplane.engine.renaming import with_model
from sglr_dataplane.errors import (
    DeadlineExceededError,
    WorkerError,
    WorkerLostError,
    WorkerUnavailableError,
)
from sglr_dataplane.job import Forward, Job

_HEALTH: Final = "/health"
_MODELS: Final = "/v1/models"
_SERVER_INFOS: Final = ("/server_info", "/get_server_info")
"""SGLang's, newer name first; others answer 404."""
_LONGEST_ANSWER: Final = 4 * 2**20
"""Bytes of what a worker says of itself: SGLang's list of arguments has some kilobytes."""


class OpenAIEngine:
    """One worker."""

    def __init__(
        self,
        pool: Pool,
        heads: Heads,
        *,
        names: Iterable[str],
        deadlines: Deadlines | None = None,
        limits: RelayLimits | None = None,
    ) -> None:
        """Call the worker over *pool*, which is closed with the engine.

        Args:
            pool: Its connections.
            heads: What every request of it begins with.
            names: What the model may be called, the most usual first.
            deadlines: The time limits of every call.
            limits: What one answer may use.
        """
        self.pool = pool
        self._heads = heads
        self._names = tuple(names)
        self._deadlines = deadlines or Deadlines()
        self._limits = limits
        self._listed: frozenset[str] = frozenset()
        """The names the worker itself goes by, adapters included; empty until it was asked."""
        self._own_name = ""
        """The one of those that the backend's model has."""
        self.on_lost: Callable[[], None] = _unheard
        """Called when nobody listens at its address any more."""
        pool.on_refused = self._tell

    def __repr__(self) -> str:
        return f"<OpenAIEngine {self.pool!r}>"

    def _tell(self) -> None:
        self.on_lost()  # as it is by then

    def generate(self, job: Job) -> RelayStream:
        """Start *job*, which says what to forward; nothing is sent before ``__anext__`` or ``start``."""
        forward = job.forward
        assert forward is not None  # noqa: S101  # the walk of HTTP backends makes no other jobs
        body = self._body(job, forward)
        return RelayStream(
            self.pool,
            self._heads.post(forward.path, body, forward.headers),
            Expected(forward.finishes, named=forward.has_named_events),
            self._deadlines,
            streams=job.stream,
            limits=self._limits,
        )

    def embed(self, job: Job) -> RelayStream:
        """Start *job*: an embedding is relayed as everything is."""
        return self.generate(job)

    async def is_serving(self) -> bool:
        """Return whether ``/health`` says 200; 503 while the worker loads, 404 where there is none.

        Being alive is not being ready: :meth:`facts` then says whether the model is there.

        Raises:
            WorkerUnavailableError: It cannot be reached.
            WorkerError: It does not accept the router's key.
            DeadlineExceededError: It does not answer within the probe's deadline.
        """
        status, _ = await self._get(_HEALTH, self._deadlines.probe, "a health check")
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise WorkerError(UNAUTHORISED)
        # A server without the path is asked for its models instead.
        return status in {HTTPStatus.OK, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND}

    async def facts(self) -> EngineFacts:
        """Return what the worker says of itself; raises as ``__anext__`` does."""
        status, body = await self._get(_MODELS, self._deadlines.facts, "what it serves")
        if status != HTTPStatus.OK:
            raise error_of_status(status, (), body)
        cards = _cards(body)
        if not cards:
            raise WorkerError("The worker lists no model (GET /v1/models).")
        card = self._card(cards)
        self._listed = frozenset(cards)
        self._own_name = str(card["id"])
        server = await self._server_info() if card.get("owned_by") == "sglang" else {}
        length = _count(card.get("max_model_len"))
        adapters = tuple((id, id) for id, each in cards.items() if each.get("parent") is not None)
        return EngineFacts(
            served_model_name=self._own_name,
            model_path=str(card.get("root") or self._own_name),
            tokenizer_path="",
            max_req_input_len=length,
            context_length=length,
            max_running_requests=_count(server.get("max_running_requests")),
            version=str(server.get("version") or ""),
            default_sampling_params="",
            adapters=adapters,
        )

    async def tokenizer_bundle(self) -> TokenizerBundle:
        """Refuse: prompts for HTTP workers are not made here."""
        raise WorkerError("A worker of HTTP sends no tokenizer; it needs none from the router.")

    async def aclose(self) -> None:
        """Close the connections; running streams end with WorkerUnavailableError."""
        await self.pool.aclose()

    def _body(self, job: Job, forward: Forward) -> bytes:
        """Return the request's body, in which the model has a name that the worker knows."""
        name = job.adapter or self._own_name or job.model
        if name == job.model or (job.model in self._listed and not job.adapter):
            return forward.body
        return with_model(forward.body, name)

    def _card(self, cards: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Return the entry of the backend's model; of any model when it is not there."""
        for name in self._names:
            for card in cards.values():
                if name in (card["id"], card.get("root")):
                    return card
        return next(iter(cards.values()))

    async def _server_info(self) -> dict[str, Any]:
        """Return SGLang's arguments; nothing when it does not tell them."""
        for path in _SERVER_INFOS:
            try:
                status, body = await self._get(path, self._deadlines.facts, "its arguments")
            except DeadlineExceededError:
                return {}
            if status == HTTPStatus.OK:
                return object_in(body) or {}
        return {}

    async def _get(self, path: str, limit: float, what: str) -> tuple[int, bytes]:
        """Return the status and the body of the answer to a GET.

        Raises:
            WorkerUnavailableError: It cannot be reached, or went away.
            DeadlineExceededError: It did not answer within *limit* seconds.
            WorkerError: Its answer is too long.
        """
        reply = _Reply()
        call = self.pool.call(self._heads.get(path), reply)
        try:
            async with asyncio.timeout(limit):
                await reply.complete.wait()
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"The worker did not answer {what} within {limit:g} s."
            ) from error
        finally:
            call.cancel()
        if reply.lost is not None:
            if reply.lost.sent and not self.pool.is_closed:
                raise WorkerLostError("The worker went away before it answered.") from reply.lost
            raise WorkerUnavailableError("The worker cannot be reached.") from reply.lost
        if reply.is_too_long:
            raise WorkerError(f"The worker's answer to GET {path} is too long.")
        return reply.status, b"".join(reply.body)


class _Reply:
    """The answer to a GET."""

    def __init__(self) -> None:
        self.status = 0
        self.body: list[bytes] = []
        self.lost: CallError | None = None
        self.complete = asyncio.Event()
        self.is_too_long = False
        self._size = 0

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:  # noqa: ARG002  # as declared
        self.status = status

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > _LONGEST_ANSWER:
            self.is_too_long = True
            self.complete.set()
        else:
            self.body.append(data)

    def on_part(self, data: bytes) -> None:
        self.on_body(data)

    def on_end(self) -> None:
        self.complete.set()

    def on_failure(self, error: CallError) -> None:
        self.lost = error
        self.complete.set()

    def on_read(self) -> None:
        """Take note of nothing: the end is what counts."""


def openai_engine(
    address: str,
    *,
    names: Iterable[str],
    deadlines: Deadlines | None = None,
    options: PoolOptions | None = None,
    limits: RelayLimits | None = None,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    metadata: Iterable[tuple[str, str]] = (),
) -> OpenAIEngine:
    """Return the client of the worker at *address*; nothing is sent yet.

    Args:
        address: ``host:port``; IPv6 hosts in brackets.
        names: What the model may be called, the most usual first.
        deadlines: The time limits of every call.
        options: How the worker is connected to; its connect timeout is the deadlines'.
        limits: What one answer may use.
        tls: None for plain text.
        server_name: What the worker's certificate must name, if not the address's host.
        metadata: Headers of every request, such as authorization.
    """
    host, _, port = address.rpartition(":")
    wanted = deadlines or Deadlines()
    pool = Pool(
        host.strip("[]"),
        int(port),
        replace(options or PoolOptions(), connect_timeout=wanted.connect),
        tls=tls,
        server_name=server_name,
    )
    return OpenAIEngine(
        pool, Heads(address, metadata), names=names, deadlines=wanted, limits=limits
    )


def _cards(body: bytes) -> dict[str, dict[str, Any]]:
    """Return the entries of a list of models, by id."""
    data = (object_in(body) or {}).get("data")
    entries = filter(is_object, data) if is_array(data) else ()
    return {each["id"]: each for each in entries if isinstance(each.get("id"), str) and each["id"]}


def _count(value: object) -> int | None:
    """Return a positive whole number; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _unheard() -> None:
    """Be the listener when there is none."""
