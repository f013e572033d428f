"""The simulated worker of HTTP, alone and behind a router."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from sglr_dataplane.sim.http_messages import Flavour
from sglr_dataplane.sim.http_worker import HttpSimWorker
from sglr_dataplane.sim.script import Incident, Play, Rule, Script, Status, When
from sglr_dataplane.sim.settings import WorkerSettings
from support.http_workers import a_chat
from support.router import running_router
from support.router_process import sglr

CHAT = "/v1/chat/completions"


@asynccontextmanager
async def a_worker(
    *rules: Rule, flavour: Flavour = "sglang", **fields: Any
) -> AsyncGenerator[tuple[HttpSimWorker, httpx2.AsyncClient]]:
    """Run a worker that plays *rules*, and a client of it."""
    settings = WorkerSettings(model_name="m", context_length=50)
    async with (
        HttpSimWorker(settings, Script(rules=rules), flavour=flavour, **fields) as worker,
        httpx2.AsyncClient(base_url=f"http://{worker.address}", timeout=5) as client,
    ):
        yield worker, client


def playing(*incidents: Incident, text: str = "one two three") -> Rule:
    """Return a rule of one answer."""
    return Rule(play=Play(text=text, incidents=incidents))


def texts_of(stream: str) -> list[str]:
    """Return what the chunks of a chat say."""
    frames = [line[6:] for line in stream.split("\n") if line.startswith("data: {")]
    choices = [choice for frame in frames for choice in json.loads(frame).get("choices", [])]
    return [choice["delta"]["content"] for choice in choices if choice["delta"].get("content")]


@pytest.mark.parametrize("flavour", ["sglang", "vllm"])
async def test_it_answers_as_servers_do(flavour: Flavour) -> None:
    """Health, models, a chat, a stream with usage, a completion."""
    async with a_worker(playing(), flavour=flavour) as (_, client):
        health = await client.get("/health")
        cards = (await client.get("/v1/models")).json()["data"]
        whole = (await client.post(CHAT, json=a_chat())).json()
        asked = a_chat(stream=True, stream_options={"include_usage": True}, max_tokens=2)
        stream = (await client.post(CHAT, json=asked)).text
        text = (await client.post("/v1/completions", json={"model": "m", "prompt": "x"})).json()
        native = await client.post("/generate", json={"text": "x"})

    assert health.status_code == 200
    assert [(card["id"], card["owned_by"], card["max_model_len"]) for card in cards] == [
        ("m", flavour, 50)
    ]
    assert whole["choices"][0]["message"]["content"] == "one two three"
    assert texts_of(stream) == ["one", " two"]
    assert '"finish_reason":"length"' in stream
    assert '"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}' in stream
    assert stream.endswith("data: [DONE]\n\n")
    assert text["choices"][0]["text"] == "one two three"
    assert native.status_code == (200 if flavour == "sglang" else 404)


async def test_scripts_say_what_goes_wrong() -> None:
    """Statuses before the first word, error events after it, rules that match and run out."""
    busy = Rule(
        play=Play(
            incidents=(
                Incident(
                    status=Status(code="UNAVAILABLE", message="full", trailers={"retry-after": "2"})
                ),
            )
        ),
        times=1,
    )
    broken = Rule(
        play=playing(Incident(after=2, status=Status(code="INTERNAL", message="boom"))).play,
        when=When(user="break"),
    )
    async with a_worker(busy, broken, playing()) as (_, client):
        full = await client.post(CHAT, json=a_chat())
        cut = await client.post(CHAT, json=a_chat("please break", stream=True))
        good = await client.post(CHAT, json=a_chat(stream=True))

    assert (full.status_code, full.headers["retry-after"]) == (503, "2")
    assert texts_of(cut.text) == ["one", " two"]
    assert '{"error":{"message":"boom"' in cut.text
    assert texts_of(good.text) == ["one", " two", " three"]


async def test_connections_break_where_the_script_says() -> None:
    """A reset within a stream, and a worker that is gone from then on."""
    reset = Rule(play=playing(Incident(after=1, die="reset")).play, times=1)
    gone = Rule(play=playing(Incident(die="exit")).play)
    async with a_worker(reset, gone) as (_, client):
        for stream in (True, False, False):
            with pytest.raises(httpx2.TransportError):
                await client.post(CHAT, json=a_chat(stream=stream))


async def test_what_is_wrong_with_a_request_is_told_in_the_flavour_s_shape() -> None:
    """SGLang's errors are flat, vLLM's nested; too long a prompt has the sentence agents know."""
    long = "word " * 60
    for flavour in ("sglang", "vllm"):
        async with a_worker(flavour=flavour) as (_, client):
            answer = await client.post(CHAT, json=a_chat(long))
        told = answer.json() if flavour == "sglang" else answer.json()["error"]

        assert answer.status_code == 400
        assert told["message"].startswith("This model's maximum context length is 50 tokens.")
        assert told["code"] == 400


async def test_a_key_is_wanted_on_every_path() -> None:
    """Probes are no exception."""
    async with a_worker(api_key="k") as (_, client):
        without = [(await client.get(path)).status_code for path in ("/health", "/v1/models")]
        client.headers["authorization"] = "Bearer k"
        with_key = (await client.get("/health")).status_code

    assert (without, with_key) == ([401, 401], 200)


@pytest.mark.processes
async def test_the_command_starts_one_that_a_router_can_use(tmp_path: Path) -> None:
    """``sglr sim-worker --protocol http`` behind ``protocol: HTTP``."""
    async with sglr("sim-worker", "--protocol", "http", "--model-name", "m") as address:
        port = address.rpartition(":")[2]
        backend = (
            "apiVersion: sglr.dev/v1alpha1\nkind: SGLangBackend\nmetadata: {name: http}\n"
            "spec:\n  model: {name: m}\n  workers:\n    protocol: HTTP\n"
            f"    static: {{endpoints: [{{host: 127.0.0.1, port: {port}}}]}}\n"
        )
        async with running_router(tmp_path, backend) as router:
            answer = await router.http.post(CHAT, json=a_chat("Hello.", stream=True))

    assert "".join(texts_of(answer.text)) == "You said: Hello.\nWhat else?"
