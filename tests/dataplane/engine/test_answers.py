"""Messages of a worker become increments: nothing twice, nothing lost, every end said."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sglr_dataplane.engine.answers import Answers
from sglr_dataplane.errors import TruncatedStreamError, WorkerError
from sglr_dataplane.job import (
    Chunk,
    Extras,
    Finish,
    Job,
    LogprobsWish,
    Sampling,
    TokenLogprob,
    Usage,
)

SURE, DOT = 39814, 13


def a_job(*, n: int = 1, stream: bool = True) -> Job:
    """Return a job for *n* choices."""
    return Job(id="0" * 32, model="m", input_ids=(1,), sampling=Sampling(n=n), stream=stream)


def counted(tokens: int) -> Usage:
    """Return counters that stand at *tokens*."""
    return Usage(prompt_tokens=5, completion_tokens=tokens, cached_tokens=2)


def ids(*chunks: Chunk | None) -> tuple[int, ...]:
    """Return all ids of *chunks*, in order."""
    return tuple(token for chunk in chunks if chunk is not None for token in chunk.token_ids)


def test_a01_true_increments_are_passed_on() -> None:
    """A01: t1, t2, t3 one by one give each once, and usage 3."""
    answers = Answers(a_job())

    chunks = [answers.chunk((token,), counted(token)) for token in (1, 2, 3)]
    last = answers.complete((3,), counted(3), reason="stop")

    assert ids(*chunks, last) == (1, 2, 3)
    assert last.usage.completion_tokens == 3


def test_a01_cumulative_lists_are_cut_to_what_is_new() -> None:
    """A01: t1, t1 t2, t1 t2 t3 give each token once, and usage 3."""
    answers = Answers(a_job())

    chunks = [answers.chunk(tuple(range(1, n + 1)), counted(n)) for n in (1, 2, 3)]
    last = answers.complete((1, 2, 3), counted(3), reason="stop")

    assert ids(*chunks, last) == (1, 2, 3)
    assert last.usage.completion_tokens == 3


@pytest.mark.parametrize(
    ("token_ids", "counter"),
    [((2,), 3), ((1, 2), 4), ((2, 3), 2 + 5), ((), 7), ((1, 2, 3, 4), 3), ((9,), 0)],
)
def test_a01_counters_that_fit_neither_reading_end_the_stream(
    token_ids: tuple[int, ...], counter: int
) -> None:
    """A01: what is neither an increment nor everything so far is an error, never text."""
    answers = Answers(a_job())
    answers.chunk((1,), counted(1))

    with pytest.raises(WorkerError, match="neither"):
        answers.chunk(token_ids, counted(counter))


def test_a_chunk_that_says_nothing_new_is_no_chunk() -> None:
    """An empty increment and a repeated cumulative list add nothing."""
    answers = Answers(a_job())
    answers.chunk((1, 2), counted(2))

    assert answers.chunk((), counted(2)) is None
    assert answers.chunk((1, 2), counted(2)) is None


@pytest.mark.parametrize(
    ("streamed", "completed"),
    [
        ([(SURE,)], (SURE, DOT)),
        ([(SURE,)], (DOT,)),
        ([(SURE,), (DOT,)], (DOT,)),
        ([(SURE, DOT)], (SURE, DOT)),
        ([], (SURE, DOT)),
        ([(SURE,), (DOT,)], ()),
    ],
)
def test_a02_the_last_tokens_come_exactly_once(
    streamed: list[tuple[int, ...]], completed: tuple[int, ...]
) -> None:
    """A02: in every variant of `complete`, "Sure." is whole and the finish follows it."""
    answers = Answers(a_job())
    counts = itertools.accumulate(len(part) for part in streamed)

    chunks = [answers.chunk(part, counted(n)) for part, n in zip(streamed, counts, strict=True)]
    last = answers.complete(completed, counted(2), reason="stop", matched=DOT)

    assert ids(*chunks, last) == (SURE, DOT)
    assert last.finish == Finish("stop", DOT)
    assert all(chunk is None or chunk.finish is None for chunk in chunks)


def test_a02_streaming_or_not_the_tokens_are_the_same() -> None:
    """A02: one message with everything gives what the increments give."""
    answers = Answers(a_job(stream=False))

    last = answers.complete((SURE, DOT), counted(2), reason="length")

    assert last == Chunk((SURE, DOT), counted(2), 0, Finish("length"))


def test_a_whole_answer_with_less_than_it_counts_is_an_error() -> None:
    """Not streamed: three tokens counted and two sent is text lost, not a shorter answer."""
    answers = Answers(a_job(stream=False))

    with pytest.raises(WorkerError, match="sent 2 token ids and counts 3"):
        answers.complete((1, 2), counted(3), reason="stop")


def test_a_whole_answer_may_hold_more_than_it_counts() -> None:
    """Not streamed: a counter that is not told takes nothing away."""
    answers = Answers(a_job(stream=False))

    assert answers.complete((1, 2, 3), counted(0), reason="stop").token_ids == (1, 2, 3)


def test_tokens_lost_before_the_completion_are_an_error() -> None:
    """A counter above everything that came says that text is missing."""
    answers = Answers(a_job())
    answers.chunk((1,), counted(1))

    with pytest.raises(WorkerError):
        answers.complete((3,), counted(3), reason="stop")


def test_a_completion_that_counts_less_than_was_streamed_is_an_error() -> None:
    """What is shown cannot be taken back in silence."""
    answers = Answers(a_job())
    answers.chunk((1, 2, 3), counted(3))

    with pytest.raises(WorkerError):
        answers.complete((3,), counted(2), reason="stop")


def test_a03_an_empty_completion_without_counters_is_a_finish() -> None:
    """A03 (c): `complete{output_ids=[], finish_reason="stop"}` finishes with the usage so far."""
    answers = Answers(a_job())
    answers.chunk((1, 2), counted(2))

    last = answers.complete((), Usage(), reason="stop")

    assert last == Chunk((), counted(2), 0, Finish("stop"))


def test_a03_a_completion_without_a_reason_is_a_stop() -> None:
    """A03 (d): `complete` ends the choice although its reason is empty."""
    answers = Answers(a_job())
    answers.chunk((1,), counted(1))

    assert answers.complete((1,), counted(1), reason="").finish == Finish("stop")
    assert answers.finished


def test_a03_an_end_without_completion_is_no_stop() -> None:
    """A03 (a): status OK after two chunks and no `complete` is a truncation."""
    answers = Answers(a_job())
    answers.chunk((1,), counted(1))
    answers.chunk((2,), counted(2))

    with pytest.raises(TruncatedStreamError):
        answers.end()


def test_a03_every_choice_needs_its_own_finish() -> None:
    """One of two choices finished is a truncation; both are an end."""
    answers = Answers(a_job(n=2))
    answers.complete((1,), counted(1), 1, reason="stop")

    with pytest.raises(TruncatedStreamError):
        answers.end()
    answers.complete((1,), counted(1), 0, reason="stop")
    answers.end()


@pytest.mark.parametrize("reason", ["abort", "cancelled", "STOP"])
def test_a04_a_reason_that_is_no_finish_is_a_truncation(reason: str) -> None:
    """A04: an engine that gave up has not stopped."""
    answers = Answers(a_job())
    answers.chunk((1,), counted(1))

    with pytest.raises(TruncatedStreamError):
        answers.complete((1,), counted(1), reason=reason)
    assert not answers.finished


def test_streamed_choices_are_told_apart_by_index() -> None:
    """Interleaved increments of two choices each keep their own count."""
    answers = Answers(a_job(n=2))

    chunks = [
        answers.chunk((10,), counted(1), 0),
        answers.chunk((20,), counted(1), 1),
        answers.chunk((21,), counted(2), 1),
        answers.complete((21,), counted(2), 1, reason="length"),
        answers.complete((11,), counted(2), 0, reason="stop"),
    ]

    assert [(c.index, c.token_ids) for c in chunks if c is not None] == [
        (0, (10,)),
        (1, (20,)),
        (1, (21,)),
        (1, ()),
        (0, (11,)),
    ]


def test_whole_choices_are_told_apart_by_arrival() -> None:
    """Without streaming the engine leaves every index 0."""
    answers = Answers(a_job(n=3, stream=False))

    chunks = [answers.complete((token,), counted(1), 0, reason="stop") for token in (7, 8, 9)]

    assert [(chunk.index, chunk.token_ids) for chunk in chunks] == [(0, (7,)), (1, (8,)), (2, (9,))]
    assert answers.finished


@pytest.mark.parametrize("stream", [True, False])
def test_more_than_was_asked_for_is_an_error(*, stream: bool) -> None:
    """A choice after its finish, or one beyond n, is no answer to this job."""
    answers = Answers(a_job(stream=stream))
    answers.complete((1,), counted(1), reason="stop")

    with pytest.raises(WorkerError):
        answers.complete((1,), counted(1), reason="stop")


def test_an_unknown_choice_is_an_error() -> None:
    """An index at n is beyond the last choice."""
    with pytest.raises(WorkerError, match="choice 2 of 2"):
        Answers(a_job(n=2)).chunk((1,), counted(1), 2)


@given(
    tokens=st.lists(st.integers(0, 50), max_size=12),
    borders=st.sets(st.integers(1, 11)),
    cumulative=st.booleans(),
    held_back=st.integers(0, 4),
    repeated=st.integers(0, 12),
)
def test_any_way_of_streaming_gives_the_tokens_once(
    tokens: list[int],
    borders: set[int],
    held_back: int,
    repeated: int,
    *,
    cumulative: bool,
) -> None:
    """Whatever the chunk borders, the way of counting and what `complete` repeats: the same ids."""
    streamed = tokens[: max(len(tokens) - held_back, 0)]
    ends = sorted({border for border in borders if border < len(streamed)} | {len(streamed)})
    answers = Answers(a_job())
    out: list[int] = []
    for start, end in itertools.pairwise([0, *ends]):
        part = tuple(streamed[:end] if cumulative else streamed[start:end])
        out += ids(answers.chunk(part, counted(end)))

    suffix = len(tokens) - len(streamed) + min(repeated, len(streamed))
    tail = tuple(tokens[len(tokens) - suffix :])
    out += ids(answers.complete(tail, counted(len(tokens)), reason="stop"))

    assert out == tokens


def rows(*token_ids: int) -> Extras:
    """Return log probabilities that name their tokens, the prompt's one first."""
    told = tuple(TokenLogprob(token_id, -token_id / 8) for token_id in token_ids)
    return Extras(logprobs=told, prompt_logprobs=(TokenLogprob(9, None),))


def test_logprobs_come_once_whatever_the_messages_repeat() -> None:
    """Increments, everything so far, and the last step said again: each token has one entry."""
    answers = Answers(replace(a_job(), logprobs=LogprobsWish()))
    first = answers.chunk((1,), counted(1), 0, rows(1))
    second = answers.chunk((1, 2, 3), counted(3), 0, rows(1, 2, 3))
    last = answers.complete((3, 4), counted(4), reason="stop", extras=rows(3, 4))
    told = [chunk.extras for chunk in (first, second, last) if chunk is not None]

    assert [[each.token_id for each in extras.logprobs] for extras in told if extras] == [
        [1],
        [2, 3],
        [4],
    ]
    assert [len(extras.prompt_logprobs) for extras in told if extras] == [1, 0, 0]


def test_a_last_message_that_repeats_adds_no_logprobs() -> None:
    """The real worker's last message has the last step's rows once more: they are dropped."""
    answers = Answers(replace(a_job(), logprobs=LogprobsWish()))
    answers.chunk((1, 2), counted(2), 0, rows(1, 2))
    last = answers.complete((2,), counted(2), reason="stop", extras=rows(2))

    assert last.extras == Extras()


def test_lost_logprobs_are_an_error() -> None:
    """Fewer entries than tokens would be told of the wrong tokens."""
    answers = Answers(replace(a_job(), logprobs=LogprobsWish()))

    with pytest.raises(WorkerError, match="1 log probabilities for 2 tokens"):
        answers.chunk((1, 2), counted(2), 0, rows(2))
    with pytest.raises(WorkerError, match="0 log probabilities for 1 tokens"):
        Answers(replace(a_job(), logprobs=LogprobsWish())).chunk((1,), counted(1))
