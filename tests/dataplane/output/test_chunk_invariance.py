"""Failures seen in the field: results that depend on where the worker cut its chunks."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglr_dataplane.job import Chunk, Finish, Usage
from sglr_dataplane.output.calls import ToolSignature
from sglr_dataplane.output.collect import collect
from sglr_dataplane.output.deltas import CallArguments, CallStart, Finished, Reasoning, Text
from sglr_dataplane.output.formats import reasoning_format, tool_format, tool_formats
from sglr_dataplane.output.grammar import Start
from sglr_dataplane.output.pipeline import Pipeline
from sglr_dataplane.output.replay import (
    Reader,
    ReplayDecoder,
    at_random,
    by_character,
    by_token,
    one,
)
from sglr_dataplane.output.stop import Cut

TWO_CALLS = (
    'Sure.<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "opts": {"units": '
    '["c", "}</tool_call>"]}}}\n</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n'
    "</tool_call>"
)
ARGUMENTS = '{"city": "Paris", "opts": {"units": ["c", "}</tool_call>"]}}'
QWEN = Reader(tools=tool_format("qwen"), reasoning=reasoning_format("qwen3"), starts="off")
NONE = frozenset[str]()


def pieces_of(text: str, size: int) -> list[list[Cut]]:
    """*text* in chunks of *size* characters."""
    return [[Cut(text[at : at + size])] for at in range(0, len(text), size)]


def test_a30_two_calls_are_the_same_for_every_cut() -> None:
    """A30: by 1, 3, 4 characters, by token, at once, and cut in two anywhere."""
    cuts = [[[Cut(TWO_CALLS[:at])], [Cut(TWO_CALLS[at:])]] for at in range(len(TWO_CALLS))]
    cuts += [pieces_of(TWO_CALLS, size) for size in (1, 3, 4, len(TWO_CALLS))]
    cuts.append(by_token(TWO_CALLS, NONE))

    for chunks in cuts:
        message = collect(QWEN.read(chunks))
        assert message.content == "Sure."
        assert [(c.name, c.arguments) for c in message.tool_calls] == [
            ("get_weather", ARGUMENTS),
            ("now", "{}"),
        ]
        assert message.finish == Finished("tool_calls", None, Usage())


def test_a31_each_call_starts_once_with_index_id_and_name() -> None:
    """A31: positions 0 and 1, one start each with a stable id, then only arguments."""
    ids = itertools.count()
    reader = Reader(tools=QWEN.tools, new_call_id=lambda: f"call_{next(ids)}")

    deltas = reader.read(by_character(TWO_CALLS, NONE))

    assert [d for d in deltas if isinstance(d, CallStart)] == [
        CallStart(0, "call_0", "get_weather"),
        CallStart(1, "call_1", "now"),
    ]
    order = [d.position for d in deltas if isinstance(d, CallStart | CallArguments)]
    assert order == sorted(order)


def test_a32_an_answer_without_thinking_is_content() -> None:
    """A32: thinking was off in the prompt and the model wrote no tags."""
    for chunks in (one("Paris.", NONE), by_character("Paris.", NONE)):
        message = collect(QWEN.read(chunks))
        assert (message.content, message.reasoning) == ("Paris.", None)


def test_a32_a_model_that_omits_the_opening_tag_still_reasons() -> None:
    """A32: inside from the start, what stands before the closing tag is reasoning."""
    reader = Reader(reasoning=QWEN.reasoning, starts="inside")

    message = collect(reader.read(by_character("why\n</think>\n\nParis.", NONE)))

    assert (message.reasoning, message.content) == ("why\n", "\n\nParis.")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 40])
def test_a33_a_closing_tag_is_recognised_wherever_it_is_cut(size: int) -> None:
    """A33: pieces of 1, 2, 3 characters, and more."""
    reader = Reader(tools=QWEN.tools, reasoning=QWEN.reasoning)
    text = '<think>abc</think>normal<tool_call>{"name": "f"}</tool_call>'

    message = collect(reader.read(pieces_of(text, size)))

    assert (message.reasoning, message.content) == ("abc", "normal")
    assert [c.name for c in message.tool_calls] == ["f"]


def test_a33_the_closing_tag_as_one_added_token_is_recognised() -> None:
    """A33: the single token ends reasoning, the same letters from other tokens do not."""
    reader = Reader(reasoning=QWEN.reasoning, starts="inside")
    tokens = frozenset({"</think>"})

    message = collect(
        reader.read([[Cut("a </think> b")], [Cut("</think>", 5)], [Cut("c")]], tokens=tokens)
    )

    assert (message.reasoning, message.content) == ("a </think> b", "c")


def test_a33_an_unfinished_closing_tag_belongs_to_the_reasoning() -> None:
    """A33: at most the marker's length is held back, and shown when the stream ends."""
    pipeline = Pipeline(
        ReplayDecoder([Cut("abc</thi")]),
        reasoning_format=QWEN.reasoning,
        starts="inside",
        new_call_id=lambda: "",
    )

    assert pipeline.feed(Chunk((0,), Usage())) == [Reasoning("abc")]
    last = pipeline.feed(Chunk((), Usage(), finish=Finish("length")))
    assert last == [Reasoning("</thi"), Finished("length", None, Usage())]


MARKUP = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<think>", "</think>", '{"name": "f"', '"arguments": {', "<"]
)
SCRAPS = st.lists(MARKUP | st.text('{}[]":,\\ \nab/>é', max_size=4), max_size=14).map("".join)


@given(text=SCRAPS, seed=st.integers(0, 1000), starts=st.sampled_from(["inside", "outside", "off"]))
def test_any_text_reads_the_same_in_any_chunking(text: str, seed: int, starts: Start) -> None:
    """R1 and R3: streaming, concatenated, is not streaming; nothing raises."""
    reader = Reader(tools=QWEN.tools, reasoning=QWEN.reasoning, starts=starts)
    specials = frozenset[str]()

    at_once = collect(reader.read(one(text, specials)))

    assert collect(reader.read(by_character(text, specials))) == at_once
    assert collect(reader.read(at_random(2 * seed + 1)(text, specials))) == at_once


@given(text=st.text('ab {}[]":,\n<>/', max_size=60))
def test_text_without_calls_loses_no_character(text: str) -> None:
    """R2: what is neither call nor reasoning is content, character by character."""
    message = collect(Reader(tools=QWEN.tools, starts="off").read(by_character(text, NONE)))

    if not message.tool_calls:
        assert (message.content or "") == text


@pytest.mark.parametrize("name", tool_formats())
def test_no_delta_is_empty(name: str) -> None:
    """Clients never get a frame that says nothing."""
    reader = Reader(tools=tool_format(name), signatures=(ToolSignature("f"),))

    for delta in reader.read(by_character(TWO_CALLS, NONE)):
        assert not isinstance(delta, Text | Reasoning | CallArguments) or delta.text
