"""The walk with real models' tokenizers and templates: each family's own calls, to its clients."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglr_dataplane.sim.script import Play, Rule, Script
from support.router import RunningRouter, eventually, manifest, running_router
from support.sim import sim_worker
from support.tokenizers import real_tokenizer

BAR = "\uff5c"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "weather", "description": "", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {}}},
]
LOADING_SECONDS = 90.0
"""For a vocabulary of 200 000 tokens beside other work."""
CITY, NOTHING = '{"city": "Łódź 🌦 \\"x\\"", "days": 2}', "{}"


@dataclass(frozen=True)
class Case:
    """What a model writes, and what its client must have in the end."""

    model: str
    text: str
    parser: str
    content: str | None = None
    thought: str | None = None
    calls: tuple[tuple[str, str], ...] = (("weather", CITY), ("now", NOTHING))
    template: str = ""
    """Of a model whose tokenizer comes without one: then *parser* is in its manifest, too."""


CASES = (
    Case(
        "qwen3",
        f'<think>\nHm, 你好.\n</think>\n\nSure.\n<tool_call>\n{{"name": "weather", "arguments": '
        f'{CITY}}}\n</tool_call>\n<tool_call>\n{{"name": "now", "arguments": {{}}}}\n</tool_call>',
        "qwen",
        content="\n\nSure.",
        thought="\nHm, 你好.\n",
    ),
    Case(
        "llama3.1",
        f'{{"name": "weather", "parameters": {CITY}}}; {{"name": "now", "parameters": {{}}}}',
        "llama3",
    ),
    Case(
        "deepseek_v3",
        f"Both.<{BAR}tool▁calls▁begin{BAR}><{BAR}tool▁call▁begin{BAR}>function<{BAR}tool▁sep{BAR}>"
        f"weather\n```json\n{CITY}\n```<{BAR}tool▁call▁end{BAR}>\n<{BAR}tool▁call▁begin{BAR}>function"
        f"<{BAR}tool▁sep{BAR}>now\n```json\n{{}}\n```<{BAR}tool▁call▁end{BAR}>"
        f"<{BAR}tool▁calls▁end{BAR}>",
        "deepseekv3",
        content="Both.",
        template="{{ messages[0].content }}{% for tool in tools or [] %}{{ tool.function.name }}"
        f"{{% endfor %}}<{BAR}Assistant{BAR}>",
    ),
    Case(
        "mistral_tekken",
        f'[TOOL_CALLS][{{"name": "weather", "arguments": {CITY}}}, {{"name": "now", "arguments": '
        "{}}]",
        "mistral",
    ),
    Case(
        "gptoss",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.weather <|constrain|>json<|message|>{CITY}<|call|>",
        "gpt-oss",
        thought="Hm.",
        calls=(("weather", CITY),),
    ),
)


async def appended(router: RunningRouter, request: dict[str, Any]) -> dict[str, Any]:
    """Return what a client makes of a stream that appends by index and knows nothing else."""
    said: dict[str, Any] = {"content": "", "thought": "", "calls": {}, "finish": None}
    answer = await router.http.post("/v1/chat/completions", json={**request, "stream": True})
    for frame in answer.text.split("\n\n"):
        if not frame or frame == "data: [DONE]":
            continue
        (choice,) = json.loads(frame.removeprefix("data: "))["choices"]
        delta = choice["delta"]
        said["content"] += delta.get("content") or ""
        said["thought"] += delta.get("reasoning_content") or ""
        said["finish"] = choice["finish_reason"] or said["finish"]
        for call in delta.get("tool_calls") or ():
            known = said["calls"].setdefault(call["index"], {"id": "", "name": "", "arguments": ""})
            known["id"] += call.get("id") or ""
            known["name"] += call["function"].get("name") or ""
            known["arguments"] += call["function"].get("arguments") or ""
    return said


def manifest_of(case: Case, address: str, tokenizer: Path) -> str:
    """Return the manifest of *case*'s model at *address*."""
    document = yaml.safe_load(manifest(address, tokenizer=tokenizer))
    if case.template:
        document["spec"]["tokenizer"]["chatTemplate"] = {"inline": case.template}
        document["spec"]["parsers"] = {"toolCall": case.parser}
    return yaml.safe_dump(document)


async def is_ready(router: RunningRouter) -> bool:
    """Return whether *router* has loaded the tokenizer and found the worker."""
    return (await router.http.get("/readyz")).status_code == 200


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES, ids=[case.model for case in CASES])
async def test_a_familys_calls_reach_every_client(tmp_path: Path, case: Case) -> None:
    """Whole, to a client that appends, and to OpenAI's accumulator; by 1, 5 and all tokens."""
    tokenizer = real_tokenizer(case.model)
    plays = [Play(text=case.text, chunk_size=size) for size in (1, 5, 0)]
    script = Script(rules=tuple(Rule(play=play, times=3) for play in plays))
    request: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": "The weather in Łódź?"}],
        "tools": TOOLS,
    }
    async with (
        sim_worker(script, model_name="m", tokenizer=tokenizer) as worker,
        running_router(
            tmp_path, manifest_of(case, worker.address, tokenizer), ready=False
        ) as router,
        router.sdk() as sdk,
    ):
        await eventually(lambda: is_ready(router), LOADING_SECONDS)
        card = (await router.http.get("/v1/models/m")).json()
        assert card["tool_call_parser"] == case.parser
        for _ in plays:
            whole = (await router.http.post("/v1/chat/completions", json=request)).json()
            naive = await appended(router, request)
            async with sdk.chat.completions.stream(**request) as stream:
                final = await stream.get_final_completion()

            check_whole(case, whole["choices"][0])
            check_appended(case, naive)
            message = final.choices[0].message
            calls = [(c.function.name, c.function.arguments) for c in message.tool_calls or ()]
            assert tuple(calls) == case.calls
            assert (message.content or None) == case.content


def check_whole(case: Case, choice: dict[str, Any]) -> None:
    """Check an answer that came in one piece."""
    message = choice["message"]
    found = [(c["function"]["name"], c["function"]["arguments"]) for c in message["tool_calls"]]

    assert message["content"] == case.content
    assert message.get("reasoning_content") == case.thought
    assert tuple(found) == case.calls
    assert choice["finish_reason"] == "tool_calls"


def check_appended(case: Case, said: dict[str, Any]) -> None:
    """Check what a client has that appended a stream."""
    calls = [said["calls"][at] for at in range(len(case.calls))]

    assert (said["content"], said["thought"]) == (case.content or "", case.thought or "")
    assert tuple((call["name"], call["arguments"]) for call in calls) == case.calls
    assert len({call["id"] for call in calls}) == len(said["calls"]) == len(case.calls)
    assert said["finish"] == "tool_calls"
