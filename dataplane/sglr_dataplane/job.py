"""A generation ready for a worker, and what a worker says about it.

Everything here is a frozen value. Ids, counts and limits are in tokens. What is made for every
token is a msgspec struct: a frozen dataclass takes eight times as long to make.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import urandom
from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "tool_calls"]
ConstraintKind = Literal["json_schema", "regex", "ebnf_grammar", "structural_tag"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A grammar the engine must keep to; *kind* names the field of the wire's oneof."""

    kind: ConstraintKind
    source: str


class Sampling(msgspec.Struct, frozen=True, cache_hash=True):
    """How the next token is chosen and when to stop; every field is sent to the engine.

    The defaults are OpenAI's. Ranges are checked in ``prompt.sampling``: the engine checks nothing
    over gRPC, and some values end its process.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    max_new_tokens: int | None = None
    """None: the engine generates up to the context limit."""
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    no_stop_trim: bool = False
    """True keeps the matched stop string or token in the text."""
    n: int = 1
    logit_bias: tuple[tuple[int, float], ...] = ()
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True)
class LogprobsWish:
    """Which log probabilities the engine computes."""

    top: int = 0
    """How many alternatives are told of each token; at most the vocabulary's size: more ends the
    engine's process."""
    prompt_from: int | None = None
    """The first token of the prompt that is told of; None: only the answer is. Costs the engine
    its prefix cache."""


@dataclass(frozen=True, slots=True)
class Forward:
    """A request that an HTTP worker gets as its client sent it, but for the model's name."""

    path: str
    body: bytes = field(repr=False)
    """A JSON object."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """What of the client's headers a worker may see."""
    finishes: int = 1
    """Choices that are asked for."""
    has_named_events: bool = False
    """Whether a stream's events have names, and one of them is the last; else ``[DONE]`` is."""


class Job(msgspec.Struct, frozen=True):
    """A generation ready for a worker."""

    id: str
    """32 hexadecimal digits, unique across all routers: engines match aborts by prefix and let a
    repeated id steal the first one's stream."""
    model: str
    """The name the client asked for."""
    input_ids: Sequence[int]
    """The prompt; at least one id, each in ``range(vocab_size)``. An array, as encoders give it, where
    nobody needs the numbers: to make them takes longer than to encode."""
    sampling: Sampling = Sampling()
    stream: bool = True
    """Whether the worker sends tokens as they come, or all at once."""
    require_reasoning: bool = False
    """True when a grammar must wait until the model has finished thinking."""
    logprobs: LogprobsWish | None = None
    task: Literal["generate", "embed"] = "generate"
    """``embed``: one chunk comes, with the prompt's embedding and no tokens."""
    forward: Forward | None = None
    """What a worker of HTTP is sent in place of the prompt and the sampling. ``input_ids`` then only
    stand for the prompt: equal prompts have equal ids, and so do equal beginnings."""
    adapter: str = ""
    """The LoRA adapter by its name at the workers; ``""`` for the model itself."""
    trace: tuple[tuple[str, str], ...] = ()
    """Fields that tell the worker which trace the job is part of."""
    lora_id: str = ""
    """What the worker that has the job calls that adapter on the wire: each has an id of its own."""
    packed_ids: bytes = b""
    """The prompt as the wire has it, where it is long: made with it, in its thread. ``b""``: it is
    short, and packed when it is sent."""

    def __repr__(self) -> str:
        return f"<Job {self.id} model={self.model!r} prompt_tokens={len(self.input_ids)}>"


def words_of(ids: Sequence[int]) -> bytes:
    """Return *ids* as words of 32 bits, the least byte first; OverflowError when one has no room."""
    words = ids if isinstance(ids, array) else array("I", ids)
    if sys.byteorder == "big":
        words = words[:]
        words.byteswap()
    return words.tobytes()


def new_job_id() -> str:
    """Return an id no other job of any router has."""
    return urandom(16).hex()


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What one choice has cost so far, by the worker's own counters."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Finish:
    """Why the engine ended a choice."""

    reason: Literal["stop", "length"]
    matched: int | str | None = None
    """The stop token's id or the stop string; None when neither ended it."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How probable one token was, and what else could have stood there."""

    token_id: int
    logprob: float | None
    """Natural logarithm; None for a prompt's first token, which nothing comes before."""
    top: tuple[tuple[int, float], ...] = ()
    """The most probable tokens with their log probabilities, best first."""


@dataclass(frozen=True, slots=True)
class Extras:
    """What a chunk carries only for jobs that ask for it."""

    logprobs: tuple[TokenLogprob, ...] = ()
    """One for each of the chunk's tokens."""
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    """Of the prompt's tokens; on the first chunk of a choice only."""
    embedding: tuple[float, ...] = ()
    """Of the whole prompt, for a job that embeds."""


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """New tokens of one choice: always the increment, whatever the engine's way of streaming."""

    token_ids: tuple[int, ...]
    usage: Usage
    index: int = 0
    finish: Finish | None = None
    """Set on the last chunk of the choice, and only there."""
    extras: Extras | None = None


class Run(msgspec.Struct, frozen=True, gc=False):
    """Chunks in a row that hold one token each, of the one choice of a job, and do not end it.

    It says what :meth:`chunks` say, at a twentieth of the cost: it is what most of an answer is
    read as.
    """

    token_ids: list[int]
    """At least one."""
    usage: Usage
    """The counters after the last of them; before it each token counted one."""

    def chunks(self) -> list[Chunk]:
        """Return the chunks."""
        prompt, completed, cached, reasoning = msgspec.structs.astuple(self.usage)
        first = completed - len(self.token_ids) + 1
        return [
            Chunk((token_id,), Usage(prompt, first + at, cached, reasoning))
            for at, token_id in enumerate(self.token_ids)
        ]


class Piece(Chunk, frozen=True, kw_only=True):
    """What an HTTP worker answers next, ready for the client; its one finish ends the answer."""

    data: bytes
    media_type: str = ""
    """Of an answer that comes in one piece; ``""`` for the frames of a stream of events."""
