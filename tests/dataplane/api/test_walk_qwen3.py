"""The walk with a real model's tokenizer and template: Qwen3."""

import json
from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.sim.script import Play, Rule, Script
from sglr_dataplane.vocab import Vocabulary
from support.router import manifest, running_router
from support.sim import sim_worker
from support.tokenizers import real_tokenizer

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "now", "parameters": {}}}
ANSWER = (
    "<think>\nHmm, 你好 — 🙂.\n</think>\n\nSure, one moment.\n"
    '<tool_call>\n{"name": "now", "arguments": {"zone": "Łódź"}}\n</tool_call>'
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("chunk_size", [1, 4, 0])
async def test_qwen3_streams_thought_text_and_call(tmp_path: Path, chunk_size: int) -> None:
    """However the worker cuts its chunks: reasoning, content and a call, whole and apart."""
    qwen3 = real_tokenizer("qwen3")
    script = Script(rules=(Rule(play=Play(text=ANSWER, chunk_size=chunk_size)),))
    async with (
        sim_worker(script, model_name="m", tokenizer=qwen3) as worker,
        running_router(tmp_path, manifest(worker.address, tokenizer=qwen3)) as router,
    ):
        answer = await router.http.post(
            "/v1/chat/completions",
            json={
                "model": "m",
                "messages": [{"role": "user", "content": "What time is it?"}],
                "tools": [TOOL],
                "stream": True,
            },
        )

    deltas = [
        json.loads(frame[6:])["choices"][0]["delta"]
        for frame in answer.text.split("\n\n")
        if frame and frame != "data: [DONE]"
    ]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert "".join(d.get("reasoning_content", "") for d in deltas) == "\nHmm, 你好 — 🙂.\n"
    assert "".join(d.get("content", "") for d in deltas) == "\n\nSure, one moment."
    assert calls[0]["function"]["name"] == "now"
    assert "".join(c["function"]["arguments"] for c in calls) == '{"zone": "Łódź"}'


@pytest.mark.timeout(60)
async def test_qwen3_prompts_are_the_templates(tmp_path: Path) -> None:
    """The ids on the wire decode to the text that Qwen3's template writes for one user message."""
    qwen3 = real_tokenizer("qwen3")
    script = Script(rules=(Rule(play=Play(text="ok")),))
    async with (
        sim_worker(script, model_name="m", tokenizer=qwen3) as worker,
        running_router(tmp_path, manifest(worker.address, tokenizer=qwen3)) as router,
    ):
        await router.http.post(
            "/v1/chat/completions",
            json={
                "model": "m",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                ],
                "chat_template_kwargs": {"enable_thinking": False},
            },
        )

    ids = list(worker.requests[0].tokenized.input_ids)
    assert Vocabulary.from_dir(qwen3).decode(ids) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
