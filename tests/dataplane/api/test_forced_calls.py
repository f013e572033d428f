"""Calls that tool_choice forces: the grammar's JSON comes back as calls, not as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.sim.script import Play
from support.router import a_worker, manifest, running_router

TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}
NAMED = {"type": "function", "function": {"name": "now"}}


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ("required", '[{"name": "now", "parameters": {"zone": "CET"}}]'),
        (NAMED, '[{"name": "now", "parameters": {"zone": "CET"}}]'),
        (NAMED, '{"zone": "CET"}'),
        ("required", '<tool_call>\n{"name": "now", "arguments": {"zone": "CET"}}\n</tool_call>'),
    ],
)
async def test_a_forced_call_is_read_back_in_every_shape(
    tmp_path: Path, choice: Any, text: str
) -> None:
    """The array of the grammar, bare arguments of a named tool, or the model's own markup."""
    async with (
        a_worker(Play(text=text, chunk_size=2)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        request = {
            "model": "m",
            "messages": [{"role": "user", "content": "Hello"}],
            "tools": [TOOL],
            "tool_choice": choice,
        }
        answer = await router.http.post("/v1/chat/completions", json=request)

    (said,) = answer.json()["choices"]
    assert [call["function"] for call in said["message"]["tool_calls"]] == [
        {"name": "now", "arguments": '{"zone": "CET"}'}
    ]
    assert said["message"]["content"] is None
    assert said["finish_reason"] == "tool_calls"
