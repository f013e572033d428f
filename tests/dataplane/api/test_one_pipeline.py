"""Streamed or whole, however the worker cuts its chunks: one request has one answer.

Random tokens, chunk borders, stops and options go through the same choices and replies that requests
do, without a network.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sglr_dataplane.api.answer import Answer, whole
from sglr_dataplane.api.dialects.chat import ChatReply
from sglr_dataplane.api.dialects.completions import CompletionReply
from sglr_dataplane.api.readings import choices_of
from sglr_dataplane.api.schema import ChatRequest, CompletionRequest, decode_chat, decode_completion
from sglr_dataplane.job import (
    Chunk,
    Extras,
    Finish,
    Job,
    LogprobsWish,
    TokenLogprob,
    Usage,
)
from sglr_dataplane.output.detect import detect
from sglr_dataplane.prompt.sampling import sampling_of
from sglr_dataplane.prompt.template import ChatTemplate
from sglr_dataplane.prompt.tokenizer import Tokenizer
from sglr_dataplane.recipe import PromptIds, Recipe
from support.router import DEMO_MODEL

TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "now", "arguments": {"zone": "CET"}}\n</tool_call>'
PIECES = [
    "Hello", " world", "\n", "é漢🙂", "<think>", "</think>", CALL, "STOP", "ST", "OP", "a", " ",
    "<tool_call>", "{", '"x"',
]  # fmt: skip
PROMPT = PromptIds("Hi", (1, 2))


@cache
def tokenizer() -> Tokenizer:
    """Return the demo model's tokenizer."""
    return Tokenizer.from_dir(DEMO_MODEL)


@cache
def recipe() -> Recipe:
    """Return what reading an answer needs of the demo model's recipe, and nothing else."""
    vocabulary = tokenizer().vocabulary
    template = ChatTemplate.from_dir(DEMO_MODEL, model="m")
    added = frozenset(vocabulary.added.values())
    chosen = detect(template.text or "", "m", added)
    return cast(
        "Recipe",
        SimpleNamespace(
            model="m",
            vocabulary=vocabulary,
            tool_format=chosen.tool,
            reasoning_format=chosen.reasoning,
            added_tokens=added,
            ends=vocabulary.ids_of(["<|im_end|>"]),
        ),
    )


@dataclass(frozen=True)
class Written:
    """What the worker says, and where it cuts it."""

    ids: tuple[int, ...]
    borders: tuple[int, ...]
    """Where a new chunk begins; positions in *ids*."""
    finish: Finish
    repeats_finish: bool
    """Whether the finish comes in a message of its own, as the real worker's does."""


@st.composite
def written(draw: st.DrawFn) -> Written:
    """Return random tokens: those of likely texts, and any others, ended as engines end them."""
    encode = tokenizer().encode
    size = recipe().vocabulary.size
    parts = draw(
        st.lists(
            st.sampled_from(PIECES).map(encode)
            | st.integers(0, size - 1).map(lambda token_id: (token_id,)),
            max_size=12,
        )
    )
    ends = recipe().ends
    ids = tuple(i for part in parts for i in part if i not in ends) or encode("x")
    finish = Finish("length")
    if draw(st.booleans()):
        (eos,) = ends
        ids, finish = (*ids, eos), Finish("stop", eos)
    borders = draw(st.sets(st.integers(1, max(len(ids) - 1, 1))))
    return Written(ids, tuple(sorted(borders)), finish, draw(st.booleans()))


def chunks(said: Written, *, cut: bool, logprobs: bool) -> list[Chunk]:
    """Return *said* as chunks: cut at its borders, or whole."""
    starts = [0, *(at for at in said.borders if at < len(said.ids))] if cut else [0]
    found: list[Chunk] = []
    for start, end in zip(starts, [*starts[1:], len(said.ids)], strict=True):
        ids = said.ids[start:end]
        rows = tuple(TokenLogprob(i, -i / 1000, ((i, -i / 1000),)) for i in ids)
        extras = Extras(logprobs=rows) if logprobs else None
        last = end == len(said.ids) and not (cut and said.repeats_finish)
        usage = Usage(prompt_tokens=2, completion_tokens=end)
        found.append(Chunk(ids, usage, 0, said.finish if last else None, extras))
    if cut and said.repeats_finish:
        usage = Usage(prompt_tokens=2, completion_tokens=len(said.ids))
        found.append(Chunk((), usage, 0, said.finish, Extras() if logprobs else None))
    return found


async def _each(items: Sequence[Chunk]) -> AsyncIterator[Chunk]:
    for item in items:
        yield item


def answer(asked: ChatRequest | CompletionRequest, items: Sequence[Chunk]) -> Answer:
    """Return the answer that *items* are to *asked*."""
    sampling = sampling_of(asked.sampling, vocab_size=recipe().vocabulary.size, fewest_tokens=0)
    job = Job("0" * 32, "m", PROMPT.ids, sampling, asked.stream, logprobs=asked.logprobs)
    return Answer(_each(items), choices_of(asked, recipe(), [PROMPT], [job]))


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


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "stop": st.sampled_from([["STOP"], ["O"], ["OP", "STOP"], ["é漢"], ["</think>"], ["\n"]]),
        "tools": st.just([TOOL]),
        "logprobs": st.just(True),
        "top_logprobs": st.just(1),
        "no_stop_trim": st.booleans(),
        "separate_reasoning": st.booleans(),
        "stream_reasoning": st.booleans(),
        "include_reasoning": st.booleans(),
        "skip_special_tokens": st.booleans(),
        "ignore_eos": st.booleans(),
        "stop_token_ids": st.just([1]),
        "min_tokens": st.integers(0, 8),
    },
)


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
