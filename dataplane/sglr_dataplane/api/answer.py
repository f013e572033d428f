"""All choices of one answer: a worker's chunks in, each choice's news out."""

from __future__ import annotations

from collections import deque
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Self

import msgspec

from sglr_dataplane.api.follow import Gathering
from sglr_dataplane.job import Chunk, Extras, TokenLogprob, Usage
from sglr_dataplane.output.collect import Message, collect
from sglr_dataplane.output.deltas import Reasoning
from sglr_dataplane.output.sink import joined

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from sglr_dataplane.api.follow import Batches
    from sglr_dataplane.api.schema.common import Thoughts
    from sglr_dataplane.output.deltas import Delta
    from sglr_dataplane.output.passage import Passage
    from sglr_dataplane.output.pipeline import Pipeline


class News(msgspec.Struct, frozen=True):
    """What the client learns next of one choice; never empty, the last one has its finish."""

    index: int
    deltas: list[Delta]
    usage: Usage
    """What the choice has cost so far."""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    """Of the tokens since the last news: none is told later than the text it became."""
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    """On the first news of a choice only."""


class Choice:
    """One choice on its way from chunks to news.

    With stop strings or log probabilities tokens are told one by one, so that what ends a text,
    and which tokens count, depends on no chunk border and not on whether the answer is streamed.

    Tokens of thoughts are counted here, the markers around them included: most workers, which are
    not told where a thought may begin, count none.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        ends: frozenset[int] = frozenset(),
        one_by_one: bool = False,
        thoughts: Thoughts = "streamed",
    ) -> None:
        """Read chunks through *pipeline*.

        Args:
            pipeline: The choice's own.
            ends: Tokens that end the choice: one that comes last waits for the finish, which says
                that it is no text.
            one_by_one: Whether tokens are read singly.
            thoughts: How thinking is told.
        """
        self._pipeline = pipeline
        self.is_prose = pipeline.is_prose
        """Whether all of it is content: then :attr:`counted` is what it costs."""
        self._ends = ends
        self._one_by_one = one_by_one
        self._reads_whole = not (one_by_one or pipeline.may_think)
        self._thoughts = thoughts
        self.finished = False
        """Whether its finish was told."""
        self._held: Chunk | None = None
        self._thought: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._prompt_logprobs: tuple[TokenLogprob, ...] = ()
        self.counted = Usage()
        """The worker's counters by then."""
        self._thought_tokens = 0
        self._thinks_since = 0 if pipeline.may_think and pipeline.thinks else None
        """How many tokens there were when the thought began that goes on; None: none does."""

    @property
    def usage(self) -> Usage:
        """What it has cost so far: up to the stop string, where one ended it."""
        usage, thought = self.counted, self._thought_tokens
        if self._thinks_since is not None:
            thought += usage.completion_tokens - self._thinks_since
        if thought <= usage.reasoning_tokens:
            return usage
        return Usage(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, thought)

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end it."""
        return self._ends

    @property
    def reads_singly(self) -> bool:
        """Whether tokens are read one by one."""
        return self._one_by_one

    def passage(self) -> Passage | None:
        """Return how ordinary tokens may pass without being read, until the next that is read.

        Each of them would become one news, with one delta and nothing else; then :meth:`passed`
        must hear of it. None when none may pass.
        """
        if self._held is not None or self._ids or self._thought or self._thoughts != "streamed":
            return None
        return self._pipeline.passage()

    def passed(self, usage: Usage) -> None:
        """Note that tokens passed as :meth:`passage` allowed; *usage* is what they came to."""
        self.counted = usage
        self._pipeline.passed()

    def read(self, chunk: Chunk) -> list[News]:
        """Return what *chunk* tells the client; nothing yet, perhaps, and singly once a token."""
        if self._held is not None:
            chunk, self._held = _joined(self._held, chunk), None
        if chunk.finish is None and chunk.token_ids and chunk.token_ids[-1] in self._ends:
            self._held = chunk
            return []
        if self._reads_whole or len(chunk.token_ids) <= 1:
            deltas = self._read(chunk)
            self.finished = self._pipeline.finished
            return [self._news(chunk.index, deltas)] if deltas else []
        told: list[News] = []
        together: list[Delta] = []
        for piece in _singly(chunk):
            deltas = self._read(piece)
            if not self._one_by_one:
                together += deltas
            elif deltas:
                told.append(self._news(chunk.index, deltas))
            if self._pipeline.finished:
                self.finished = True
                break
        if together:
            told.append(self._news(chunk.index, joined(together)))
        return told

    def _read(self, piece: Chunk) -> list[Delta]:
        """Return what *piece* tells, and count it."""
        spent = self.counted.completion_tokens
        self.counted = piece.usage
        self._ids += piece.token_ids
        if piece.extras is not None:
            self._logprobs += piece.extras.logprobs
            self._prompt_logprobs += piece.extras.prompt_logprobs
        pipeline = self._pipeline
        if self.is_prose:
            return pipeline.feed(piece)
        thought = pipeline.thinks
        deltas = pipeline.feed(piece)
        if pipeline.thinks != thought:
            if self._thinks_since is None:
                self._thinks_since = spent
            else:
                self._thought_tokens += self.counted.completion_tokens - self._thinks_since
                self._thinks_since = None
        return deltas if self._thoughts == "streamed" else self._without_thoughts(deltas)

    def _news(self, index: int, deltas: list[Delta]) -> News:
        news = News(
            index,
            deltas,
            self.counted if self.is_prose else self.usage,
            tuple(self._ids),
            tuple(self._logprobs),
            self._prompt_logprobs,
        )
        self._ids.clear()
        self._logprobs.clear()
        self._prompt_logprobs = ()
        return news

    def _without_thoughts(self, deltas: list[Delta]) -> list[Delta]:
        """Return *deltas* with thoughts taken out, and whole ones put in where they end."""
        told: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, Reasoning):
                self._thought.append(delta.text)
                continue
            if self._thought and self._thoughts == "whole":
                told.append(Reasoning("".join(self._thought)))
            self._thought.clear()
            told.append(delta)
        return joined(told) if len(told) > 1 else told


class Answer:
    """The choices of one answer as they come; ends when every choice has finished.

    The stream of chunks stays the caller's to close: when stop strings ended every choice before
    the worker noticed, it still runs.
    """

    def __init__(self, chunks: AsyncIterator[Chunk], choices: Sequence[Choice]) -> None:
        """Feed *chunks* to their choice."""
        self._chunks = chunks
        self._choices = choices
        self._open = len(choices)
        self.only = choices[0] if len(choices) == 1 else None
        """The choice, where there is but one."""
        self.finished = not choices
        """Whether every choice has finished."""
        self.told: deque[News] = deque()
        """What nobody has asked for yet."""

    @property
    def usages(self) -> list[Usage]:
        """By choice, what it has cost so far."""
        only = self.only
        if only is not None and only.is_prose:
            return [only.counted]
        return [choice.usage for choice in self._choices]

    def read(self, chunks: Sequence[Chunk]) -> list[News]:
        """Return what *chunks* tell, behind what nobody has asked for yet."""
        told: list[News] = []
        if self.told:
            told += self.told
            self.told.clear()
        for chunk in chunks:
            choice = self._choices[chunk.index]
            if choice.finished:
                continue
            told += choice.read(chunk)
            if choice.finished:
                self._open -= 1
                self.finished = not self._open
        return told

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> News:
        """Return the next news of any choice.

        Raises:
            RouterError: The worker failed.
            StopAsyncIteration: Every choice has finished.
        """
        while not self.told and self._open:
            self.told += self.read((await anext(self._chunks),))
        if self.told:
            return self.told.popleft()
        raise StopAsyncIteration


class WholeChoice(msgspec.Struct, frozen=True):
    """One choice that is complete."""

    message: Message
    news: tuple[News, ...]
    """What *message* was collected from, in order."""
    usage: Usage
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    prompt_logprobs: tuple[TokenLogprob, ...]


async def whole(answer: Answer, batches: Batches | None = None) -> list[WholeChoice]:
    """Return every choice of *answer*, complete, in order; raises what the answer raises.

    Args:
        answer: The answer.
        batches: Its chunks, where they come by batches.
    """
    if batches is None:
        told = [news async for news in answer]
    else:
        gathering = Gathering(batches, answer)
        gathering.begin()
        try:
            await gathering.run()
        finally:
            gathering.read_on()  # an answer that was not completed has cost what came of it
        told = gathering.news
    if answer.only is not None:
        return [_whole_choice(told)]
    by_choice: dict[int, list[News]] = {}
    for news in told:
        by_choice.setdefault(news.index, []).append(news)
    return [_whole_choice(by_choice[index]) for index in sorted(by_choice)]


_all = chain.from_iterable
_DELTAS: Final = attrgetter("deltas")
_TOKEN_IDS: Final = attrgetter("token_ids")
_LOGPROBS: Final = attrgetter("logprobs")


def _whole_choice(told: Sequence[News]) -> WholeChoice:
    return WholeChoice(
        message=collect(_all(map(_DELTAS, told))),
        news=tuple(told),
        usage=told[-1].usage,
        token_ids=tuple(_all(map(_TOKEN_IDS, told))),
        logprobs=tuple(_all(map(_LOGPROBS, told))),
        prompt_logprobs=told[0].prompt_logprobs,
    )


def _joined(first: Chunk, second: Chunk) -> Chunk:
    """Return two chunks as one."""
    one, other = first.extras or Extras(), second.extras or Extras()
    return Chunk(
        first.token_ids + second.token_ids,
        second.usage,
        second.index,
        second.finish,
        Extras(one.logprobs + other.logprobs, one.prompt_logprobs + other.prompt_logprobs),
    )


def _singly(chunk: Chunk) -> Iterator[Chunk]:
    """Return *chunk*, of several tokens, as chunks of one, each with the counters that stand at it."""
    count = len(chunk.token_ids)
    extras = chunk.extras or Extras()
    for at, token_id in enumerate(chunk.token_ids):
        yield Chunk(
            (token_id,),
            _counted(chunk.usage, after=count - 1 - at),
            chunk.index,
            chunk.finish if at == count - 1 else None,
            Extras(extras.logprobs[at : at + 1], extras.prompt_logprobs if at == 0 else ()),
        )


def _counted(usage: Usage, *, after: int) -> Usage:
    """Return *usage* as it stood *after* tokens before."""
    completed = max(usage.completion_tokens - after, 0)
    return Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=completed,
        cached_tokens=usage.cached_tokens,
        reasoning_tokens=min(usage.reasoning_tokens, completed),
    )
