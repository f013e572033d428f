"""The assistant that answers without a script: echo, tools, thoughts, schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sglr_dataplane.sim.assistant import answer
from sglr_dataplane.sim.text import DirectoryText
from sglr_proto.sglang import scheduler_pb2 as pb
from support.sim import DEMO_TOKENIZER, sim_worker
from support.sim_client import a_request, chunks_of, completes_of, connected

TEXT = DirectoryText(DEMO_TOKENIZER)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
        },
    },
}
TIME = {"name": "tellTime", "description": "", "parameters": {}}


def prompt(user: str, *, tools: tuple[dict[str, Any], ...] = (), tail: str = "") -> str:
    """Return a ChatML prompt that ends where the assistant is to go on."""
    offered = "\n".join(json.dumps(tool) for tool in tools)
    system = f"<|im_start|>system\n<tools>\n{offered}\n</tools><|im_end|>\n" if tools else ""
    return f"{system}<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{tail}"


def said(text: str, *, thinks: bool = False, **sampling: Any) -> str:
    """Return the assistant's answer to a prompt."""
    request = pb.GenerateRequest(sampling_params=pb.SamplingParams(**sampling))
    return answer(text, request, chooses_thinking=thinks)


def called(text: str) -> dict[str, Any]:
    """Return the call in an answer that is nothing but one."""
    assert text.startswith("<tool_call>\n")
    assert text.endswith("\n</tool_call>")
    call: dict[str, Any] = json.loads(
        text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")
    )
    return call


def test_the_last_user_message_comes_back() -> None:
    """Whole, whatever is in it, and something after it."""
    words = said(prompt("Grüße, 世界! 👩‍👩‍👧"))

    assert words.startswith("You said: Grüße, 世界! 👩‍👩‍👧\n")
    assert words == said(prompt("Grüße, 世界! 👩‍👩‍👧"))


def test_a_prompt_that_is_no_chat_comes_back_too() -> None:
    """As one message."""
    assert "Once upon a time" in said("Once upon a time")


def test_an_empty_chat_is_greeted() -> None:
    """There is nothing to repeat."""
    assert said("<|im_start|>assistant\n").startswith("Hello")


def test_a_tool_that_fits_is_called() -> None:
    """By its words; the arguments fit its schema and come from the message."""
    call = called(
        said(prompt("What is the weather in New York, in Fahrenheit?", tools=(WEATHER, TIME)))
    )

    assert call == {
        "name": "get_weather",
        "arguments": {"city": "New York", "unit": "fahrenheit"},
    }


def test_a_tool_without_wrapper_and_parameters_is_called() -> None:
    """Camel case counts as words; no parameters are no arguments."""
    call = called(said(prompt("Please tell me the time", tools=(WEATHER, TIME))))

    assert call == {"name": "tellTime", "arguments": {}}


def test_a_tool_that_does_not_fit_is_left_alone() -> None:
    """The message is answered instead."""
    assert said(prompt("Sing a song", tools=(WEATHER,))).startswith("You said: Sing a song")


def test_a_tools_result_is_told() -> None:
    """After the result comes an answer, not the same call again."""
    asked = prompt("Weather in Paris?", tools=(WEATHER,))
    told = (
        f"{asked}<tool_call>\n{{}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n"
        "18 degrees\n</tool_response>\n<tool_response>\nsunny\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )

    assert said(told) == "The tool says: 18 degrees and sunny"


@pytest.mark.parametrize(
    ("tail", "thinks", "beginning"),
    [
        ("", True, "<think>\nThe user says: Hi"),
        ("", False, "You said: Hi"),
        ("<think>\n", True, "The user says: Hi"),
        ("<think>\n", False, "The user says: Hi"),
        ("<think>\n\n</think>\n\n", True, "You said: Hi"),
    ],
)
def test_thoughts(tail: str, beginning: str, *, thinks: bool) -> None:
    """Opened by the prompt or by the model; not after the prompt closed one."""
    words = said(prompt("Hi", tail=tail), thinks=thinks)

    assert words.startswith(beginning)
    assert ("</think>\n\nYou said: Hi" in words) == (not beginning.startswith("You"))


def test_a_schema_is_answered_by_a_value_that_fits() -> None:
    """response_format: nothing but the JSON, no thought before it."""
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "maximum": 120}},
        "required": ["name", "age"],
    }
    words = said(prompt('I am "Ann", 300 years'), thinks=True, json_schema=json.dumps(schema))

    assert json.loads(words) == {"name": "Ann", "age": 120}


def test_a_grammar_may_wait_for_the_thought() -> None:
    """require_reasoning: the model thinks first."""
    request = a_request(fields={"require_reasoning": True}, json_schema='{"const": 1}')
    words = answer(prompt("Hi"), request, chooses_thinking=True)

    assert words.startswith("<think>")
    assert words.endswith("</think>\n\n1")


CALL = {
    "type": "tag",
    "begin": '<tool_call>\n{"name": "f", "arguments": ',
    "content": {"type": "json_schema", "json_schema": {"properties": {"n": {"const": 1}}}},
    "end": "}\n</tool_call>",
}
CALLED = '<tool_call>\n{"name": "f", "arguments": {"n": 1}}\n</tool_call>'


@pytest.mark.parametrize(
    ("tag", "written"),
    [
        ({"format": CALL}, CALLED),
        ({"format": {**CALL, "end": ["}!", "}?"]}}, CALLED.replace("}\n</tool_call>", "}!")),
        ({"format": {"type": "triggered_tags", "tags": [CALL], "at_least_one": True}}, CALLED),
        ({"format": {"type": "tags_with_separator", "tags": [CALL], "at_least_one": True}}, CALLED),
        (
            {
                "format": {
                    "type": "sequence",
                    "elements": [{"type": "const_string", "value": "So: "}, CALL],
                }
            },
            f"So: {CALLED}",
        ),
        ({"format": {"type": "or", "elements": [CALL, {"type": "any_text"}]}}, CALLED),
        (
            {
                "structures": [{"begin": "<f>", "schema": {"const": 2}, "end": "</f>"}],
                "triggers": ["<f>"],
                "at_least_one": True,
            },
            "<f>2</f>",
        ),
    ],
)
def test_structural_tags_are_obeyed(tag: dict[str, Any], written: str) -> None:
    """Both formats: where a tag must come, it does."""
    source = json.dumps({"type": "structural_tag", **tag})

    assert said(prompt("Hi"), structural_tag=source) == written


@pytest.mark.parametrize(
    "tag",
    [
        {"format": {"type": "triggered_tags", "tags": [CALL]}},
        {"format": {"type": "any_text"}},
        {"structures": [{"begin": "<f>", "schema": {}, "end": "</f>"}], "triggers": ["<f>"]},
    ],
)
def test_tags_that_may_come_leave_the_words_free(tag: dict[str, Any]) -> None:
    """Nothing forces them."""
    source = json.dumps({"type": "structural_tag", **tag})

    assert said(prompt("Hi"), structural_tag=source).startswith("You said: Hi")


@pytest.mark.parametrize("thinks", [True, False])
async def test_over_the_wire(*, thinks: bool) -> None:
    """Text, the thought the template leaves to the model, and EOS among the ids."""
    request = a_request(ids=TEXT.encode(prompt("Hi there")))
    async with sim_worker(thinks=thinks) as worker, connected(worker.address) as client:
        messages = await client.generate(request)

    ids = [token for chunk in chunks_of(messages) for token in chunk]
    [complete] = completes_of(messages)
    words = TEXT.decode(ids)
    assert words.endswith("You said: Hi there\nThat is 2 words. What else?<|im_end|>")
    assert words.startswith("<think>") is thinks
    assert complete.matched_token_id == ids[-1] == TEXT.eos_ids[0]


@pytest.mark.parametrize(
    ("sampling", "tokens", "reason"),
    [
        ({"max_new_tokens": 4}, 4, "length"),
        ({"max_new_tokens": 0}, 0, "length"),
        ({"max_new_tokens": 500}, 190, "length"),
        ({}, 190, "length"),
    ],
)
async def test_the_window_clips_in_silence(
    sampling: dict[str, Any], tokens: int, reason: str
) -> None:
    """8000 of 8192 leave 190, whatever was asked; nothing tells the client."""
    request = a_request(ids=[5] * 8000, ignore_eos=True, stream=False, **sampling)
    async with sim_worker() as worker, connected(worker.address) as client:
        [complete] = completes_of(await client.generate(request))

    assert len(complete.output_ids) == complete.completion_tokens == tokens
    assert complete.finish_reason == reason


async def test_a_stop_string_is_in_the_ids_and_named() -> None:
    """Trimming is the router's job, whatever no_stop_trim says."""
    request = a_request(ids=TEXT.encode(prompt("one two three")), stop=["two"])
    async with sim_worker(thinks=False) as worker, connected(worker.address) as client:
        messages = await client.generate(request)

    [complete] = completes_of(messages)
    words = TEXT.decode([token for chunk in chunks_of(messages) for token in chunk])
    assert complete.matched_stop_str == "two"
    assert complete.finish_reason == "stop"
    assert words.startswith("You said: one two")
    assert "three" not in words
