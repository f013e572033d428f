"""``spec.parsers``: how answers are read, by the manifest instead of the chat template."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglr_dataplane.sim.script import Play, Rule, Script
from support.router import RunningRouter, a_worker, eventually, manifest, running_router
from support.sim import sim_worker

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
THOUGHT = "<think>\nhm\n</think>\n\n"
KNOWN = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
UNKNOWN = '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'


def with_parsers(address: str, **parsers: str) -> str:
    """Return a manifest of the worker at *address* that says *parsers*."""
    document = yaml.safe_load(manifest(address))
    document["spec"]["parsers"] = parsers
    return yaml.safe_dump(document)


async def said(router: RunningRouter) -> dict[str, Any]:
    """Return the message of an answer, and its finish reason."""
    request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [TOOL]}
    answer = await router.http.post("/v1/chat/completions", json=request)
    choice = answer.json()["choices"][0]
    message = choice["message"]
    return {
        "content": message["content"],
        "thought": message.get("reasoning_content"),
        "calls": [call["function"]["name"] for call in message.get("tool_calls") or ()],
        "finish": choice["finish_reason"],
    }


CASES: list[tuple[dict[str, str], str, dict[str, Any]]] = [
    ({}, THOUGHT + UNKNOWN,
     {"content": None, "thought": "\nhm\n", "calls": ["g"], "finish": "tool_calls"}),
    ({"toolCall": "none"}, KNOWN,
     {"content": KNOWN, "thought": None, "calls": [], "finish": "stop"}),
    ({"toolCall": "llama3_json"}, '{"name": "f", "parameters": {}}',
     {"content": None, "thought": None, "calls": ["f"], "finish": "tool_calls"}),
    ({"reasoning": "none"}, THOUGHT + "Hi.",
     {"content": THOUGHT + "Hi.", "thought": None, "calls": [], "finish": "stop"}),
    ({"unknownTools": "Content"}, UNKNOWN,
     {"content": UNKNOWN, "thought": None, "calls": [], "finish": "stop"}),
    ({"unknownTools": "Drop"}, UNKNOWN + "Hi.",
     {"content": "Hi.", "thought": None, "calls": [], "finish": "stop"}),
    ({"reasoningWhitespace": "Strip"}, THOUGHT + "Hi.",
     {"content": "Hi.", "thought": "hm", "calls": [], "finish": "stop"}),
]  # fmt: skip


@pytest.mark.parametrize(("parsers", "text", "meant"), CASES)
async def test_the_manifest_says_how_answers_are_read(
    tmp_path: Path, parsers: dict[str, str], text: str, meant: dict[str, Any]
) -> None:
    """Each field, and what a request gets from it."""
    async with (
        a_worker(Play(text=text)) as worker,
        running_router(tmp_path, with_parsers(worker.address, **parsers)) as router,
    ):
        assert await said(router) == meant


async def test_the_choice_and_its_reason_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the extras of /v1/models, and in the log."""
    caplog.set_level(logging.INFO, "sglr_dataplane.recipe")
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, with_parsers(worker.address, toolCall="glm47")) as router,
    ):
        card = (await router.http.get("/v1/models/m")).json()

    assert (card["tool_call_parser"], card["reasoning_parser"]) == ("glm47", "qwen3")
    assert card["parsers_reason"].endswith("; spec.parsers.toolCall is glm47")
    (loaded,) = [record for record in caplog.records if record.message == "recipe loaded"]
    assert vars(loaded)["tool_format"] == "glm47"
    assert vars(loaded)["formats_reason"] == card["parsers_reason"]


PLAIN = "{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}"
"""A chat template without a marker of any format."""


@pytest.mark.parametrize(
    ("parsers", "said_by_workers", "meant", "calls"),
    [
        ({}, ("glm47", "qwen3"), ("glm47", "qwen3"), ["f"]),
        ({}, (None, None), (None, None), []),
        ({}, ("not known here", None), (None, None), []),
        ({"toolCall": "none"}, ("glm47", None), (None, None), []),
        ({"toolCall": "qwen"}, ("glm47", "qwen3"), ("qwen", "qwen3"), []),
    ],
)
async def test_the_workers_word_counts_where_the_template_says_nothing(
    tmp_path: Path,
    parsers: dict[str, str],
    said_by_workers: tuple[str | None, str | None],
    meant: tuple[str | None, str | None],
    calls: list[str],
) -> None:
    """After the spec's and the template's, and /v1/models says so."""
    tool, reasoning = said_by_workers
    script = Script(
        rules=(Rule(play=Play(text="<tool_call>f</tool_call>")),),
        server_args={"tool_call_parser": tool, "reasoning_parser": reasoning},
    )
    async with sim_worker(script, model_name="m") as worker:
        backend = yaml.safe_load(with_parsers(worker.address, **parsers))
        backend["spec"]["tokenizer"]["chatTemplate"] = {"inline": PLAIN}
        async with running_router(tmp_path, yaml.safe_dump(backend)) as router:
            answer = await said(router)
            card = (await router.http.get("/v1/models/m")).json()

    assert answer["calls"] == calls
    assert (card["tool_call_parser"], card["reasoning_parser"]) == meant
    heard = "the workers' tool_call_parser is glm47" in card["parsers_reason"]
    assert heard == (meant[0] == "glm47")


async def test_the_template_goes_before_the_workers_word(tmp_path: Path) -> None:
    """A worker that was started for another model does not change how answers are read."""
    script = Script(rules=(Rule(play=Play(text=KNOWN)),), server_args={"tool_call_parser": "glm47"})
    async with (
        sim_worker(script, model_name="m") as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        card = (await router.http.get("/v1/models/m")).json()

        assert card["tool_call_parser"] == "qwen"
        assert (await said(router))["calls"] == ["f"]


async def test_an_unknown_parser_is_a_problem_of_its_backend(tmp_path: Path) -> None:
    """Its requests are refused, /readyz says why, and a corrected manifest serves."""
    async with (
        a_worker(Play(text=KNOWN)) as worker,
        running_router(
            tmp_path, with_parsers(worker.address, toolCall="qwne"), ready=False
        ) as router,
    ):

        async def is_told() -> bool:
            return "'qwne' is unknown" in (await router.http.get("/readyz")).text

        await eventually(is_told)
        router.manifest.write_text(with_parsers(worker.address, toolCall="qwen"))
        await router.until_ready()

        assert (await said(router))["calls"] == ["f"]
