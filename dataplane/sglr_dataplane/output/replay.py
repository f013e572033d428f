"""Text through the pipeline as if a worker had generated it, cut as one likes.

``sglr parse`` and the tests use it: what they see is what a request gets.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sglr_dataplane.job import Chunk, Finish, Usage
from sglr_dataplane.output.calls import ToolSignature
from sglr_dataplane.output.deltas import Delta
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.grammar import Start
from sglr_dataplane.output.pipeline import Pipeline
from sglr_dataplane.output.stop import Cut

Chunking = Callable[[str, frozenset[str]], list[list[Cut]]]
"""(text, texts that are single tokens) → the pieces of each chunk."""

SPECIAL = 0
"""The id of every special token in a chunking."""

STARTS: dict[str, Start] = {"in": "inside", "out": "outside", "off": "off"}
"""Short names of where an answer begins."""

_TOKEN = re.compile(r" ?[^\W\d_]{1,6}|\d{1,3}|\s+|[^\w\s]{1,3}|.", re.DOTALL)


class ReplayDecoder:
    """Stands in for a tokenizer: the id of a piece is its position in a list."""

    def __init__(self, pieces: Sequence[Cut]) -> None:
        self._pieces = pieces

    def feed(self, ids: Sequence[int]) -> list[Cut]:
        """Return the pieces at positions *ids*."""
        return [self._pieces[position] for position in ids]

    def flush(self) -> list[Cut]:
        """Return nothing: pieces are whole characters."""
        return []

    @property
    def is_clean(self) -> bool:
        """Whether nothing is held back, as always."""
        return True


@dataclass(frozen=True, slots=True)
class Reader:
    """How an answer is to be read."""

    tools: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None
    starts: Start = "outside"
    signatures: tuple[ToolSignature, ...] = ()
    stop: tuple[str, ...] = ()
    hidden: frozenset[int] = frozenset()
    new_call_id: Callable[[], str] = field(default=lambda: "call_000000000000000000000000")

    def read(
        self,
        chunks: Iterable[Sequence[Cut]],
        reason: Literal["stop", "length"] = "stop",
        tokens: frozenset[str] = frozenset(),
    ) -> list[Delta]:
        """Return the deltas of an answer that arrives as *chunks* and ends for *reason*."""
        parts = [tuple(chunk) for chunk in chunks]
        pieces = [piece for part in parts for piece in part]
        pipeline = Pipeline(
            ReplayDecoder(pieces),
            tool_format=self.tools,
            reasoning_format=self.reasoning,
            starts=self.starts,
            tools=self.signatures,
            stop=self.stop,
            hidden=self.hidden,
            tokens=tokens,
            new_call_id=self.new_call_id,
        )
        deltas: list[Delta] = []
        position = 0
        for part in parts:
            ids = tuple(range(position, position + len(part)))
            position += len(part)
            deltas += pipeline.feed(Chunk(ids, Usage()))
        return deltas + pipeline.feed(Chunk((), Usage(), finish=Finish(reason)))


def tokens_of(text: str, specials: frozenset[str]) -> list[Cut]:
    """Return *text* in pieces of a token's size, those of *specials* as whole tokens."""
    pieces: list[Cut] = []
    for part in _around(text, specials):
        if part in specials:
            pieces.append(Cut(part, SPECIAL))
        else:
            pieces += [Cut(found.group()) for found in _TOKEN.finditer(part)]
    return pieces


def whole(text: str, specials: frozenset[str]) -> list[list[Cut]]:
    """All at once, special tokens known as such."""
    return [tokens_of(text, specials)]


def by_token(text: str, specials: frozenset[str]) -> list[list[Cut]]:
    """One token a chunk."""
    return [[piece] for piece in tokens_of(text, specials)]


def by_character(text: str, _specials: frozenset[str]) -> list[list[Cut]]:
    """One character a chunk, nothing known to be a token."""
    return [[Cut(character)] for character in text]


def one(text: str, _specials: frozenset[str]) -> list[list[Cut]]:
    """One chunk of plain text."""
    return [[Cut(text)]] if text else []


def at_random(seed: int) -> Chunking:
    """Return a chunking that cuts anywhere; with an even *seed* special tokens stay whole."""

    def cut(text: str, specials: frozenset[str]) -> list[list[Cut]]:
        generator = random.Random(seed)  # noqa: S311  # reproducible test input
        parts = _around(text, specials) if seed % 2 == 0 else [text]
        pieces: list[Cut] = []
        for part in parts:
            if seed % 2 == 0 and part in specials:
                pieces.append(Cut(part, SPECIAL))
                continue
            longest = generator.choice((1, 3, 8, 40))
            at = 0
            while at < len(part):
                size = generator.randint(1, longest)
                pieces.append(Cut(part[at : at + size]))
                at += size
        chunks: list[list[Cut]] = []
        while pieces:
            size = generator.randint(1, 3)
            chunks.append(pieces[:size])
            pieces = pieces[size:]
        return chunks

    return cut


def token_texts(chunks: Iterable[Sequence[Cut]], specials: frozenset[str]) -> frozenset[str]:
    """Return which of *specials* the chunks carry as tokens; none when they are spelled out."""
    known = any(piece.token_id is not None for chunk in chunks for piece in chunk)
    return specials if known else frozenset()


def _around(text: str, specials: frozenset[str]) -> list[str]:
    """Return *text* cut before and after each of *specials*."""
    if not specials:
        return [text]
    longest_first = sorted(specials, key=len, reverse=True)
    return [part for part in re.split(f"({'|'.join(map(re.escape, longest_first))})", text) if part]
