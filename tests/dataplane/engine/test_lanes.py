"""A lane takes what it can say in full, and nothing of what it cannot."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.h2.splitter import Splitter, frame_message
from sglr_dataplane.engine.lanes import Lane
from sglr_dataplane.engine.lean import lean_engine
from sglr_dataplane.engine.runs import RunReader
from sglr_dataplane.engine.wire import ChunkReader
from sglr_dataplane.errors import DeadlineExceededError
from sglr_dataplane.job import Job
from sglr_proto.sglang import scheduler_pb2 as pb
from support.h2calls import until
from support.h2peer import DATA, PeerConnection, frame, h2_peer, head
from support.pairs import a_job

NAME = "0123456789abcdef0123456789abcdef"
TOKENS = st.integers(0, 127) | st.integers(0, 200_000) | st.integers(0, 2**21 - 1)


class Written:
    """A client that reads, and what it was sent."""

    def __init__(self) -> None:
        """Have sent nothing."""
        self.is_full = False
        self.parts: list[bytes] = []

    def write(self, part: bytes) -> None:
        """Keep *part*."""
        self.parts.append(part)


class Spoken:
    """When something was said."""

    spoke_at = 0.0


class Spelled(dict[int, bytes]):
    """Every token as its own number."""

    def __missing__(self, token_id: int) -> bytes:
        """Return the number's digits."""
        return b"%d" % token_id


def a_message(token: int, count: int, **fields: Any) -> bytes:
    """Return a worker's message with its prefix: one token, the *count*-th."""
    chunk = pb.GenerateStreamChunk(
        token_ids=[token], completion_tokens=count, prompt_tokens=500, **fields
    )
    return frame_message(pb.GenerateResponse(request_id=NAME, chunk=chunk).SerializeToString())


def a_lane(counted: int = 1, *, spelled: Spelled | None = None) -> tuple[Lane, Written]:
    """Return a lane behind *counted* tokens, and where it leads."""
    chunks = ChunkReader(NAME)
    assert chunks.read(a_message(7, 1)[5:]) is not None
    outlet = Written()
    lane = Lane(outlet, Spoken(), spelled or Spelled())
    lane.before, lane.after = b"<", b">"
    assert lane.lay(RunReader(chunks), counted, 1000.0)
    return lane, outlet


@given(
    tokens=st.lists(TOKENS, min_size=1, max_size=9),
    counted=st.integers(1, 110) | st.integers(128, 1000) | st.integers(16_384, 17_000),
)
def test_tokens_in_a_row_pass(tokens: list[int], counted: int) -> None:
    """Each becomes its frame, and is counted."""
    lane, outlet = a_lane(counted)

    assert all(lane.take(a_message(t, counted + at), 5.0) for at, t in enumerate(tokens, 1))
    assert outlet.parts == [b"<%d>" % token for token in tokens]
    assert (lane.passed, lane.heard_at) == (len(tokens), 5.0)


@given(token=TOKENS, at=st.integers(0, 300), value=st.integers(0, 255), tail=st.binary(max_size=8))
def test_damaged_bytes_do_not_pass_but_for_what_they_say(
    token: int, at: int, value: int, tail: bytes
) -> None:
    """Whatever byte is another: what passes is what the stubs read in the message."""
    lane, outlet = a_lane()
    data = bytearray(a_message(token, 2))
    data[at % len(data)] = value
    damaged = bytes(data) + tail

    if lane.take(damaged, 5.0):
        (message,) = Splitter(1 << 20).split([damaged])
        said = pb.GenerateResponse.FromString(message)
        assert said == pb.GenerateResponse(
            request_id=NAME,
            chunk=pb.GenerateStreamChunk(
                token_ids=said.chunk.token_ids, prompt_tokens=500, completion_tokens=2
            ),
        )
        assert outlet.parts == [b"<%d>" % said.chunk.token_ids[0]]
    else:
        assert (outlet.parts, lane.passed) == ([], 0)


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("nothing", b""),
        ("half a prefix", a_message(5, 2)[:3]),
        ("half a message", a_message(5, 2)[:-1]),
        ("more than a message", a_message(5, 2) + b"\0"),
        ("two messages", a_message(5, 2) + a_message(5, 3)),
        ("a counter that jumps", a_message(5, 3)),
        ("a counter that stays", a_message(5, 1)),
        ("another choice", a_message(5, 2, index=1)),
        ("other counters", a_message(5, 2, cached_tokens=9)),
        ("another job", a_message(5, 2).replace(b"0123", b"3210")),
        ("a varint without an end", a_message(300, 2).replace(b"\xac\x02", b"\xac\x82")),
        ("a token that is none", a_message(2**28, 2)),
        ("compressed", b"\1" + a_message(5, 2)[1:]),
    ],
)
def test_what_is_not_surely_the_next_token_does_not_pass(what: str, data: bytes) -> None:
    """It is left to the listener, whole; and what comes next in its place passes."""
    lane, outlet = a_lane()

    assert not lane.take(data, 5.0), what
    assert lane.take(a_message(5, 2), 6.0)
    assert outlet.parts == [b"<5>"]


def test_a_wider_counter_does_not_pass() -> None:
    """127 tokens take one byte less to say than 128: the lane must be laid anew."""
    lane, _ = a_lane(126)

    assert lane.take(a_message(5, 127), 5.0)
    assert not lane.take(a_message(5, 128), 5.0)
    assert lane.passed == 1


def test_a_token_that_needs_the_decoder_does_not_pass() -> None:
    """Half a character, an added token, and what the vocabulary does not know have no spelling."""
    lane, outlet = a_lane(spelled=Spelled({6: b""}))

    assert not lane.take(a_message(6, 2), 5.0)
    assert outlet.parts == []


@pytest.mark.parametrize("is_full", [True, False])
def test_nothing_passes_to_a_full_client_or_late(is_full: bool) -> None:
    """The message is left where it stops the worker, or where the deadline is told of."""
    lane, outlet = a_lane()
    outlet.is_full = is_full

    assert not lane.take(a_message(5, 2), 5.0 if is_full else 1000.0)
    assert outlet.parts == []


def test_no_lane_is_laid_before_a_shape_is_known() -> None:
    """The first message is for the stubs, and other choices than the first are never laid."""
    lane, _ = a_lane()
    other = ChunkReader(NAME)
    assert not lane.lay(RunReader(other), 0, 1000.0)

    assert other.read(a_message(7, 1, index=1)[5:]) is not None
    assert not lane.lay(RunReader(other), 1, 1000.0)


def a_token(job: Job, number: int) -> bytes:
    """Return DATA with the *number*-th token of *job*."""
    chunk = pb.GenerateStreamChunk(token_ids=[5], prompt_tokens=2, completion_tokens=number)
    answer = pb.GenerateResponse(request_id=job.id, chunk=chunk)
    return frame(DATA, 0, 1, frame_message(answer.SerializeToString()))


async def test_a_pause_is_counted_from_the_last_token_that_passed() -> None:
    """A worker that falls silent fails after the idle limit, not while tokens pass."""
    job = a_job()

    async def paced(connection: PeerConnection) -> None:
        await connection.request()
        connection.send(head())
        for number in range(1, 8):
            connection.send(a_token(job, number))
            await asyncio.sleep(0.1)  # the pace of a model

    async with h2_peer(paced) as peer:
        engine = lean_engine(f"127.0.0.1:{peer.port}", deadlines=Deadlines(idle=0.35))
        async with aclosing(engine), aclosing(engine.generate(job)) as stream:
            outlet = Written()
            await anext(stream)
            stream.follow(lambda: None)
            stream.lay(Lane(outlet, Spoken(), Spelled()), 1000.0)
            await until(lambda: stream.is_over)

            assert isinstance(stream.failure, DeadlineExceededError)
            assert outlet.parts == [b"5"] * 6
            usage = stream.lift()
            assert usage is not None
            assert usage.completion_tokens == 7
            assert stream.lift() is None
