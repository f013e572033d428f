"""Tokens that go by a lane become, byte for byte, what they become when they are read."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglr_dataplane.api.dialects.chat import ChatReply
from sglr_dataplane.api.schema import ChatRequest, decode_chat
from sglr_dataplane.engine.h2.state import Limits
from sglr_dataplane.errors import DeadlineExceededError, WorkerLostError
from sglr_dataplane.job import Chunk, Finish, Job, Usage
from sglr_proto.sglang import scheduler_pb2 as pb
from support.answers import OPTIONS, PROMPT, Written, answer, chunks, recipe, tokenizer, written
from support.h2peer import DATA, frame, head, message, trailers
from support.lanes import OneLink, Request, feed, finished, requests

RANDOM_ID = re.compile(rb"[0-9a-f]{24,32}")
PING = frame(6, 0, 0, b"12345678")
PADDED = 0x8


def said_by_a_worker(job_id: str, chunk: Chunk) -> bytes:
    """Return the message, with its prefix, that says *chunk*."""
    usage: Any = {
        "prompt_tokens": chunk.usage.prompt_tokens,
        "completion_tokens": chunk.usage.completion_tokens,
    }
    if chunk.finish is None:
        told = pb.GenerateStreamChunk(token_ids=chunk.token_ids, **usage)
        return message(pb.GenerateResponse(request_id=job_id, chunk=told).SerializeToString())
    end = pb.GenerateComplete(
        output_ids=chunk.token_ids, finish_reason=chunk.finish.reason, **usage
    )
    if isinstance(chunk.finish.matched, int):
        end.matched_token_id = chunk.finish.matched
    return message(pb.GenerateResponse(request_id=job_id, complete=end).SerializeToString())


def in_frames(stream_id: int, messages: Sequence[bytes], chance: random.Random) -> list[bytes]:
    """Return the frames of an answer: one for each message, mostly."""
    frames: list[bytes] = [head(stream_id)]
    held = b""
    for each in messages:
        odd = chance.random()
        held += each
        if odd < 0.06:  # the next message goes into the same frame
            continue
        if odd < 0.12:
            middle = chance.randrange(1, len(held))
            frames += [frame(DATA, 0, stream_id, held[:middle])]
            held = held[middle:]
        if odd > 0.94:
            frames.append(frame(DATA, PADDED, stream_id, b"\3" + held + bytes(3)))
        else:
            frames.append(frame(DATA, 0, stream_id, held))
        held = b""
    if held:
        frames.append(frame(DATA, 0, stream_id, held))
    return [*frames, trailers(stream_id)]


def interleaved(answers: Sequence[list[bytes]], chance: random.Random) -> list[bytes]:
    """Return the frames of all *answers*, each answer's in order, among some pings."""
    left = [list(frames) for frames in answers]
    found: list[bytes] = []
    while any(left):
        one = chance.choice([frames for frames in left if frames])
        found.append(one.pop(0))
        if chance.random() < 0.05:
            found.append(PING)
    return found


def in_reads(frames: Sequence[bytes], chance: random.Random) -> list[bytes]:
    """Return *frames* as reads: of one or a few frames, some of which end within one."""
    reads: list[bytes] = []
    rest = b""
    at = 0
    while at < len(frames):
        count = chance.choice([1, 1, 2, 3, 8])
        read = rest + b"".join(frames[at : at + count])
        at += count
        cut = chance.randrange(len(read)) if chance.random() < 0.2 else len(read)
        reads.append(read[:cut])
        rest = read[cut:]
    return [read for read in [*reads, rest] if read]


def a_chat(**options: Any) -> ChatRequest:
    """Return a request for a stream."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    return decode_chat(json.dumps(body | options).encode())


async def iterated(asked: ChatRequest, items: Sequence[Chunk]) -> tuple[bytes, list[Usage]]:
    """Return the body of the stream, and what it cost, by the general way."""
    reply = ChatReply(asked, recipe(), created=0)
    told = answer(asked, items)
    first = await anext(told)
    body = reply.begin([PROMPT], first.usage) + reply.news(first)
    async for news in told:
        body += reply.news(news)
    return body + reply.end(told.usages), told.usages


USAGE = st.sampled_from(
    [None, {"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}]
)


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[ChatRequest, list[Chunk]]:
    """Return a request and what a worker answers: mostly token by token."""
    said: Written = draw(written())
    options = draw(st.just(dict[str, Any]()) | OPTIONS)
    options = {name: value for name, value in options.items() if "logprobs" not in name}
    if options.get("ignore_eos"):  # no engine then ends at an end token
        said = replace(said, finish=Finish("length"))
    asked = a_chat(**options, stream_options=draw(USAGE))
    if draw(st.booleans()):
        said = replace(said, borders=tuple(range(1, len(said.ids))), repeats_finish=True)
    return asked, chunks(said, cut=True, logprobs=False)


@given(
    given=st.lists(exchanges(), min_size=1, max_size=4),
    seed=st.integers(0, 1 << 32),
    full=st.sampled_from([0.0, 0.0, 0.3]),
)
@settings(max_examples=150)
async def test_whatever_goes_by_a_lane_is_what_is_read(
    given: list[tuple[ChatRequest, list[Chunk]]], seed: int, full: float
) -> None:
    """Whatever tokens, frames, reads, neighbours on the connection, and moods of the clients."""
    chance = random.Random(seed)
    channel = OneLink()
    async with requests(channel, [asked for asked, _ in given], full=full, seed=seed) as begun:
        frames = [
            in_frames(1 + 2 * at, [said_by_a_worker(r.job.id, c) for c in given[at][1]], chance)
            for at, (r, _) in enumerate(begun)
        ]
        await feed(channel, begun, in_reads(interleaved(frames, chance), chance))
        await finished(begun)
        for (request, task), (asked, items) in zip(begun, given, strict=True):
            await task
            body, usages = await iterated(asked, items)
            assert RANDOM_ID.sub(b"", request.body) == RANDOM_ID.sub(b"", body)
            assert request.usages == usages
            # What came behind a stop string was generated all the same.
            assert request.completion[0] >= usages[0].completion_tokens


def a_token(job: Job, number: int, text: str = "a") -> bytes:
    """Return DATA with the *number*-th token of *job*, counted from 1, on the first stream."""
    (token_id,) = tokenizer().encode(text)
    usage = Usage(prompt_tokens=2, completion_tokens=number)
    return frame(DATA, 0, 1, said_by_a_worker(job.id, Chunk((token_id,), usage)))


def an_end(job: Job, count: int) -> bytes:
    """Return what ends the answer to *job* on the first stream after *count* tokens."""
    end = Chunk((), Usage(prompt_tokens=2, completion_tokens=count), finish=Finish("stop"))
    return frame(DATA, 0, 1, said_by_a_worker(job.id, end)) + trailers()


def contents(request: Request) -> int:
    """Return how many frames with an ``a`` the client of *request* was sent."""
    return b"".join(request.client.written).count(b'"content":"a"')


async def test_paced_tokens_pass_and_are_counted() -> None:
    """One token a read: the listener hears of none, and all is told and counted as if it did."""
    channel = OneLink()
    async with requests(channel, [a_chat(stream_options={"include_usage": True})]) as begun:
        ((request, task),) = begun
        await feed(channel, begun, [head() + a_token(request.job, 1)])
        before = request.exchange.spoke_at = request.rings = 0
        await feed(channel, begun, [a_token(request.job, at) for at in range(2, 1100)])

        # Counters are prepared by the thousand, and for each width anew.
        assert (contents(request), request.rings) == (1099, 2)
        assert request.exchange.spoke_at > before
        await feed(channel, begun, [an_end(request.job, 1099)])
        await finished(begun)
        await task
    assert request.usages == [Usage(prompt_tokens=2, completion_tokens=1099)]
    assert request.completion == {0: 1099}
    assert b'"completion_tokens":1099' in request.body


async def test_a_client_that_leaves_has_cost_what_passed() -> None:
    """A cancelled answer's usage counts the tokens that nobody was told of."""
    channel = OneLink()
    async with requests(channel, [a_chat()]) as begun:
        ((request, task),) = begun
        tokens = [a_token(request.job, at) for at in range(1, 10)]
        await feed(channel, begun, [head() + tokens[0], *tokens[1:]])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert (contents(request), request.completion) == (9, {0: 9})
    assert request.usages == [Usage(prompt_tokens=2, completion_tokens=9)]


async def test_one_of_several_choices_does_not_pass() -> None:
    """Its frames have a number of their own."""
    channel = OneLink()
    async with requests(channel, [a_chat(n=2)]) as begun:
        ((request, _),) = begun
        tokens = [a_token(request.job, at) for at in range(1, 6)]
        await feed(channel, begun, [head() + tokens[0], *tokens[1:]])

        assert (contents(request), request.rings) == (5, 4)


@pytest.mark.parametrize("together", [1, 3])
async def test_a_first_token_takes_along_what_came_with_it(together: int) -> None:
    """In one write; a token that came alone waits for nothing."""
    channel = OneLink()
    async with requests(channel, [a_chat()]) as begun:
        ((request, _),) = begun
        tokens = [a_token(request.job, at) for at in range(1, 6)]
        first, later = tokens[:together], tokens[together:]
        await feed(channel, begun, [head() + b"".join(first), *later])

        assert contents(request) == 5
        assert [part.count(b'"content":"a"') for part in request.client.written] == [
            together,
            *(1 for _ in later),
        ]


async def test_a_token_in_which_a_stop_string_may_begin_is_read() -> None:
    """And those that follow it pass again, once it is clear that none did."""
    channel = OneLink()
    async with requests(channel, [a_chat(stop=["O!"])]) as begun:
        ((request, _),) = begun
        said = ["a", "a", "a", "O", "a", "a", "a"]
        tokens = [a_token(request.job, at, text) for at, text in enumerate(said, 1)]
        await feed(channel, begun, [head() + tokens[0], *tokens[1:]])

        assert (contents(request), request.rings) == (5, 2)
        assert b'"content":"Oa"' in b"".join(request.client.written)


async def test_the_worker_gets_new_room_for_what_passes() -> None:
    """Else it would stop after a window of tokens."""
    channel = OneLink(Limits(stream_window=600))
    async with requests(channel, [a_chat()]) as begun:
        ((request, _),) = begun
        tokens = [a_token(request.job, at) for at in range(1, 200)]
        before = len(channel.wire.written)
        await feed(channel, begun, [head() + tokens[0], *tokens[1:]])

        assert contents(request) == 199
        told = channel.wire.written[before:]
        assert told.count(b"\x00\x00\x04\x08\x00\x00\x00\x00\x01") >= 199 * 50 // 600


async def test_nothing_passes_to_a_client_that_does_not_read() -> None:
    """It waits, and stops the worker in the end; what is there follows when the client reads."""
    channel = OneLink()
    async with requests(channel, [a_chat()]) as begun:
        ((request, _),) = begun
        tokens = [a_token(request.job, at) for at in range(1, 8)]
        await feed(channel, begun, [head() + tokens[0], *tokens[1:4]])
        request.client.full = request.client.is_moody = True
        await feed(channel, begun, tokens[4:6])
        assert contents(request) == 4

        request.client.full = 0.0
        await feed(channel, begun, tokens[6:])
        assert contents(request) == 7


async def test_nothing_passes_when_the_time_is_over() -> None:
    """The request fails at its deadline, though its worker never pauses."""
    channel = OneLink()
    async with requests(channel, [a_chat()], seconds=0.05) as begun:
        ((request, task),) = begun
        await feed(channel, begun, [head() + a_token(request.job, 1)])
        number = 1
        while not task.done():
            number += 1
            await feed(channel, begun, [a_token(request.job, number)])
        with pytest.raises(DeadlineExceededError, match="not complete within the time it is given"):
            await task


async def test_a_fault_of_ours_ends_its_own_request() -> None:
    """The connection serves the others on, and the request hears what went wrong."""
    channel = OneLink()
    async with requests(channel, [a_chat()]) as begun:
        ((request, task),) = begun
        await feed(channel, begun, [head() + a_token(request.job, 1), a_token(request.job, 2)])
        request.client.breaks = True
        await feed(channel, begun, [a_token(request.job, 3)])

        with pytest.raises(ZeroDivisionError):
            await task
        assert "streams, room" in repr(channel.link)
        assert request.usages == [Usage(prompt_tokens=2, completion_tokens=3)]


async def test_a_worker_that_dies_loses_nothing_that_passed() -> None:
    """What came before is written, then the failure is raised."""
    channel = OneLink()
    async with requests(channel, [a_chat()]) as begun:
        ((request, task),) = begun
        tokens = [a_token(request.job, at) for at in range(1, 5)]
        await feed(channel, begun, [head() + tokens[0], *tokens[1:]])
        channel.link.connection_lost(None)

        with pytest.raises(WorkerLostError):
            await task
        assert contents(request) == 4
        assert request.usages == [Usage(prompt_tokens=2, completion_tokens=4)]
