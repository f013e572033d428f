"""The way from chunks to deltas: hidden ids, stops, finishes, and the rules for calls."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sglr_dataplane.job import Chunk, Finish, Usage
from sglr_dataplane.output.calls import ToolSignature, UnknownTools
from sglr_dataplane.output.collect import ToolCall, collect
from sglr_dataplane.output.deltas import (
    CallArguments,
    CallStart,
    Delta,
    Finished,
    Reasoning,
    Text,
)
from sglr_dataplane.output.formats import reasoning_format, tool_format
from sglr_dataplane.output.grammar import Start
from sglr_dataplane.output.pipeline import Pipeline
from sglr_dataplane.output.stop import Cut

EOS, OPEN, CLOSE = 100, 101, 102
MARKUP = {EOS: "<|im_end|>", OPEN: "<tool_call>", CLOSE: "</tool_call>"}


class LetterDecoder:
    """Ids below 100 stand for the words given, the others for markup."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words

    def feed(self, ids: Sequence[int]) -> list[Cut]:
        """Return one piece an id."""
        return [Cut(MARKUP[i], i) if i in MARKUP else Cut(self.words[i]) for i in ids]

    def flush(self) -> list[Cut]:
        """Return nothing."""
        return []

    @property
    def is_clean(self) -> bool:
        """Return that nothing is held back."""
        return True


def a_pipeline(
    *words: str,
    starts: Start = "off",
    stop: tuple[str, ...] = (),
    trim: bool = True,
    hidden: frozenset[int] = frozenset({EOS}),
) -> Pipeline:
    """A Qwen3 pipeline over *words*, with counted call ids."""
    ids = iter(f"call_{number:024d}" for number in range(100))
    return Pipeline(
        LetterDecoder(words),
        tool_format=tool_format("qwen"),
        reasoning_format=reasoning_format("qwen3"),
        starts=starts,
        stop=stop,
        trim_stop=trim,
        hidden=hidden,
        tokens=frozenset(MARKUP.values()),
        new_call_id=lambda: next(ids),
    )


def feed(pipeline: Pipeline, *ids: int, finish: Finish | None = None) -> list[Delta]:
    """Feed one chunk of *ids*."""
    return pipeline.feed(Chunk(ids, Usage(3, len(ids)), finish=finish))


def test_text_passes_as_it_comes_and_the_end_of_turn_does_not_show() -> None:
    """Each chunk gives its text at once; the hidden id gives none."""
    pipeline = a_pipeline("Hel", "lo")

    assert feed(pipeline, 0) == [Text("Hel")]
    assert feed(pipeline, 1) == [Text("lo")]
    assert feed(pipeline, EOS, finish=Finish("stop", EOS)) == [
        Finished("stop", EOS, Usage(3, 1)),
    ]
    assert pipeline.finished


def test_a_local_stop_string_finishes_before_the_worker_does() -> None:
    """The caller learns at once that it may close the worker's stream; nothing follows."""
    pipeline = a_pipeline("one ST", "OP two", stop=("STOP",))

    assert feed(pipeline, 0) == [Text("one")]
    assert feed(pipeline, 1) == [Text(" "), Finished("stop", "STOP", Usage(3, 1))]
    assert pipeline.finished
    assert feed(pipeline, 0) == []


def test_held_text_is_shown_when_the_choice_ends() -> None:
    """The beginning of a stop string that never completes is text."""
    pipeline = a_pipeline("one ST", stop=("STOP",))
    feed(pipeline, 0)

    assert feed(pipeline, finish=Finish("length"))[0] == Text(" ST")


def test_a_matched_stop_token_is_trimmed_and_kept_when_the_client_asks() -> None:
    """A stop token of the client's own shows only with no_stop_trim."""
    for trim, expected in ((True, "a"), (False, "ab")):
        deltas = feed(a_pipeline("a", "b", trim=trim), 0, 1, finish=Finish("stop", 1))
        assert collect(deltas).content == expected


def test_a_call_starts_with_its_whole_name_and_no_arguments() -> None:
    """R8: name and id once, then only arguments, the model's own bytes."""
    pipeline = a_pipeline('\n{"name": "get', '_weather", "arguments": {"ci', 'ty": 1e5}}\n')

    assert feed(pipeline, OPEN, 0) == []
    assert feed(pipeline, 1) == [
        CallStart(0, "call_000000000000000000000000", "get_weather"),
        CallArguments(0, '{"ci'),
    ]
    assert feed(pipeline, 2, CLOSE) == [CallArguments(0, 'ty": 1e5}')]
    assert feed(pipeline, EOS, finish=Finish("stop", EOS)) == [
        Finished("tool_calls", EOS, Usage(3, 1))
    ]


def test_a_call_that_was_cut_does_not_finish_as_one() -> None:
    """R7: length stays length, and the arguments are what there was."""
    pipeline = a_pipeline('{"name": "f", "arguments": {"a": "b')

    message = collect(feed(pipeline, OPEN, 0, finish=Finish("length")))

    assert message.tool_calls == (ToolCall("call_000000000000000000000000", "f", '{"a": "b'),)
    assert message.finish == Finished("length", None, Usage(3, 2))


def test_a_whole_call_of_a_cut_answer_leaves_the_finish_length() -> None:
    """Only stop turns into tool_calls."""
    pipeline = a_pipeline('{"name": "f"}')

    message = collect(feed(pipeline, OPEN, 0, CLOSE, finish=Finish("length")))

    assert [call.arguments for call in message.tool_calls] == ["{}"]
    assert message.finish is not None
    assert message.finish.reason == "length"


def test_markers_spelled_with_ordinary_tokens_are_prose() -> None:
    """R4: a tokenizer that has the marker as one token never writes it any other way."""
    pipeline = a_pipeline('<tool_call>{"name": "f"}</tool_call>')

    message = collect(feed(pipeline, 0, finish=Finish("stop")))

    assert message.content == '<tool_call>{"name": "f"}</tool_call>'


def test_a_hidden_marker_is_still_read() -> None:
    """Markers may be special tokens, which never show as text."""
    pipeline = a_pipeline('{"name": "f"}', hidden=frozenset(MARKUP))

    message = collect(feed(pipeline, OPEN, 0, CLOSE, EOS, finish=Finish("stop", EOS)))

    assert [call.name for call in message.tool_calls] == ["f"]
    assert message.content is None


def test_reasoning_and_text_arrive_in_their_order() -> None:
    """Deltas of different kinds are never joined or swapped."""
    pipeline = a_pipeline("<thi", "nk>why", "</think>", "so", starts="outside")

    assert feed(pipeline, 0, 1, 2, 3) == [Reasoning("why"), Text("so")]


def test_no_stop_string_counts_before_the_minimum_of_tokens() -> None:
    """min_tokens: the text goes on until it is satisfied, then the next one ends it."""
    for size in (1, 4):
        pipeline = Pipeline(
            LetterDecoder(["a.", "b.", "c.", "d"]),
            stop=(".",),
            min_tokens=2,
            new_call_id=lambda: "",
        )
        deltas = [d for at in range(0, 4, size) for d in feed(pipeline, *range(at, at + size))]

        message = collect(deltas)
        assert message.content == "a.b.c"
        assert message.finish is not None
        assert message.finish.matched == "."


CALL_OF_NOBODY = 'Hi.<tool_call>{"name": "x", "arguments": {"a": 1}}</tool_call>Bye.'


@pytest.mark.parametrize(
    ("policy", "content", "names", "reason"),
    [
        ("forward", "Hi.Bye.", ["x"], "tool_calls"),
        ("content", CALL_OF_NOBODY, [], "stop"),
        ("drop", "Hi.Bye.", [], "stop"),
    ],
)
def test_a_call_to_an_unknown_tool_follows_the_policy(
    policy: UnknownTools, content: str, names: list[str], reason: str
) -> None:
    """R11: forwarded, kept as text, or dropped without a trace."""
    for text in ([CALL_OF_NOBODY], list(CALL_OF_NOBODY)):
        pipeline = Pipeline(
            LetterDecoder(text),
            tool_format=tool_format("qwen"),
            tools=(ToolSignature("f"),),
            unknown_tools=policy,
            new_call_id=lambda: "call_1",
        )
        deltas: list[Delta] = []
        for at in range(len(text)):
            deltas += pipeline.feed(Chunk((at,), Usage()))
        message = collect([*deltas, *feed(pipeline, finish=Finish("stop"))])

        assert message.content == content
        assert [call.name for call in message.tool_calls] == names
        assert message.finish is not None
        assert message.finish.reason == reason


def test_the_ids_of_a_family_count_on_through_the_conversation() -> None:
    """Kimi was trained on ids that go on where the history ended."""
    section = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:7<|tool_call_argument_begin|>{}"
        "<|tool_call_end|><|tool_calls_section_end|>"
    )
    pipeline = Pipeline(
        LetterDecoder([section]),
        tool_format=tool_format("kimi_k2"),
        calls_before=3,
        new_call_id=lambda: "unused",
    )

    (call,) = collect(feed(pipeline, 0, finish=Finish("stop"))).tool_calls

    assert call.id == "functions.f:3"
