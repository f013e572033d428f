"""Structural tags: grammars of each family's own calls, and what a model writes under them.

That the engine compiles them, and that what it lets a model write is read back, is checked by
``scripts/parsers/call_tags.py``: its compiler is too large to be here.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglr_dataplane.output.call_tags import ThoughtTag, calls_format, tag_for, with_thought
from sglr_dataplane.output.calls import ToolSignature
from sglr_dataplane.output.collect import collect
from sglr_dataplane.output.formats import (
    answer_formats,
    forced,
    reasoning_format,
    tool_format,
    tool_formats,
)
from sglr_dataplane.output.replay import Reader, by_character, one

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL = ToolSignature("f", SCHEMA, strict=True)
BAR = "\uff5c"

# What a model writes under each family's grammar: one call of f with {"a": "x"}.
WRITTEN: list[tuple[str, int, str]] = [
    ("hermes", 0, '<tool_call>\n{"name": "f", "arguments": {"a": "x"}}\n</tool_call>'),
    (
        "longcat",
        0,
        '<longcat_tool_call>\n{"name": "f", "arguments": {"a": "x"}}\n</longcat_tool_call>',
    ),
    (
        "qwen3_coder",
        0,
        "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "seed_oss",
        0,
        "<seed:tool_call>\n<function=f>\n<parameter=a>x</parameter>\n</function>\n</seed:tool_call>",
    ),
    ("llama3", 0, '{"name": "f", "parameters": {"a": "x"}}'),
    ("mistral", 0, '[TOOL_CALLS]f[ARGS]{"a": "x"}'),
    ("mistral", 1, '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "x"}}]'),
    (
        "deepseekv3",
        0,
        (
            f"<{BAR}tool▁calls▁begin{BAR}><{BAR}tool▁call▁begin{BAR}>function<{BAR}tool▁sep{BAR}>f\n"
            f'```json\n{{"a": "x"}}\n```<{BAR}tool▁call▁end{BAR}><{BAR}tool▁calls▁end{BAR}>'
        ),
    ),
    (
        "deepseekv31",
        0,
        (
            f"<{BAR}tool▁calls▁begin{BAR}><{BAR}tool▁call▁begin{BAR}>f<{BAR}tool▁sep{BAR}>"
            f'{{"a": "x"}}<{BAR}tool▁call▁end{BAR}><{BAR}tool▁calls▁end{BAR}>'
        ),
    ),
    (
        "deepseekv32",
        0,
        (
            f'\n\n<{BAR}DSML{BAR}function_calls>\n<{BAR}DSML{BAR}invoke name="f">\n'
            f'<{BAR}DSML{BAR}parameter name="a" string="true">x</{BAR}DSML{BAR}parameter>\n'
            f"</{BAR}DSML{BAR}invoke>\n</{BAR}DSML{BAR}function_calls>"
        ),
    ),
    (
        "deepseekv41",
        0,
        (
            f'\n\n<{BAR}DSML{BAR} calls>\n<{BAR}DSML{BAR} invoke name="f">\n'
            f'<{BAR}DSML{BAR} parameter name="a" string="true">x</{BAR}DSML{BAR} parameter>\n'
            f"</{BAR}DSML{BAR} invoke>\n</{BAR}DSML{BAR} calls>"
        ),
    ),
    (
        "kimi_k2",
        0,
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
            '{"a": "x"}<|tool_call_end|><|tool_calls_section_end|>'
        ),
    ),
    (
        "kimi_k3",
        0,
        (
            '<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool="f" index="0"<|sep|>'
            '<|open|>argument key="a" type="string"<|sep|>x<|close|>argument<|sep|>'
            "<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>"
        ),
    ),
    ("glm47", 0, "<tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value></tool_call>"),
    ("glm45", 0, "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"),
    (
        "iquest_q1",
        0,
        "<iquest_tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</iquest_tool_call>",
    ),
    (
        "hunyuan",
        0,
        (
            "<tool_calls>\n<tool_call>f<tool_sep>\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n"
            "</tool_call>\n</tool_calls>"
        ),
    ),
    (
        "minimax-m2",
        0,
        (
            '\n<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">x</parameter>\n</invoke>\n'
            "</minimax:tool_call>"
        ),
    ),
    (
        "minimax-m3",
        0,
        (
            ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="f">]<]minimax[>[<a>x]<]minimax[>[</a>'
            "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"
        ),
    ),
    (
        "gpt-oss",
        0,
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": "x"}<|call|>',
    ),
    ("gpt-oss", 0, ' to=functions.f<|channel|>commentary json<|message|>{"a": "x"}<|call|>'),
    (
        "cohere_command4",
        0,
        (
            '<cofl:tool_calls><cofl:tool_call id="0" name="f"><cofl:value name="a" type="raw">x'
            "</cofl:value></cofl:tool_call></cofl:tool_calls>"
        ),
    ),
    (
        "cohere_command4",
        1,
        (
            '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "f", "parameters": {"a": "x"}}\n'
            "]<|END_ACTION|>"
        ),
    ),
    ("granite", 0, '<|tool_call|>[{"name": "f", "arguments": {"a": "x"}}]'),
    ("granite-20b-fc", 0, '<function_call> {"name": "f", "arguments": {"a": "x"}}'),
    ("phi4_mini_json", 0, 'functools[{"name": "f", "arguments": {"a": "x"}}]'),
    (
        "interns1",
        0,
        '<|action_start|> <|plugin|>\n{"name": "f", "parameters": {"a": "x"}}<|action_end|>',
    ),
    ("hunyuan_a13b", 0, '<tool_calls>[{"name": "f", "arguments": {"a": "x"}}]</tool_calls>'),
    ("apertus2509", 0, '<|tools_prefix|>[{"f": {"a": "x"}}]<|tools_suffix|>'),
    (
        "dots",
        0,
        (
            '<dots_function_call>\n<invoke name="f">\n<parameter name="a">x</parameter>\n</invoke>\n'
            "</dots_function_call>"
        ),
    ),
    (
        "inkling",
        0,
        (
            '<|message_model|>f<|content_invoke_tool_json|>{"name": "f", "args": {"a": "x"}}'
            "<|end_message|>"
        ),
    ),
]


@pytest.mark.parametrize(("parser", "which", "text"), WRITTEN)
def test_what_a_grammar_lets_a_model_write_is_read_back(parser: str, which: int, text: str) -> None:
    """The forced call comes back whole, with nothing beside it, however the text is cut."""
    tools, reasoning = answer_formats(parser)
    for cut in (one, by_character):
        for read_as in (tools, forced(tools), forced(tools, "f")):
            reader = Reader(tools=read_as, reasoning=reasoning, signatures=(TOOL,))
            message = collect(reader.read(cut(text, frozenset())))

            assert [(c.name, json.loads(c.arguments)) for c in message.tool_calls] == [
                ("f", {"a": "x"})
            ], cut
            assert (message.content, message.reasoning) == (None, None)


@pytest.mark.parametrize(("parser", "which", "text"), WRITTEN)
def test_a_grammar_writes_what_stands_around_the_arguments(
    parser: str, which: int, text: str
) -> None:
    """All that a family's grammar fixes for a call of f is in its text, in that order."""
    tag = tool_format(parser).tags[which]
    at = 0
    begin = next(b for b in tag.begins if b.replace("{name}", "f") in text)
    for piece in (tag.opens, begin, tag.counted, tag.ends, tag.closes):
        found = text.find(piece.replace("{name}", "f"), at)
        assert found >= at, piece
        at = found + len(piece.replace("{name}", "f"))


def test_every_tag_has_an_example_here() -> None:
    """No family's grammar is without a text that it lets a model write."""
    known = {tool_format(name).name: tool_format(name) for name in tool_formats()}
    tags = {tag for parser in known.values() for tag in parser.tags}
    shown = {tool_format(parser).tags[which] for parser, which, _ in WRITTEN}
    same = {"deepseekv4": "deepseekv32"}  # but for the name of the outer element
    shown |= {tool_format(name).tags[0] for name in same}

    assert tags == shown


def test_the_tokenizer_chooses_between_a_familys_tags() -> None:
    """Mistral's newer tokenizers have a token before the arguments, the older have none."""
    tags = tool_format("mistral").tags

    assert tag_for(tags, {"[TOOL_CALLS]", "[ARGS]"}) is tags[0]
    assert tag_for(tags, {"[TOOL_CALLS]"}) is tags[1]
    assert tag_for((), {"[ARGS]"}) is None


def test_a_section_that_must_come_is_written_out() -> None:
    """Its markers are fixed, its calls are one or more, and a number is only a number."""
    got = calls_format(tool_format("kimi_k2").tags[0], [TOOL], required=True, parallel=True)

    assert got == {
        "type": "sequence",
        "elements": [
            {"type": "const_string", "value": "<|tool_calls_section_begin|>"},
            {
                "type": "tags_with_separator",
                "tags": [
                    {
                        "type": "tag",
                        "begin": "<|tool_call_begin|>functions.f:",
                        "content": {
                            "type": "sequence",
                            "elements": [
                                {"type": "regex", "pattern": "\\d+"},
                                {"type": "const_string", "value": "<|tool_call_argument_begin|>"},
                                {"type": "json_schema", "json_schema": SCHEMA, "style": "json"},
                            ],
                        },
                        "end": "<|tool_call_end|>",
                    }
                ],
                "separator": "",
                "at_least_one": True,
                "stop_after_first": False,
            },
            {"type": "const_string", "value": "<|tool_calls_section_end|>"},
        ],
    }


def test_a_section_that_may_come_waits_for_its_marker() -> None:
    """Text is free, and the section's opening marker leaves only calls."""
    tag = tool_format("deepseekv32").tags[0]
    got = calls_format(tag, [TOOL], required=False, parallel=False)

    assert (got["type"], got["triggers"]) == (
        "triggered_tags",
        [f"<{BAR}DSML{BAR}function_calls>"],
    )
    assert (got["at_least_one"], got["stop_after_first"]) == (False, True)
    (section,) = got["tags"]
    assert section["begin"] == f"<{BAR}DSML{BAR}function_calls>\n"
    assert section["content"]["stop_after_first"] is True


def test_a_message_to_the_user_is_possible_unless_a_call_must_come() -> None:
    """Harmony: the final message stands beside the tools', and only where no call is forced."""
    tag = tool_format("gpt-oss").tags[0]
    forced_tags, free_tags = (
        calls_format(tag, [TOOL], required=required, parallel=True)["tags"]
        for required in (True, False)
    )

    assert free_tags[: len(forced_tags)] == forced_tags
    assert [tag["begin"] for tag in free_tags[len(forced_tags) :]] == [
        "<|channel|>final<|message|>"
    ]


def test_loose_tools_are_held_to_an_object_only() -> None:
    """OpenAI: only a strict tool's arguments keep to its schema."""
    loose = ToolSignature("f", SCHEMA)
    got = calls_format(tool_format("qwen").tags[0], [loose], required=True, parallel=True)

    assert got["tags"][0]["content"]["json_schema"] == {"type": "object"}


def test_a_thought_stands_before_an_answer() -> None:
    """Begun by the prompt it must end; else it may be left out. What must follow it does."""
    tag = ThoughtTag("<t>", "</t>", then="<a>")
    answer = {"type": "const_string", "value": "x"}
    said, led = {"type": "any_text"}, {"type": "const_string", "value": "<a>"}
    begun = {"type": "tag", "begin": "", "content": said, "end": "</t>"}
    whole = {"type": "tag", "begin": "<t>", "content": said, "end": "</t>"}

    assert with_thought(tag, answer, begun=True)["elements"] == [begun, led, answer]
    assert with_thought(tag, answer, begun=False)["elements"] == [
        {"type": "optional", "content": {"type": "sequence", "elements": [whole, led]}},
        answer,
    ]


def test_framed_families_say_how_a_thought_leads_to_an_answer() -> None:
    """Harmony starts another message, Kimi K3 opens its response."""
    harmony, k3 = reasoning_format("gpt-oss").tag, reasoning_format("kimi_k3").tag

    assert harmony is not None
    assert k3 is not None
    assert (harmony.then, harmony.answer[0]) == (
        "<|start|>assistant",
        "<|channel|>final<|message|>",
    )
    assert k3.then == "<|open|>response<|sep|>"
