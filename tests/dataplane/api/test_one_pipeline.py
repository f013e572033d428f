"""Streamed or whole, however the worker cuts its chunks: one request has one answer.

Random tokens, chunk borders, stops and options go through the same choices and replies that requests
do, without a network.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sglr_dataplane.api.answer import whole
from sglr_dataplane.api.dialects.chat import ChatReply
from sglr_dataplane.api.dialects.completions import CompletionReply
from sglr_dataplane.api.schema import decode_chat, decode_completion
from sglr_dataplane.job import Chunk, Finish, LogprobsWish, Usage
from support.answers import OPTIONS, PROMPT, Written, answer, chunks, recipe, written

LENGTH = Finish("length")


async def streamed(
    reply: ChatReply | CompletionReply, asked: Any, items: Sequence[Chunk]
) -> list[Any]:
    """Return the chunks of the stream that *items* become."""
    told = answer(asked, items)
    body = reply.begin([PROMPT], Usage())
    async for news in told:
        body += reply.news(news)
    body += reply.end(told.usages)
    *frames, done, rest = body.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [json.loads(frame[6:]) for frame in frames]


@given(said=written(), options=OPTIONS)
@settings(max_examples=150)
@example(said=Written((5,), (), Finish("length"), repeats_finish=True), options={})
async def test_a_chat_stream_is_the_whole_answer(said: Written, options: dict[str, Any]) -> None:
    """Text, thoughts, calls, log probabilities, finish and usage are equal in both modes."""
    if "top_logprobs" in options:
        options = {**options, "logprobs": True}
    if options.get("ignore_eos"):  # no engine then ends at an end token
        said = replace(said, finish=Finish("length"))
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **options}
    asked = decode_chat(json.dumps(body).encode())
    flowing = {**body, "stream": True, "stream_options": {"include_usage": True}}
    asked_flowing = decode_chat(json.dumps(flowing).encode())
    has_logprobs = asked.logprobs is not None

    items = chunks(said, cut=False, logprobs=has_logprobs)
    one: Any = ChatReply(asked, recipe(), created=0).whole(
        [PROMPT], await whole(answer(asked, items))
    )
    reply = ChatReply(asked_flowing, recipe(), created=0)
    *parts, last = await streamed(
        reply, asked_flowing, chunks(said, cut=True, logprobs=has_logprobs)
    )

    choice = one["choices"][0]
    expected = choice["message"]
    deltas = [part["choices"][0]["delta"] for part in parts]
    assert "".join(d.get("content", "") for d in deltas) == (expected["content"] or "")
    assert "".join(d.get("reasoning_content", "") for d in deltas) == expected.get(
        "reasoning_content", ""
    )
    assert _calls(deltas) == [call["function"] for call in expected.get("tool_calls", [])]
    finishes = [p["choices"][0] for p in parts if p["choices"][0]["finish_reason"] is not None]
    assert [(f["finish_reason"], f["matched_stop"]) for f in finishes] == [
        (choice["finish_reason"], choice["matched_stop"])
    ]
    assert last["usage"] == one["usage"]
    if has_logprobs:
        told = [p["choices"][0]["logprobs"] for p in parts]
        entries = [entry for each in told if each for entry in each["content"]]
        assert entries == choice["logprobs"]["content"]
        assert len(entries) == one["usage"]["completion_tokens"]


@given(
    said=st.tuples(written(), written()), options=OPTIONS, order=st.randoms(use_true_random=False)
)
@settings(max_examples=60)
async def test_mixed_choices_are_each_the_whole_answers(
    said: tuple[Written, Written], options: dict[str, Any], order: random.Random
) -> None:
    """Two choices whose chunks come in any order: each its role, its text and its one finish."""
    options = {name: value for name, value in options.items() if "logprobs" not in name}
    if options.get("ignore_eos"):
        said = (replace(said[0], finish=LENGTH), replace(said[1], finish=LENGTH))
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "n": 2, **options}
    asked = decode_chat(json.dumps(body).encode())
    flowing = {**body, "stream": True, "stream_options": {"include_usage": True}}
    asked_flowing = decode_chat(json.dumps(flowing).encode())
    each = [[*numbered(one, index, cut=True)] for index, one in enumerate(said)]
    mixed = [each[0].pop(0) if pick else each[1].pop(0) for pick in picks(each, order)]
    apart = [chunk for index, one in enumerate(said) for chunk in numbered(one, index, cut=False)]

    one: Any = ChatReply(asked, recipe(), created=0).whole(
        [PROMPT], await whole(answer(asked, apart))
    )
    reply = ChatReply(asked_flowing, recipe(), created=0)
    *parts, last = await streamed(reply, asked_flowing, mixed)

    for choice in one["choices"]:
        own = [p["choices"][0] for p in parts if p["choices"][0]["index"] == choice["index"]]
        deltas = [part["delta"] for part in own]
        assert [delta["role"] for delta in deltas if "role" in delta] == ["assistant"]
        content = choice["message"]["content"] or ""
        assert "".join(d.get("content", "") for d in deltas) == content
        assert _calls(deltas) == [c["function"] for c in choice["message"].get("tool_calls", [])]
        ends = [part["finish_reason"] for part in own if part["finish_reason"] is not None]
        assert ends == [choice["finish_reason"]]
    assert last["usage"] == one["usage"]


def numbered(said: Written, index: int, *, cut: bool) -> Iterator[Chunk]:
    """Yield the chunks of *said* as those of choice *index*."""
    for chunk in chunks(said, cut=cut, logprobs=False):
        yield Chunk(chunk.token_ids, chunk.usage, index, chunk.finish, chunk.extras)


def picks(each: Sequence[Sequence[Chunk]], order: random.Random) -> list[bool]:
    """Return a random order for two lists: True takes the next of the first one."""
    found = [True] * len(each[0]) + [False] * len(each[1])
    order.shuffle(found)
    return found


def _calls(deltas: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    calls: list[dict[str, str]] = []
    for delta in deltas:
        for call in delta.get("tool_calls", []):
            if "id" in call:
                calls.append({"name": "", "arguments": ""})
            calls[call["index"]]["name"] += call["function"].get("name", "")
            calls[call["index"]]["arguments"] += call["function"]["arguments"]
    return calls


@given(
    said=written(),
    logprobs=st.none() | st.integers(0, 2),
    stop=st.sampled_from([None, ["STOP"], ["é"], ["O", "ST"]]),
    echo=st.booleans(),
    least=st.integers(0, 8),
)
@settings(max_examples=100)
async def test_a_completion_stream_is_the_whole_answer(
    said: Written, logprobs: int | None, stop: list[str] | None, echo: bool, least: int
) -> None:
    """Text, log probabilities with their offsets, finish and usage are equal in both modes."""
    body = {"model": "m", "prompt": "Hi", "logprobs": logprobs, "stop": stop, "echo": echo,
            "min_tokens": least}  # fmt: skip
    asked = decode_completion(json.dumps(body).encode())
    flowing = {**body, "stream": True, "stream_options": {"include_usage": True}}
    asked_flowing = decode_completion(json.dumps(flowing).encode())
    has_logprobs = asked.logprobs == LogprobsWish(logprobs or 0, 0 if echo else None)

    items = chunks(said, cut=False, logprobs=has_logprobs)
    one: Any = CompletionReply(asked, recipe(), created=0).whole(
        [PROMPT], await whole(answer(asked, items))
    )
    reply = CompletionReply(asked_flowing, recipe(), created=0)
    *parts, last = await streamed(
        reply, asked_flowing, chunks(said, cut=True, logprobs=has_logprobs)
    )

    choice = one["choices"][0]
    assert "".join(part["choices"][0]["text"] for part in parts) == choice["text"]
    assert choice["text"].startswith("Hi" if echo else "")
    assert last["usage"] == one["usage"]
    assert parts[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
    if has_logprobs:
        told = [p["choices"][0]["logprobs"] for p in parts]
        for column, values in choice["logprobs"].items():
            if values is not None:
                assert [v for each in told if each for v in each[column]] == values
