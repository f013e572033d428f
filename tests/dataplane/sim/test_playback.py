"""How an answer is cut and sent: chunk borders, styles of complete, pauses, incidents."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.sim.generation import Limits
from sglr_dataplane.sim.messages import Writer
from sglr_dataplane.sim.playback import Action, Emit, Wait, actions, compose
from sglr_dataplane.sim.script import Incident, Play, Status
from sglr_dataplane.sim.text import IdsOnly
from sglr_proto.sglang import scheduler_pb2 as pb
from support.sim_client import a_request, chunks_of, completes_of

TEXT = IdsOnly(eos_ids=(999,))
LIMITS = Limits(max_new_tokens=100, eos_ids=frozenset({999}))


def played(play: Play, *, stream: bool = True, token_delay: float = 0.0) -> list[Action]:
    """Return everything *play* does."""
    answer = compose(play, "", LIMITS, TEXT)
    writer = Writer(a_request(stream=stream), TEXT.vocab_size)
    return list(actions(answer, play, writer, token_delay))


def sent(play: Play, *, stream: bool = True) -> list[pb.GenerateResponse]:
    """Return the messages of *play*."""
    return [action.message for action in played(play, stream=stream) if isinstance(action, Emit)]


def shape(play: Play) -> tuple[list[list[int]], list[list[int]]]:
    """Return the chunks' ids and the completes' ids."""
    messages = sent(play)
    return chunks_of(messages), [list(c.output_ids) for c in completes_of(messages)]


@pytest.mark.parametrize(
    ("style", "chunks", "complete"),
    [
        ("repeat_last", [[1], [2]], [[2]]),
        ("all", [[1], [2]], [[1, 2]]),
        ("only", [], [[1, 2]]),
        ("last_only", [[1]], [[2]]),
        ("last_and_all", [[1]], [[1, 2]]),
        ("empty", [[1], [2]], [[]]),
        ("missing", [[1], [2]], []),
    ],
)
def test_styles_of_complete(style: Any, chunks: list[list[int]], complete: list[list[int]]) -> None:
    """The variants of A02 and A03, and the real worker's own way."""
    assert shape(Play(ids=(1, 2), complete=style)) == (chunks, complete)


def test_cumulative_chunks_repeat_everything() -> None:
    """A01: ids grow while the counters are the same as ever."""
    messages = sent(Play(ids=(1, 2, 3), cumulative=True))

    assert chunks_of(messages) == [[1], [1, 2], [1, 2, 3]]
    assert [m.chunk.completion_tokens for m in messages[:-1]] == [1, 2, 3]
    assert list(messages[-1].complete.output_ids) == [1, 2, 3]


def test_counters_can_be_made_to_fit_nothing() -> None:
    """Neither an increment nor a cumulative list explains them."""
    counts = [m.chunk.completion_tokens for m in sent(Play(ids=(1, 2), count_offset=5))[:-1]]

    assert counts == [6, 7]


@pytest.mark.parametrize(
    ("play", "chunks"),
    [
        (Play(ids=(1, 2, 3), chunk_size=2), [[1, 2], [3]]),
        (Play(ids=(1, 2, 3), chunk_size=0), [[1, 2, 3]]),
        (Play(chunks=((1, 2), (), (3,))), [[1, 2], [], [3]]),
        (Play(pieces=("ab", "c")), [[97, 98], [99], [999]]),
        (Play(pieces=("ab", "c"), eos=False), [[97, 98], [99]]),
        (Play(text="ab"), [[97], [98], [999]]),
        (Play(ids=(1,), eos=True, chunk_size=0), [[1, 999]]),
        (Play(ids=()), [[]]),
        (Play(text="", eos=False), [[]]),
    ],
)
def test_chunk_borders(play: Play, chunks: list[list[int]]) -> None:
    """By size, by list, by piece of text; EOS is a chunk of its own after a list."""
    assert chunks_of(sent(play)) == chunks


def test_exact_ids_ignore_the_requests_limits_unless_told() -> None:
    """``obey`` decides; words obey, ids do not."""
    long = tuple(range(1, 201))

    assert len(compose(Play(ids=long), "", LIMITS, TEXT).ids) == 200
    assert len(compose(Play(ids=long, obey=True), "", LIMITS, TEXT).ids) == 100
    assert len(compose(Play(text="x" * 200), "", LIMITS, TEXT).ids) == 100
    assert len(compose(Play(text="x" * 200, obey=False), "", LIMITS, TEXT).ids) == 201


def test_a_border_that_a_limit_cuts_off_is_no_empty_chunk() -> None:
    """Pieces after the limit are gone, not empty."""
    limits = Limits(max_new_tokens=3)
    answer = compose(Play(pieces=("ab", "cd", "ef")), "", limits, TEXT)

    assert answer.chunks == ((97, 98), (99,))


def test_finish_and_match_can_be_overridden() -> None:
    """Also with the empty reason of A03 (d)."""
    default = completes_of(sent(Play(text="a")))[0]
    empty = completes_of(sent(Play(text="a", finish="")))[0]
    word = completes_of(sent(Play(text="a", finish="stop", matched="END")))[0]

    assert (default.finish_reason, default.matched_token_id) == ("stop", 999)
    assert empty.finish_reason == ""
    assert word.matched_stop_str == "END"


def test_pauses() -> None:
    """The first pause, the listed ones, then the usual one."""

    def pauses(play: Play, token_delay: float = 0.0) -> list[float]:
        found = played(play, token_delay=token_delay)
        return [action.seconds for action in found if isinstance(action, Wait)]

    assert pauses(Play(ids=(1, 2, 3), first_delay="1s", delay="20ms")) == [1.0, 0.02, 0.02]
    assert pauses(Play(ids=(1, 2, 3), delays=("1s", "2s"), delay="3s")) == [1.0, 2.0, 3.0]
    assert pauses(Play(ids=(1, 2)), token_delay=0.5) == [0.0, 0.5]
    assert pauses(Play(ids=(1, 2), complete="only", first_delay="1s")) == [1.0]
    assert pauses(Play(ids=(), first_delay="1s")) == [1.0]


@pytest.mark.parametrize(
    ("after", "before"),
    [(0, 0), (1, 1), (2, 2), (7, 2), ("complete", 3)],
)
def test_incidents_have_their_place(after: Any, before: int) -> None:
    """Before the first chunk, between two, after the last, past the end, after complete."""
    incident = Incident(after=after, status=Status(code="INTERNAL"))
    done = [a for a in played(Play(ids=(1, 2), incidents=(incident,))) if not isinstance(a, Wait)]

    assert done.index(incident) == before
    assert len(done) == 4


@given(
    ids=st.lists(st.integers(0, 900), max_size=20),
    size=st.integers(0, 5),
    cumulative=st.booleans(),
)
def test_every_token_is_said_once(ids: list[int], size: int, *, cumulative: bool) -> None:
    """Chunks add up to the answer, and their counters to its length, whatever the borders."""
    messages = sent(Play(ids=tuple(ids), chunk_size=size, cumulative=cumulative))
    chunks = chunks_of(messages)
    told = chunks[-1] if cumulative else [token for chunk in chunks for token in chunk]

    assert told == ids
    assert messages[-2].chunk.completion_tokens == len(ids)
    assert messages[-1].complete.completion_tokens == len(ids)


@given(ids=st.lists(st.integers(0, 900), max_size=20), size=st.integers(0, 5))
def test_unary_says_what_streaming_says(ids: list[int], size: int) -> None:
    """One complete with all the ids of the chunks."""
    play = Play(ids=tuple(ids), chunk_size=size)
    [complete] = completes_of(sent(play, stream=False))

    assert list(complete.output_ids) == ids
