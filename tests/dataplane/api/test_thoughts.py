"""Thoughts and content, from the worker's tokens to the client: where one ends and other begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.sim.script import Play
from support.router import RunningRouter, a_worker, manifest, running_router

NO_THOUGHT: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}


async def said(router: RunningRouter, *, stream: bool, **fields: Any) -> dict[str, str]:
    """Return thought and content of an answer, joined when it was streamed."""
    request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    answer = await router.http.post("/v1/chat/completions", json={**request, "stream": stream})
    if not stream:
        messages = [answer.json()["choices"][0]["message"]]
    else:
        frames = [line[6:] for line in answer.text.split("\n") if line.startswith("data: {")]
        messages = [json.loads(frame)["choices"][0]["delta"] for frame in frames]
    return {
        name: "".join(message.get(name) or "" for message in messages)
        for name in ("reasoning_content", "content")
    }


@pytest.mark.parametrize("stream", [True, False])
async def test_a32_with_thinking_switched_off_the_whole_answer_is_content(
    tmp_path: Path, stream: bool
) -> None:
    """A32: the prompt closed an empty thought, and the model writes no tag."""
    async with (
        a_worker(Play(text="Paris.", chunk_size=1)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = await said(router, stream=stream, **NO_THOUGHT)

    assert answer == {"reasoning_content": "", "content": "Paris."}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("chunk_size", [1, 2, 3, 0])
async def test_a33_a_thoughts_end_is_seen_however_the_worker_cuts(
    tmp_path: Path, chunk_size: int, stream: bool
) -> None:
    """A33: in chunks of one, two, three tokens and all of them."""
    play = Play(text="<think>abc</think>normal", chunk_size=chunk_size)
    async with (
        a_worker(play) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = await said(router, stream=stream)

    assert answer == {"reasoning_content": "abc", "content": "normal"}
