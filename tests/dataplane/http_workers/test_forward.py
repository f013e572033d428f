"""Requests through a router to HTTP workers, and the answers back."""

from __future__ import annotations

import json
from pathlib import Path

from sglr_client.testing import MockServer, Say
from support.http_workers import MODEL, a_chat, an_http_backend
from support.router import running_router


async def test_a_chat_is_answered_by_the_worker(tmp_path: Path) -> None:
    """The worker's answer reaches the client as it is, and the worker sees the body as it was."""
    with MockServer([MODEL]) as worker:
        worker.play(Say("Hello there."))
        async with running_router(tmp_path, an_http_backend(worker)) as router:
            answer = await router.http.post("/v1/chat/completions", json=a_chat(top_k=7))

    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "Hello there."
    assert worker.generations[0].body == a_chat(top_k=7)


async def test_a_stream_is_relayed_event_by_event(tmp_path: Path) -> None:
    """A client of a stream gets the worker's chunks and one end."""
    with MockServer([MODEL]) as worker:
        worker.play(Say("One two three."))
        async with running_router(tmp_path, an_http_backend(worker)) as router:
            answer = await router.http.post("/v1/chat/completions", json=a_chat(stream=True))

    frames = [line[6:] for line in answer.text.split("\n") if line]
    texts = [json.loads(frame)["choices"][0]["delta"].get("content") for frame in frames[:-1]]
    assert texts == ["", "One", " two", " three.", None]
    assert frames[-1] == "[DONE]"
