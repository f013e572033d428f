"""Log probabilities: one entry for each token, with the text it became, alike in both modes."""

import json
from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.sim.script import Play
from support.router import RunningRouter, a_worker, manifest, running_router

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
TEXT = "A é 漢 🙂 end"


async def chat(router: RunningRouter, **fields: Any) -> Any:
    """Return the answer to a chat request that asks for log probabilities."""
    request = {"model": "m", "messages": HELLO, "logprobs": True, **fields}
    return await router.http.post("/v1/chat/completions", json=request)


def chunks(body: str) -> list[Any]:
    """Return the chunks of a stream."""
    return [json.loads(frame[6:]) for frame in body.split("\n\n")[:-2]]


def streamed(body: str) -> list[Any]:
    """Return all entries of a stream, in order."""
    told = [chunk["choices"][0]["logprobs"] for chunk in chunks(body)]
    return [entry for logprobs in told if logprobs for entry in logprobs["content"]]


@pytest.mark.parametrize("chunk_size", [1, 3, 0])
async def test_both_modes_tell_the_same_entries(tmp_path: Path, chunk_size: int) -> None:
    """As many as completion tokens, equal one by one, however the worker cuts its chunks."""
    async with (
        a_worker(Play(text=TEXT, chunk_size=chunk_size)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        whole = (await chat(router, top_logprobs=2)).json()
        stream = (await chat(router, top_logprobs=2, stream=True)).text

    entries = whole["choices"][0]["logprobs"]["content"]
    assert streamed(stream) == entries
    assert len(entries) == whole["usage"]["completion_tokens"]


async def test_entries_have_value_bytes_and_alternatives(tmp_path: Path) -> None:
    """The bytes of all tokens are the text's, half characters too; values are the worker's."""
    async with (
        a_worker(Play(text=TEXT)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        *entries, end = (await chat(router, top_logprobs=2)).json()["choices"][0]["logprobs"][
            "content"
        ]

    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == TEXT
    assert end["token"] == "<|im_end|>"
    for entry in (*entries, end):
        assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
        assert entry["token"] == bytes(entry["bytes"]).decode("utf-8", "replace")
        # The simulated worker: the token itself, then one that is 1 less probable.
        assert -1 <= entry["logprob"] <= -1 / 64
        assert [other["logprob"] for other in entry["top_logprobs"]] == [
            entry["logprob"],
            entry["logprob"] - 1,
        ]
        assert entry["top_logprobs"][0]["bytes"] == entry["bytes"]


async def test_held_tokens_are_told_with_their_text(tmp_path: Path) -> None:
    """At every chunk the tokens told so far are at least the text told so far, and no text later."""
    async with (
        a_worker(Play(text=TEXT)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        stream = (await chat(router, stream=True, stop=["end of all"])).text

    text = spelled = b""
    for chunk in chunks(stream)[1:]:
        choice = chunk["choices"][0]
        text += choice["delta"].get("content", "").encode()
        for entry in (choice["logprobs"] or {"content": []})["content"]:
            spelled += bytes(entry["bytes"])
        assert spelled.startswith(text)
    assert text.decode() == TEXT


@pytest.mark.parametrize("chunk_size", [1, 2, 0])
async def test_a_stop_string_ends_the_entries_too(tmp_path: Path, chunk_size: int) -> None:
    """Up to the token that completes the stop, in both modes, and the usage says the same."""
    play = Play(text="one two STOP three four", chunk_size=chunk_size, obey=False)
    fields: dict[str, Any] = {"stop": ["STOP"]}
    async with (
        a_worker(play) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        whole = (await chat(router, **fields)).json()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        stream = (await chat(router, **fields, **options)).text

    *parts, usage = chunks(stream)
    entries = whole["choices"][0]["logprobs"]["content"]
    told = [p["choices"][0]["logprobs"] for p in parts]
    assert [e for each in told if each for e in each["content"]] == entries
    assert b"".join(bytes(e["bytes"]) for e in entries).decode().endswith("STOP")
    assert len(entries) == whole["usage"]["completion_tokens"]
    assert usage["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


async def test_nobody_gets_logprobs_unasked(tmp_path: Path) -> None:
    """The worker is not asked for them, and its prefix cache stays in use."""
    async with (
        a_worker(Play(text=TEXT)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        plain = (await chat(router, logprobs=False)).json()
        await chat(router)

    assert plain["choices"][0]["logprobs"] is None
    assert [r.return_logprob for r in worker.requests] == [False, True]
    assert [r.logprob_start_len for r in worker.requests] == [-1, -1]
