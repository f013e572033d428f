"""What holds for any text a model may write, in every format."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglr_dataplane.output.calls import ToolSignature
from sglr_dataplane.output.collect import Message, collect
from sglr_dataplane.output.families.declare import ReasoningFormat, ToolFormat
from sglr_dataplane.output.formats import (
    answer_formats,
    forced,
    grammar,
    reasoning_format,
    tool_format,
    tool_formats,
)
from sglr_dataplane.output.grammar import Start
from sglr_dataplane.output.replay import Reader, at_random, by_character, by_token, one, whole

FORMATS = {tool_format(name).name: answer_formats(name) for name in tool_formats()}
TOOLS = (
    ToolSignature("f", {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}),
    ToolSignature("now"),
)
SCRAPS = (
    *('{"name": "f"', '"arguments": {', '"a": "b"', "}", "}}", "[", "]", "{", '"', "\\", "\n", " "),
    *(
        "f",
        "now",
        "(",
        ")",
        "a=",
        "'x'",
        "-1.5",
        "true",
        ",",
        ":",
        "<",
        ">",
        "</",
        "é🙂",
        "```json",
    ),
    *(
        "<function=f>",
        "<parameter=a>",
        '<invoke name="f">',
        'name="a">',
        "functions.f:0",
        "call:f{",
    ),
    *("text", "to=functions.f", "<think>", "</think>", "\\ud83d", '"""', "null"),
)
STARTS = st.sampled_from(["inside", "outside", "off"])


def texts(name: str) -> st.SearchStrategy[str]:
    """Texts of the format's markers, scraps of bodies, and anything."""
    markers = sorted(grammar(*FORMATS[name]).markers())
    parts = st.sampled_from([*markers, *markers, *SCRAPS]) | st.text(max_size=3)
    return st.lists(parts, max_size=14).map("".join)


def thinks_like(name: str) -> ReasoningFormat:
    """The format's own way of thinking, or the commonest."""
    return FORMATS[name][1] or reasoning_format("qwen3")


@pytest.mark.parametrize("name", FORMATS)
def test_any_text_reads_the_same_in_any_chunking(name: str) -> None:
    """R1, R3: nothing raises, and neither chunks nor tokens change what is read."""

    @settings(max_examples=40, deadline=None)
    @given(text=texts(name), seed=st.integers(0, 99), start=STARTS, force=st.booleans())
    def holds(text: str, seed: int, start: Start, *, force: bool) -> None:
        tools: ToolFormat = forced(FORMATS[name][0], "f") if force else FORMATS[name][0]
        reader = Reader(tools, thinks_like(name), start, TOOLS)
        specials = frozenset(m for m in grammar(*FORMATS[name]).markers() if m[0] in "<[")
        spelled = [cut(text, specials) for cut in (one, by_character, at_random(2 * seed + 1))]
        as_tokens = [cut(text, specials) for cut in (whole, by_token, at_random(2 * seed))]

        for chunkings, tokens in ((spelled, frozenset[str]()), (as_tokens, specials)):
            first, *others = [collect(reader.read(c, "stop", tokens)) for c in chunkings]
            assert others == [first, first]

    holds()


@pytest.mark.parametrize("name", [n for n, (tools, _) in FORMATS.items() if not tools.channels])
def test_no_letter_of_a_text_without_calls_is_lost(name: str) -> None:
    """R2: markup may vanish, words may not."""

    @settings(max_examples=60, deadline=None)
    @given(text=texts(name))
    def holds(text: str) -> None:
        tools, reasoning = FORMATS[name]
        reader = Reader(tools, reasoning, "off", TOOLS)
        message = collect(reader.read(by_character(text, frozenset())))
        rest = text
        for marker in sorted(grammar(tools, reasoning).markers(), key=len, reverse=True):
            rest = rest.replace(marker, " ")

        if not message.tool_calls:
            assert is_within(letters(rest), letters(said(message)))

    holds()


def said(message: Message) -> str:
    """What the client reads."""
    return (message.reasoning or "") + (message.content or "")


def letters(text: str) -> str:
    """The letters of *text*."""
    return "".join(filter(str.isalpha, text))


def is_within(part: str, text: str) -> bool:
    """Whether *part* is left when letters are taken out of *text*."""
    rest = iter(text)
    return all(letter in rest for letter in part)
