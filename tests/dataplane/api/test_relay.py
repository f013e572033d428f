"""The hot path tells what the general way tells, byte for byte, and respects who does not read."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglr_dataplane.api.answer import WholeChoice, whole
from sglr_dataplane.api.dialect import Reply
from sglr_dataplane.api.dialects.chat import ChatReply
from sglr_dataplane.api.dialects.completions import CompletionReply
from sglr_dataplane.api.dialects.messages import MessagesReply
from sglr_dataplane.api.dialects.native import NativeReply
from sglr_dataplane.api.relay import Relay
from sglr_dataplane.api.schema import ChatRequest, CompletionRequest, decode_chat, decode_completion
from sglr_dataplane.api.schema.anthropic import decode_messages
from sglr_dataplane.api.schema.native import decode_native
from sglr_dataplane.errors import RouterError, WorkerLostError
from sglr_dataplane.job import Chunk, Finish, Usage
from support.answers import OPTIONS, PROMPT, Written, answer, chunks, recipe, tokenizer, written
from support.batches import ScriptedBatches
from support.readers import Reader

SECONDS = 10.0
RANDOM_ID = re.compile(rb"[0-9a-f]{24,32}")
Asked = ChatRequest | CompletionRequest


def an_outlet(seed: int, *, full: float = 0.3) -> Any:
    """Return the outlet of a client; a relay uses no more of one."""
    return Reader(seed, full=full)


def cut(items: Sequence[Chunk], borders: Sequence[int]) -> list[Sequence[Chunk]]:
    """Return *items* as reads that begin at *borders*."""
    starts = [0, *(border for border in borders if border < len(items))]
    return [items[a:b] for a, b in zip(starts, [*starts[1:], len(items)], strict=True)]


async def iterated(reply: Reply, asked: Asked, items: Sequence[Chunk]) -> bytes:
    """Return the body of the stream by the general way."""
    told = answer(asked, items)
    first = await anext(told)
    body = reply.begin([PROMPT], first.usage) + reply.news(first)
    async for news in told:
        body += reply.news(news)
    return body + reply.end(told.usages)


async def relayed(
    reply: Reply,
    asked: Asked,
    reads: Sequence[Sequence[Chunk]],
    seed: int = 0,
    failure: RouterError | None = None,
) -> bytes:
    """Return the body of the stream by the relay; with a *failure*, what came before it."""
    batches = ScriptedBatches(reads, failure)
    told = answer(asked, batches.singly())
    first = await anext(told)
    body = reply.begin([PROMPT], first.usage) + reply.news(first)
    outlet = an_outlet(seed)
    relay = Relay(batches, told, reply, _exchange(), outlet, recipe().vocabulary.escaped)
    relay.begin()
    assert outlet.written == []
    body += relay.held()
    if not told.finished:
        await _driven(relay, batches, failure)
        assert outlet.on_room is None
        body += b"".join(outlet.written)
    return body if failure else body + relay.held() + reply.end(told.usages)


async def _driven(relay: Relay, batches: ScriptedBatches, failure: RouterError | None) -> None:
    """Run *relay* to its end while *batches* bring news."""
    async with asyncio.timeout(SECONDS):
        running = asyncio.create_task(relay.run())
        while not running.done():
            await asyncio.sleep(0)
            batches.on_news()
        if failure is None:
            await running
            return
        with pytest.raises(type(failure)):
            await running


def _exchange() -> Any:
    return cast("Any", SimpleNamespace(spoke_at=0.0))


BORDERS = st.lists(st.integers(1, 60), max_size=8, unique=True).map(sorted)
USAGE = st.sampled_from(
    [None, {"include_usage": True}, {"include_usage": True, "continuous_usage_stats": True}]
)


@given(said=written(), options=OPTIONS, usage=USAGE, borders=BORDERS, seed=st.integers(0, 9))
@settings(max_examples=300)
async def test_a_relayed_chat_is_byte_for_byte_the_iterated_one(
    said: Written, options: dict[str, Any], usage: Any, borders: list[int], seed: int
) -> None:
    """Whatever tokens, chunks, reads, stops, tools, thoughts, log probabilities and usage."""
    if "top_logprobs" in options:
        options = {**options, "logprobs": True}
    if options.get("ignore_eos"):  # no engine then ends at an end token
        said = replace(said, finish=Finish("length"))
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True,
            "stream_options": usage, **options}  # fmt: skip
    asked = decode_chat(json.dumps(body).encode())
    items = chunks(said, cut=True, logprobs=asked.logprobs is not None)

    expected = await iterated(ChatReply(asked, recipe(), created=0), asked, items)
    found = await relayed(ChatReply(asked, recipe(), created=0), asked, cut(items, borders), seed)
    assert RANDOM_ID.sub(b"", found) == RANDOM_ID.sub(b"", expected)


@given(
    said=written(),
    logprobs=st.none() | st.integers(0, 2),
    stop=st.sampled_from([None, ["STOP"], ["é"], ["O", "ST"]]),
    echo=st.booleans(),
    usage=USAGE,
    borders=BORDERS,
)
@settings(max_examples=150)
async def test_a_relayed_completion_is_byte_for_byte_the_iterated_one(  # one for each thing that is drawn
    said: Written,
    logprobs: int | None,
    stop: list[str] | None,
    echo: bool,
    usage: Any,
    borders: list[int],
) -> None:
    """Echoed or not, with log probabilities or without."""
    body = {"model": "m", "prompt": "Hi", "logprobs": logprobs, "stop": stop, "echo": echo,
            "stream": True, "stream_options": usage}  # fmt: skip
    asked = decode_completion(json.dumps(body).encode())
    items = chunks(said, cut=True, logprobs=asked.logprobs is not None)

    expected = await iterated(CompletionReply(asked, recipe(), created=0), asked, items)
    found = await relayed(CompletionReply(asked, recipe(), created=0), asked, cut(items, borders))
    assert RANDOM_ID.sub(b"", found) == RANDOM_ID.sub(b"", expected)


@given(said=written(), borders=BORDERS)
async def test_other_apis_are_relayed_as_they_are_iterated(
    said: Written, borders: list[int]
) -> None:
    """SGLang's own and Anthropic's, whose events tell more than a text."""
    items = chunks(said, cut=True, logprobs=False)
    native = decode_native(b'{"text": "Hi", "stream": true}')
    messages = decode_messages(
        b'{"model": "m", "max_tokens": 9, "stream": true,'
        b' "messages": [{"role": "user", "content": "Hi"}]}'
    )

    for asked, new_reply in (
        (native, lambda: NativeReply(native, recipe())),
        (messages, lambda: MessagesReply("m")),
    ):
        expected = await iterated(new_reply(), asked, items)
        found = await relayed(new_reply(), asked, cut(items, borders))
        assert RANDOM_ID.sub(b"", found) == RANDOM_ID.sub(b"", expected)


@given(said=written(), options=OPTIONS, borders=BORDERS)
@settings(max_examples=150)
async def test_a_whole_answer_is_the_same_by_batches(
    said: Written, options: dict[str, Any], borders: list[int]
) -> None:
    """Tokens that are read all at once say what they say one by one."""
    if options.get("ignore_eos"):
        said = replace(said, finish=Finish("length"))
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}],
            "logprobs": "top_logprobs" in options, **options}  # fmt: skip
    asked = decode_chat(json.dumps(body).encode())
    items = chunks(said, cut=True, logprobs=asked.logprobs is not None)
    batches = ScriptedBatches(cut(items, borders), None)
    told = answer(asked, batches.singly())

    expected = await whole(answer(asked, items))
    async with asyncio.timeout(SECONDS):
        running = asyncio.create_task(whole(told, batches))
        while not running.done():
            await asyncio.sleep(0)
            batches.on_news()
        found = await running
    assert nameless(found) == nameless(expected)


def nameless(choices: list[WholeChoice]) -> bytes:
    """Return all that *choices* say, without the random ids of their calls."""
    said = repr([msgspec.structs.replace(each, news=()) for each in choices])
    return RANDOM_ID.sub(b"", said.encode())


def letters(count: int, first: int = 1) -> list[Chunk]:
    """Return *count* chunks of one ordinary token each, none of them the last."""
    (token_id,) = tokenizer().encode("a")
    return [
        Chunk((token_id,), Usage(prompt_tokens=2, completion_tokens=at))
        for at in range(first, first + count)
    ]


async def test_what_came_before_a_failure_is_written_before_it_is_raised() -> None:
    """A worker that dies with its last tokens loses none of them."""
    asked = a_chat()
    failure = WorkerLostError("The worker is gone.")

    body = await relayed(a_reply(asked), asked, cut(letters(5), [2]), failure=failure)

    assert body.count(b'"content":"a"') == 5


async def test_a_whole_answer_that_fails_has_cost_what_came() -> None:
    """Tokens are read at the end, and counted wherever that is."""
    asked = a_chat()
    batches = ScriptedBatches(cut(letters(6), [2, 4]), WorkerLostError("The worker is gone."))
    told = answer(asked, batches.singly())
    async with asyncio.timeout(SECONDS):
        running = asyncio.create_task(whole(told, batches))
        while not running.done():
            await asyncio.sleep(0)
            batches.on_news()
        with pytest.raises(WorkerLostError):
            await running

    assert told.usages == [Usage(prompt_tokens=2, completion_tokens=6)]


async def test_nothing_is_pulled_for_a_client_that_does_not_read() -> None:
    """So that the worker stops, and no memory grows; room in the outlet goes on with it."""
    asked = a_chat()
    items = [*letters(6), Chunk((), Usage(2, 6), finish=Finish("stop"))]
    batches = ScriptedBatches(cut(items, [2, 4, 6]), None)
    told = answer(asked, batches.singly())
    await anext(told)
    outlet = an_outlet(0, full=1.0)
    relay = Relay(batches, told, a_reply(asked), _exchange(), outlet, recipe().vocabulary.escaped)
    relay.begin()
    async with asyncio.timeout(SECONDS):
        running = asyncio.create_task(relay.run())
        await asyncio.sleep(0)
        for _ in range(10):
            batches.on_news()
        assert (outlet.written, batches.left) == ([], 6)

        outlet.full = 0.0
        while not running.done():
            assert outlet.on_room is not None
            outlet.on_room()
            await asyncio.sleep(0)
        await running

    assert b"".join(outlet.written).count(b'"content":"a"') == 5


async def test_one_read_is_one_write() -> None:
    """All that came for a stream leaves together, one frame for each token."""
    asked = a_chat()
    items = [*letters(9), Chunk((), Usage(2, 9), finish=Finish("stop"))]
    batches = ScriptedBatches(cut(items, [1, 4, 9]), None)
    told = answer(asked, batches.singly())
    await anext(told)
    outlet = an_outlet(0, full=0.0)
    relay = Relay(batches, told, a_reply(asked), _exchange(), outlet, recipe().vocabulary.escaped)
    relay.begin()
    assert relay.held() == b""
    await _driven(relay, batches, None)

    assert [part.count(b"\n\n") for part in outlet.written] == [3, 5]
    assert relay.held().count(b"\n\n") == 1


async def test_what_came_with_the_first_token_leaves_with_it() -> None:
    """An answer that is all there takes one write for its head, its frames and its end."""
    asked = a_chat()
    items = [*letters(4), Chunk((), Usage(2, 4), finish=Finish("stop"))]
    batches = ScriptedBatches(cut(items, []), None)
    told = answer(asked, batches.singly())
    await anext(told)
    outlet = an_outlet(0, full=0.0)
    relay = Relay(batches, told, a_reply(asked), _exchange(), outlet, recipe().vocabulary.escaped)
    relay.begin()

    assert told.finished
    assert (outlet.written, relay.held().count(b"\n\n")) == ([], 4)


async def test_a_fault_of_ours_is_raised_where_the_request_waits() -> None:
    """The connection of the worker, which serves other requests, hears nothing of it."""
    asked = a_chat()
    batches = ScriptedBatches(cut(letters(3), [1]), None)
    told = answer(asked, batches.singly())
    await anext(told)
    broken: Any = SimpleNamespace(news=_fail, around=_nothing)
    relay = Relay(
        batches, told, broken, _exchange(), an_outlet(0, full=0.0),
        recipe().vocabulary.escaped,
    )  # fmt: skip

    relay.begin()
    for _ in range(3):
        batches.on_news()  # by the connection: it raises nothing
    with pytest.raises(ZeroDivisionError):
        await relay.run()


def _fail(_kind: object) -> None:
    raise ZeroDivisionError


def _nothing(_kind: object) -> None:
    """Be where no text stands."""


def a_chat() -> ChatRequest:
    """Return a request for a stream."""
    return decode_chat(
        b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi"}]}'
    )


def a_reply(asked: ChatRequest) -> ChatReply:
    """Return the reply to *asked*."""
    return ChatReply(asked, recipe(), created=0)
