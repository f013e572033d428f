"""The paths that only parse: SGLang's and SMG's words for one and the same reading."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.sim.script import Play, Rule, Script
from support.router import RunningRouter, a_worker, manifest, running_router
from support.sim import sim_worker

_CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 12345678901234567890}}\n</tool_call>'
_RAW = '{"a": 12345678901234567890}'
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
        },
    }
]


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[RunningRouter]:
    """A ready router over one worker, whose model is read by ``qwen`` and ``qwen3``."""
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address)) as running,
    ):
        yield running


async def _told(router: RunningRouter, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    answer = await router.http.post(path, json=body)
    return answer.status_code, answer.json()


async def test_calls_are_told_in_each_servers_words(router: RunningRouter) -> None:
    """SGLang numbers calls, SMG nests functions; the arguments are the model's own text."""
    body = {"text": f"Sure.\n{_CALL}\nDone.", "tool_call_parser": "qwen25", "tools": _TOOLS}

    sglang = await _told(router, "/parse_function_call", body)
    smg = await _told(router, "/parse/function_call", body)

    assert sglang == (
        200,
        {
            "normal_text": "Sure.\nDone.",
            "calls": [{"tool_index": 0, "name": "f", "parameters": _RAW}],
        },
    )
    assert smg == (
        200,
        {
            "remaining_text": "Sure.\nDone.",
            "tool_calls": [{"function": {"name": "f", "arguments": _RAW}}],
            "success": True,
        },
    )


async def test_schemas_type_the_arguments(router: RunningRouter) -> None:
    """What a tag format writes as plain text gets the type that the tool gives it."""
    text = "<tool_call>f<arg_key>a</arg_key><arg_value>123_456</arg_value></tool_call>"
    body = {"text": text, "tool_call_parser": "glm47", "tools": _TOOLS}

    _, told = await _told(router, "/parse_function_call", body)

    assert json.loads(told["calls"][0]["parameters"]) == {"a": "123_456"}


async def test_thoughts_of_framed_messages_are_not_lost(router: RunningRouter) -> None:
    """Harmony's calls cannot be read without its thoughts, so those are told too."""
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.f<|message|>{}<|call|>"
    )

    _, told = await _told(
        router, "/parse_function_call", {"text": text, "tool_call_parser": "gpt-oss"}
    )

    assert told == {
        "normal_text": "",
        "calls": [{"tool_index": 0, "name": "f", "parameters": "{}"}],
        "reasoning_text": "Hm.",
    }


@pytest.mark.parametrize(
    ("text", "parser", "thought", "said"),
    [
        ("<think>a</think>b", "qwen3", "a", "b"),
        ("a</think>b", "qwen3", "a", "b"),
        ("b", "qwen3", "", "b"),
        ("a", "deepseek-r1", "a", ""),
        ("b <think>a</think>", "qwen3", "", "b <think>a</think>"),
        ("<|channel|>final<|message|>b<|end|>", "gpt-oss", "", "b"),
    ],
)
async def test_thoughts_are_separated(
    router: RunningRouter, text: str, parser: str, thought: str, said: str
) -> None:
    """Where a text begins is known from its markers, since there is no prompt."""
    body = {"text": text, "reasoning_parser": parser}

    sglang = await _told(router, "/separate_reasoning", body)
    smg = await _told(router, "/parse/reasoning", body)

    assert sglang == (200, {"reasoning_text": thought, "text": said})
    assert smg == (200, {"normal_text": said, "reasoning_text": thought, "success": True})


async def test_without_a_name_the_models_own_parsers_read(router: RunningRouter) -> None:
    """The only backend's, or that of the model that is named."""
    _, calls = await _told(router, "/parse_function_call", {"text": _CALL, "model": "org/alias"})
    _, thoughts = await _told(router, "/separate_reasoning", {"text": "<think>a</think>b"})

    assert [call["name"] for call in calls["calls"]] == ["f"]
    assert thoughts == {"reasoning_text": "a", "text": "b"}


async def test_long_texts_are_read_whole(router: RunningRouter) -> None:
    """A megabyte goes through a thread and comes back complete."""
    long = "x" * 1_000_000
    text = f'<tool_call>\n{{"name": "f", "arguments": {{"a": "{long}"}}}}\n</tool_call>'

    _, told = await _told(
        router, "/parse_function_call", {"text": text, "tool_call_parser": "hermes"}
    )

    assert json.loads(told["calls"][0]["parameters"]) == {"a": long}


_WRONG: list[tuple[str, dict[str, Any], int, str]] = [
    ("/parse_function_call", {"tool_call_parser": "qwen"}, 400, "text"),
    ("/parse_function_call", {"text": 1}, 400, "text"),
    ("/parse/function_call", {"text": "", "tool_call_parser": "no"}, 400, "tool_call_parser"),
    ("/parse_function_call", {"text": "", "tool_call_parser": 1}, 400, "tool_call_parser"),
    ("/parse_function_call", {"text": "", "tools": [{}]}, 400, "tools[0].function"),
    ("/separate_reasoning", {"text": "", "reasoning_parser": "no"}, 400, "reasoning_parser"),
    ("/parse/reasoning", {}, 400, "text"),
    ("/separate_reasoning", {"text": "", "return_blocks": True}, 400, "return_blocks"),
    ("/separate_reasoning", {"text": "", "model": "other"}, 404, "model"),
]


@pytest.mark.parametrize(("path", "body", "status", "param"), _WRONG)
async def test_wrong_requests_are_refused_by_name(
    router: RunningRouter, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    """The error names the field, in the envelope of every other path."""
    got, told = await _told(router, path, body)

    assert (got, told["error"]["param"]) == (status, param)


async def test_a_model_without_parsers_asks_for_a_name(tmp_path: Path) -> None:
    """Where nothing is known of a model's format, it must be named."""
    folder = tmp_path / "bare"
    folder.mkdir()
    demo = Path(__file__).parents[3] / "dataplane" / "sglr_dataplane" / "demo_model"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((demo / name).read_bytes())
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    silent = Script(
        rules=(Rule(play=Play(text="ok")),),
        server_args={"tool_call_parser": None, "reasoning_parser": None},
    )
    async with (
        sim_worker(silent, model_name="m") as worker,
        running_router(tmp_path, manifest(worker.address, tokenizer=folder)) as running,
    ):
        calls = await _told(running, "/parse_function_call", {"text": "a"})
        thoughts = await _told(running, "/separate_reasoning", {"text": "a"})

    assert (calls[0], calls[1]["error"]["param"]) == (400, "tool_call_parser")
    assert (thoughts[0], thoughts[1]["error"]["param"]) == (400, "reasoning_parser")
