"""Streams that say nothing for a while, and what becomes of failures before and after."""

import json
from pathlib import Path
from typing import Any, NoReturn

import openai
import pytest

from sglr_dataplane.api import chat
from sglr_dataplane.sim.script import Incident, Play, Status
from support.router import RunningRouter, a_worker, manifest, running_router

REQUEST: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hello"}],
    "stream": True,
}
SILENCE = 0.05
"""Seconds after which these routers break a silence."""
INTERNAL = Status(code="INTERNAL", message="why")


async def post(router: RunningRouter, **fields: Any) -> Any:
    """Return the router's answer to a streamed chat request."""
    return await router.http.post("/v1/chat/completions", json={**REQUEST, **fields})


def frames(body: str) -> list[str]:
    """Return the frames of a stream."""
    return body.split("\n\n")[:-1]


async def test_a05_silence_is_broken_by_comments(tmp_path: Path) -> None:
    """Before the first token and between tokens; the text is whole, and all else is data."""
    play = Play(text="one two", delays=("200ms", "200ms"))
    async with (
        a_worker(play) as worker,
        running_router(tmp_path, manifest(worker.address), keepalive=SILENCE) as router,
    ):
        answer = await post(router)

    said = frames(answer.text)
    comments = [at for at, frame in enumerate(said) if frame == ": keep-alive"]
    chunks = [json.loads(f[6:]) for f in said[:-1] if f != ": keep-alive"]
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert comments[0] == 0
    assert any(said[at - 1].startswith("data: ") for at in comments[1:])
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "one two"
    assert said[-1] == "data: [DONE]"


async def test_a05_the_sdk_reads_over_comments(tmp_path: Path) -> None:
    """openai-python gives the text as if nothing had happened."""
    async with (
        a_worker(Play(text="one two", first_delay="200ms")) as worker,
        running_router(tmp_path, manifest(worker.address), keepalive=SILENCE) as router,
        router.sdk() as sdk,
    ):
        stream = await sdk.chat.completions.create(**REQUEST)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert text == "one two"


async def test_a05_answers_in_one_piece_get_no_comments(tmp_path: Path) -> None:
    """JSON stays JSON, however long it takes."""
    async with (
        a_worker(Play(text="one two", first_delay="200ms")) as worker,
        running_router(tmp_path, manifest(worker.address), keepalive=SILENCE) as router,
    ):
        answer = await post(router, stream=False)

    assert answer.json()["choices"][0]["message"]["content"] == "one two"


async def test_a_failure_before_any_byte_has_its_status(tmp_path: Path) -> None:
    """Nothing was sent, not even a comment: the HTTP status tells."""
    play = Play(text="x", incidents=(Incident(after=0, status=INTERNAL),))
    async with (
        a_worker(play) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = await post(router)

    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "worker_error"


async def test_a_failure_after_a_keepalive_is_an_error_frame(tmp_path: Path) -> None:
    """The status is sent with the comment: an error frame and [DONE], counted as failed."""
    play = Play(ids=(), first_delay="200ms", complete="missing")
    async with (
        a_worker(play) as worker,
        running_router(tmp_path, manifest(worker.address), keepalive=SILENCE) as router,
    ):
        answer = await post(router)
        metrics = (await router.http.get("/metrics")).text

    comment, *_, error, done = frames(answer.text)
    assert answer.status_code == 200
    assert comment == ": keep-alive"
    assert json.loads(error[6:])["error"]["code"] == "truncated_stream"
    assert done == "data: [DONE]"
    assert 'outcome="truncated_stream",route="/v1/chat/completions"' in metrics


async def test_a_fault_of_ours_after_a_keepalive_is_an_error_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that keeps the answer from being told at all."""

    def broken(*_: object) -> NoReturn:
        raise ZeroDivisionError

    monkeypatch.setattr(chat, "choices_of", broken)
    async with (
        a_worker(Play(text="one", first_delay="200ms")) as worker,
        running_router(tmp_path, manifest(worker.address), keepalive=SILENCE) as router,
    ):
        answer = await post(router)

    comment, *_, error, done = frames(answer.text)
    assert comment == ": keep-alive"
    assert json.loads(error[6:])["error"]["code"] == "internal_error"
    assert done == "data: [DONE]"


async def test_another_worker_is_tried_after_a_keepalive(tmp_path: Path) -> None:
    """A comment is no content: the request is still good for a second worker."""
    dying = Play(text="never", delays=("150ms", "0s"), incidents=(Incident(after=0, die="exit"),))
    slow = Play(text="alive", first_delay="200ms")
    async with (
        a_worker(dying) as one,
        a_worker(slow) as two,
        running_router(tmp_path, manifest(one.address, two.address), keepalive=SILENCE) as router,
        router.sdk() as sdk,
    ):
        texts = []
        for _ in range(2):
            stream = await sdk.chat.completions.create(**REQUEST)
            texts.append("".join([c.choices[0].delta.content or "" async for c in stream]))

    assert texts == ["alive", "alive"]


async def test_the_first_token_is_timed_without_keepalives(tmp_path: Path) -> None:
    """The metric counts from arrival to content, not to the first byte."""
    async with (
        a_worker(Play(text="late", first_delay="300ms")) as worker,
        running_router(tmp_path, manifest(worker.address), keepalive=SILENCE) as router,
    ):
        await post(router)
        await post(router, stream=False)
        metrics = (await router.http.get("/metrics")).text

    seconds = float(metrics.split('sglr_time_to_first_token_seconds_sum{model="m"} ')[1].split()[0])
    assert 'sglr_time_to_first_token_seconds_count{model="m"} 1.0' in metrics
    assert 0.25 < seconds < 10


async def test_a_failed_stream_after_a_keepalive_raises_in_the_sdk(tmp_path: Path) -> None:
    """openai-python raises APIError although the status was 200."""
    play = Play(text="x", first_delay="150ms", chunk_size=0, complete="missing")
    async with (
        a_worker(play) as worker,
        running_router(tmp_path, manifest(worker.address), keepalive=SILENCE) as router,
        router.sdk() as sdk,
    ):
        with pytest.raises(openai.APIError, match="finished"):
            async for _ in await sdk.chat.completions.create(**REQUEST):
                pass
