"""The grammar that reaches the worker: in the model's own format, and a thought before it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.sim.script import Play, Rule, Script
from sglr_dataplane.sim.worker import SimWorker
from sglr_proto.sglang import scheduler_pb2 as pb
from support.router import DEMO_MODEL, RunningRouter, manifest, running_router
from support.sim import sim_worker

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "parameters": SCHEMA, "strict": True},
}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "clock"}}
NAMED = {"type": "function", "function": {"name": "clock"}}
ANSWER = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
THOUGHT = {"type": "tag", "begin": "<think>", "content": {"type": "any_text"}, "end": "</think>"}
BEGUN = {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": "</think>"}


@asynccontextmanager
async def served(
    tmp_path: Path, *, thinks: bool = False, parser: str = "auto", **server_args: Any
) -> AsyncGenerator[tuple[RunningRouter, SimWorker]]:
    """Serve a model that writes calls as Qwen does, or as *parser* says.

    With *thinks* its prompts open a thought.
    """
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).write_bytes((DEMO_MODEL / name).read_bytes())
    if thinks:
        with (folder / "chat_template.jinja").open("a") as template:
            template.write("<think>\n")
    script = Script(rules=(Rule(play=Play(text="ok")),), server_args=server_args)
    async with (
        sim_worker(script, model_name="m") as worker,
        running_router(
            tmp_path,
            manifest(worker.address, tokenizer=folder) + f"  parsers: {{toolCall: {parser}}}\n",
        ) as router,
    ):
        yield router, worker


async def sent(router: RunningRouter, worker: SimWorker, **fields: Any) -> pb.GenerateRequest:
    """Return what the worker is asked when a client asks *fields*."""
    return (await sent_and_warned(router, worker, **fields))[0]


async def sent_and_warned(
    router: RunningRouter, worker: SimWorker, **fields: Any
) -> tuple[pb.GenerateRequest, list[str]]:
    """Return what the worker is asked when a client asks *fields*, and what the client is told."""
    request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    answer = await router.http.post("/v1/chat/completions", json=request)
    assert answer.status_code == 200, answer.text
    return worker.requests[-1], answer.headers.get_list("x-sglr-warning")


def tag_of(request: pb.GenerateRequest) -> Any:
    """Return the format of the structural tag that *request* holds its answer to."""
    tag = json.loads(request.sampling_params.structural_tag)
    assert tag["type"] == "structural_tag"
    return tag["format"]


def a_call(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the tag of a call as Qwen writes it."""
    return {
        "type": "tag",
        "begin": f'<tool_call>\n{{"name": "{name}", "arguments": ',
        "content": {"type": "json_schema", "json_schema": schema, "style": "json"},
        "end": "}\n</tool_call>",
    }


def calls(*tags: dict[str, Any], required: bool, single: bool = False) -> dict[str, Any]:
    """Return the format of answers with calls."""
    return {
        "type": "triggered_tags",
        "triggers": ["<tool_call>"],
        "tags": list(tags),
        "at_least_one": required,
        "stop_after_first": single,
    }


def after_free_thought(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the format of *answer*, before which the model may think or not."""
    thought = {"type": "optional", "content": {"type": "sequence", "elements": [THOUGHT]}}
    return {"type": "sequence", "elements": [thought, answer]}


CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"tool_choice": "required"},
        calls(a_call("weather", SCHEMA), a_call("clock", {"type": "object"}), required=True),
    ),
    ({"tool_choice": NAMED}, calls(a_call("clock", {"type": "object"}), required=True)),
    (
        {"tool_choice": "required", "parallel_tool_calls": False, "tools": [WEATHER]},
        calls(a_call("weather", SCHEMA), required=True, single=True),
    ),
    ({"tools": [WEATHER]}, calls(a_call("weather", SCHEMA), required=False)),
    (
        {"tools": [CLOCK], "parallel_tool_calls": False},
        calls(a_call("clock", {"type": "object"}), required=False, single=True),
    ),
    (
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "clock"}]}},
        calls(a_call("clock", {"type": "object"}), required=False),
    ),
]


async def test_calls_are_held_to_the_models_own_format(tmp_path: Path) -> None:
    """Required, named, strict, single and allowed calls; the thought before stays possible."""
    async with served(tmp_path) as (router, worker):
        for fields, meant in CASES:
            request = await sent(router, worker, **{"tools": [WEATHER, CLOCK], **fields})

            assert tag_of(request) == after_free_thought(meant), fields
            assert not request.require_reasoning


async def test_what_asks_for_nothing_is_free(tmp_path: Path) -> None:
    """Loose tools, no choice, and an answer's own grammar beside tools."""
    off = {"enable_thinking": False}
    async with served(tmp_path) as (router, worker):
        loose = await sent(router, worker, tools=[CLOCK])
        none = await sent(router, worker, tools=[WEATHER], tool_choice="none")
        answer = await sent(router, worker, tools=[WEATHER], response_format=ANSWER)
        quick = await sent(
            router, worker, tools=[CLOCK], tool_choice="required", chat_template_kwargs=off
        )

    assert loose.sampling_params.WhichOneof("constraint") is None
    assert none.sampling_params.WhichOneof("constraint") is None
    assert json.loads(answer.sampling_params.json_schema) == SCHEMA
    assert tag_of(quick) == calls(a_call("clock", {"type": "object"}), required=True)


async def test_a_worker_that_knows_the_thoughts_end_waits_for_it(tmp_path: Path) -> None:
    """The prompt opened a thought: the grammar comes after it, by the worker's own means."""
    async with served(tmp_path, thinks=True, reasoning_parser="qwen3") as (router, worker):
        answer = await sent(router, worker, response_format=ANSWER)
        called = await sent(router, worker, tools=[CLOCK], tool_choice="required")
        free = await sent(router, worker)

    assert (answer.require_reasoning, called.require_reasoning) == (True, True)
    assert not free.require_reasoning
    assert json.loads(answer.sampling_params.json_schema) == SCHEMA
    assert tag_of(called) == calls(a_call("clock", {"type": "object"}), required=True)


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({"response_format": ANSWER}, {"type": "json_schema", "json_schema": SCHEMA}),
        ({"regex": "a+"}, {"type": "regex", "pattern": "a+"}),
        ({"ebnf": 'root ::= "a"'}, {"type": "grammar", "grammar": 'root ::= "a"'}),
        (
            {
                "response_format": {
                    "type": "structural_tag",
                    "format": {"type": "const_string", "value": "a"},
                }
            },
            {"type": "const_string", "value": "a"},
        ),
    ],
)
async def test_for_a_worker_that_cannot_wait_the_thought_is_part_of_the_grammar(
    tmp_path: Path, fields: dict[str, Any], meant: dict[str, Any]
) -> None:
    """Without it the model would answer inside its thought, and nothing would be content."""
    async with served(tmp_path, thinks=True, reasoning_parser=None) as (router, worker):
        request = await sent(router, worker, **fields)

    assert tag_of(request) == {"type": "sequence", "elements": [BEGUN, meant]}
    assert not request.require_reasoning


async def test_other_grammar_backends_get_the_array_of_calls(tmp_path: Path) -> None:
    """Only xgrammar compiles structural tags; what nothing holds to is said."""
    async with served(tmp_path, grammar_backend="llguidance") as (router, worker):
        required, told = await sent_and_warned(
            router, worker, tools=[CLOCK], tool_choice="required"
        )
        strict, warned = await sent_and_warned(router, worker, tools=[WEATHER])

    schema = json.loads(required.sampling_params.json_schema)
    assert schema["items"]["anyOf"][0]["properties"]["name"]["enum"] == ["clock"]
    assert told == []
    assert strict.sampling_params.WhichOneof("constraint") is None
    assert warned == [
        "strict has no effect: no grammar of calls is known to the workers' grammar backend"
    ]


async def test_a_format_without_a_grammar_says_what_has_no_effect(tmp_path: Path) -> None:
    """Calls that may come are free there; one that must come keeps to the array, and its schema."""
    only = {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "weather"}]}
    reason = "has no effect: the model's format of calls has no grammar"
    async with served(tmp_path, parser="passthrough") as (router, worker):
        loose = await sent_and_warned(router, worker, tools=[CLOCK])
        free, warned = await sent_and_warned(
            router, worker, tools=[WEATHER], tool_choice=only, parallel_tool_calls=False
        )
        required, told = await sent_and_warned(
            router, worker, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False
        )

    assert loose[1] == []
    assert free.sampling_params.WhichOneof("constraint") is None
    assert warned == [
        f"{wish} {reason}" for wish in ("tool_choice", "parallel_tool_calls", "strict")
    ]
    assert told == []
    schema = json.loads(required.sampling_params.json_schema)
    assert schema["items"]["anyOf"][0]["properties"]["parameters"] == SCHEMA
    assert schema["maxItems"] == 1


async def test_an_answers_own_grammar_says_what_it_displaces(tmp_path: Path) -> None:
    """SGLang drops the grammar of calls there too, and says so in its log only."""
    async with served(tmp_path) as (router, worker):
        _, warned = await sent_and_warned(router, worker, tools=[WEATHER], response_format=ANSWER)

    assert warned == [
        "strict has no effect: the grammar of the answer goes before that of its calls"
    ]
