"""Engines: clients of one worker each, behind one protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sglr_dataplane.engine.telling import CacheBatch, EngineLoad
    from sglr_dataplane.job import Chunk, Job


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a worker says of itself; only what can be trusted.

    ``GetModelInfo`` fills vocabulary size, context length, BOS and EOS with wrong defaults
    (smg-grpc-servicer 0.14.1): none of them is here.
    """

    served_model_name: str
    model_path: str
    tokenizer_path: str
    max_req_input_len: int | None
    """A prompt of this many tokens, or more, is refused; None when the worker does not say."""
    context_length: int | None
    """What a prompt and its answer may have together, in tokens: ``server_args.context_length`` as
    far as the worker has room for it; None when it does not say."""
    max_running_requests: int | None
    version: str
    default_sampling_params: str
    """JSON of the model's ``generation_config``; ``""`` when there is none."""
    is_generation: bool = True
    """False: the model embeds, and generates nothing."""
    reasoning_parser: str | None = None
    """The parser by which the worker lets a grammar wait for a thought's end; ``""`` when it has
    none, None when it does not say."""
    tool_call_parser: str | None = None
    """The parser by which its own server reads calls; ``""`` when it reads none, None when it does
    not say."""
    grammar_backend: str = ""
    """What compiles grammars; ``""`` when it does not say."""
    adapters: tuple[tuple[str, str], ...] = ()
    """The LoRA adapters it has loaded: name and id of each, as it calls them."""


@dataclass(frozen=True, slots=True)
class TokenizerBundle:
    """A worker's tokenizer files, as it sent them: not looked into, and not yet to be believed."""

    archive: bytes
    """A zip file, by the worker's word."""
    sha256: str
    """What the worker says is the archive's digest, in hexadecimal."""

    def __repr__(self) -> str:
        return f"<TokenizerBundle {len(self.archive)} bytes {self.sha256[:12]}>"


class ChunkStream(Protocol):
    """The chunks of one job, in order.

    Ends after every choice's finish; anything else raises. Must be closed: consume it under
    ``contextlib.aclosing``. Closing early cancels the worker's call at once, without awaiting it.
    """

    def __aiter__(self) -> AsyncIterator[Chunk]:
        """Return the stream itself."""
        ...

    async def __anext__(self) -> Chunk:
        """Return the next chunk.

        Raises:
            WorkerRefusedError: The worker calls the job invalid.
            WorkerBusyError: Its queue is full.
            WorkerUnavailableError: It cannot be reached or went away.
            WorkerError: It answered with another error.
            TruncatedStreamError: It ended the stream without finishing every choice.
            DeadlineExceededError: A deadline passed.
            StopAsyncIteration: Every choice has finished.
        """
        ...

    async def aclose(self) -> None:
        """End the worker's call if it still runs; safe to call twice."""
        ...


class Engine(Protocol):
    """The client of one worker."""

    on_lost: Callable[[], None]
    """Called when its connection is lost: who is reached over the next one may be another."""

    def generate(self, job: Job) -> ChunkStream:
        """Start *job*; nothing is sent before the first ``__anext__``."""
        ...

    def embed(self, job: Job) -> ChunkStream:
        """Start *job*, whose task is to embed: its one chunk has the embedding, and a finish."""
        ...

    async def is_serving(self) -> bool:
        """Return whether ``grpc.health.v1`` says SERVING for both of the worker's service names.

        Raises:
            WorkerUnavailableError: It cannot be reached.
            DeadlineExceededError: It does not answer within the probe's deadline.
        """
        ...

    async def facts(self) -> EngineFacts:
        """Return what the worker says of itself; raises as ``__anext__`` does."""
        ...

    async def tokenizer_bundle(self) -> TokenizerBundle:
        """Return the worker's tokenizer, of at most ``vocab.bundle.MAX_BUNDLE_BYTES``.

        Raises:
            WorkerError: It does not offer one, or too large a one; the sentence says what to do.
            WorkerUnavailableError: It cannot be reached or went away.
            DeadlineExceededError: It did not send all of it in time.
        """
        ...

    async def aclose(self) -> None:
        """Close the connection; running streams end with WorkerUnavailableError."""
        ...


@runtime_checkable
class GeneratingEngine(Protocol):
    """The client of a worker that can be asked to prove that it generates."""

    async def generates(self) -> bool:
        """Return whether the worker generates a token when asked to: GPU work, so ask seldom.

        Raises:
            WorkerUnavailableError: It cannot be reached.
            DeadlineExceededError: It says neither yes nor no within the generation's deadline.
        """
        ...


@runtime_checkable
class TellingEngine(Protocol):
    """The client of a worker that can be asked for its load and for what is in its cache."""

    async def load(self) -> EngineLoad | None:
        """Return how busy the worker says it is; None from one that does not tell.

        Raises:
            RouterError: It did not answer within the probe's deadline, or not as it should.
        """
        ...

    async def life(self) -> str:
        """Return what changes when another process answers; ``""`` from a worker that hides it.

        Raises:
            RouterError: It did not answer.
        """
        ...

    async def follow_cache(self, start: int, take: Callable[[CacheBatch], bool]) -> bool:
        """Give *take* what the worker tells of its cache until it says False.

        Args:
            start: The number of the first batch wanted; 0: all that is in the cache first.
            take: Given each batch, in order; returns whether to go on.

        Returns:
            False when the worker does not tell of its cache; True when *take* or the worker ended.

        Raises:
            RouterError: The worker or its connection failed.
        """
        ...
