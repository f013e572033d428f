"""What clients see when workers fail, and what workers see when clients leave."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import openai
import pytest

from sglr_dataplane.sim.script import CompleteStyle, Incident, Play, Rule, Script, Status
from support.router import RunningRouter, a_worker, eventually, manifest, running_router
from support.sim import sim_worker

REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
PATH = "/v1/chat/completions"


async def post(router: RunningRouter, **fields: Any) -> Any:
    """Return the router's answer to a chat request."""
    return await router.http.post(PATH, json={**REQUEST, **fields})


def frames(body: str) -> list[Any]:
    """Return the JSON of each data frame but the last, which must be ``[DONE]``."""
    *payloads, done = [frame for frame in body.split("\n\n") if frame]
    assert done == "data: [DONE]"
    return [json.loads(payload[6:]) for payload in payloads]


def text_of(payloads: list[Any]) -> str:
    """Return the content of all chunks."""
    return "".join(p["choices"][0]["delta"].get("content", "") for p in payloads if "choices" in p)


@pytest.mark.parametrize("stream", [False, True])
async def test_a01_cumulative_chunks_are_said_once(tmp_path: Path, stream: bool) -> None:
    """An engine that repeats everything so far gives the same text as one that sends increments."""
    text = "Three colors: red, green, blue."
    async with (
        a_worker(Play(text=text, cumulative=True), Play(text=text)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answers = [await post(router, stream=stream) for _ in range(2)]

    said = [
        text_of(frames(a.text)) if stream else a.json()["choices"][0]["message"]["content"]
        for a in answers
    ]
    assert said == [text, text]


@pytest.mark.parametrize("style", ["repeat_last", "all", "only", "last_only", "last_and_all"])
async def test_a02_last_tokens_arrive_once(tmp_path: Path, style: CompleteStyle) -> None:
    """Wherever the engine puts the last tokens, the client has them exactly once."""
    async with (
        a_worker(Play(text="Sure thing.", complete=style)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        streamed = frames((await post(router, stream=True)).text)

    assert text_of(streamed) == "Sure thing."
    assert streamed[-1]["choices"][0]["finish_reason"] == "stop"


async def test_a03_a_stream_without_complete_is_an_error(tmp_path: Path) -> None:
    """An end without a finish is never success: an error frame, or 502 in one piece."""
    async with (
        a_worker(Play(text="Half an ans", complete="missing")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        *chunks, error = frames((await post(router, stream=True)).text)
        whole = await post(router)

    assert text_of(chunks) == "Half an ans"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert error["error"]["code"] == "truncated_stream"
    assert whole.status_code == 502
    assert whole.json()["error"]["code"] == "truncated_stream"


@pytest.mark.parametrize(
    "incident",
    [
        Incident(after=2, status=Status(code="INTERNAL", message="secret 10.1.2.3 trace")),
        Incident(after=2, status=Status(code="UNAVAILABLE", message="10.1.2.3:30000 gone")),
        Incident(after=2, die="reset"),
        Incident(after=2, die="exit"),
    ],
    ids=["internal", "unavailable", "reset", "exit"],
)
async def test_a04_failure_after_tokens_is_an_error_frame(
    tmp_path: Path, incident: Incident
) -> None:
    """The text that came stays, then one error and [DONE]; no retry, no stop, no address."""
    # The delay lets the client have what came before: a reset throws away what was not read.
    play = Play(text="one two three four five", delay="200ms", incidents=(incident,))
    async with (
        a_worker(play) as one,
        a_worker(play) as two,
        running_router(tmp_path, manifest(one.address, two.address)) as router,
    ):
        answer = await post(router, stream=True)

    *chunks, error = frames(answer.text)
    assert answer.status_code == 200
    assert text_of(chunks).startswith("one")
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert "10.1.2.3" not in answer.text
    assert "secret" not in answer.text
    assert len(one.requests) + len(two.requests) == 1


async def test_a04_the_sdk_raises_on_a_failed_stream(tmp_path: Path) -> None:
    """openai-python raises APIError instead of taking the beginning for the answer."""
    play = Play(text="one two three", delay="200ms", incidents=(Incident(after=1, die="reset"),))
    async with (
        a_worker(play) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
        router.sdk() as sdk,
    ):
        with pytest.raises(openai.APIError):
            async for _ in await sdk.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Hello"}], stream=True
            ):
                pass


@pytest.mark.parametrize(
    ("code", "status", "error_code"),
    [
        ("INTERNAL", 502, "worker_error"),
        ("UNAVAILABLE", 503, "no_available_workers"),
        ("INVALID_ARGUMENT", 400, "invalid_request"),
        ("DEADLINE_EXCEEDED", 504, "request_timeout"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_failures_before_the_first_token_have_a_real_status(
    tmp_path: Path,
    code: Any,
    status: int,
    error_code: str,
    stream: bool,
) -> None:
    """Nothing was sent yet: streaming or not, the client gets the HTTP status and the envelope."""
    play = Play(text="x", incidents=(Incident(status=Status(code=code, message="why")),))
    async with (
        a_worker(play) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = await post(router, stream=stream)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["code"] == error_code
    assert ("retry-after" in answer.headers) == (status == 503)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_worker_that_never_begins_is_given_up_in_time(tmp_path: Path, stream: bool) -> None:
    """Streaming or not, a first token that does not come is a 504 after its own deadline."""
    async with (
        a_worker(Play(text="late", first_delay="60s")) as worker,
        running_router(
            tmp_path, manifest(worker.address) + "  timeouts: {firstToken: 300ms}\n"
        ) as router,
    ):
        answer = await post(router, stream=stream)

    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "request_timeout")
    assert "a first token within 0.3 s" in answer.json()["error"]["message"]


async def test_choices_in_one_piece_are_told_apart_when_they_come_mixed(tmp_path: Path) -> None:
    """n=2 without streaming: the worker's chunks come interleaved, each lands in its choice."""
    plays = tuple(Play(text=text, delay="5ms") for text in ("one two three", "four five six"))
    async with (
        sim_worker(Script(rules=(Rule(play=plays),)), model_name="m") as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = await post(router, n=2)

    assert [request.stream for request in worker.requests] == [True]
    assert [choice["message"]["content"] for choice in answer.json()["choices"]] == [
        "one two three",
        "four five six",
    ]
    assert answer.json()["usage"]["completion_tokens"] > 0


async def test_a14_no_worker_is_a_503_that_says_so(tmp_path: Path) -> None:
    """With every worker down: 503 with Retry-After, the model and the counts; lists still answer."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        async with running_router(tmp_path, manifest(address), ready=False) as router:
            await eventually(lambda: _recipe_is_loaded(router))
            chat = await post(router)
            models = await router.http.get("/v1/models")
            ready = await router.http.get("/readyz")
            unknown = await post(router, model="nope")

    error = chat.json()["error"]
    assert (chat.status_code, error["code"]) == (503, "no_available_workers")
    assert int(chat.headers["retry-after"]) >= 1
    assert "'m'" in error["message"]
    assert "1 known, 0 ready" in error["message"]
    assert address not in chat.text
    assert {card["id"] for card in models.json()["data"]} == {"m", "org/alias", "/leading"}
    assert ready.status_code == 503
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


async def _recipe_is_loaded(router: RunningRouter) -> bool:
    facts = (await router.http.get("/readyz")).json()["backends"]["default/backend"]
    return "tokenizer" not in (facts["problem"] or "")


@pytest.mark.parametrize("stream", [False, True])
async def test_a09_a_client_that_leaves_cancels_the_worker(tmp_path: Path, stream: bool) -> None:
    """Streaming or not, the worker's call is cancelled; nothing is aborted by id; nothing leaks."""
    play = Play(text="word " * 400, delay="20ms")
    async with (
        a_worker(play) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        reader, writer = await _open(router)
        body = json.dumps({**REQUEST, "stream": stream}).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        if stream:
            await asyncio.wait_for(reader.readuntil(b'"content":"word'), 10)
        await eventually(lambda: worker.requests)
        writer.close()
        await eventually(lambda: worker.cancelled)
        await eventually(lambda: _in_flight(router))

        metrics = (await router.http.get("/metrics")).text
    assert worker.cancelled == [worker.requests[0].request_id]
    assert worker.aborted == []
    assert 'outcome="client_closed_request"' in metrics


async def test_a09_a_client_that_leaves_before_the_first_token_cancels(tmp_path: Path) -> None:
    """Cancelled while the worker still reads the prompt."""
    async with (
        a_worker(Play(text="late", first_delay="10s")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        request = asyncio.create_task(post(router, stream=True))
        await eventually(lambda: worker.requests)
        request.cancel()
        await eventually(lambda: worker.cancelled)

    assert worker.cancelled == [worker.requests[0].request_id]


async def _open(router: RunningRouter) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = router.url.removeprefix("http://").rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def _in_flight(router: RunningRouter) -> bool:
    return "sglr_requests_in_flight 0.0" in (await router.http.get("/metrics")).text


async def test_a_router_starts_without_workers_and_becomes_ready(tmp_path: Path) -> None:
    """Not ready at first, ready with the first worker that the reloaded manifest names."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{unused.getsockname()[1]}"
        async with (
            a_worker(Play(text="hi")) as worker,
            running_router(tmp_path, manifest(nobody), ready=False) as router,
        ):
            before = await router.http.get("/readyz")
            router.manifest.write_text(manifest(nobody, worker.address))
            await router.until_ready()
            answer = await post(router)

    assert before.status_code == 503
    assert answer.json()["choices"][0]["message"]["content"] == "hi"


async def test_a_broken_edit_keeps_the_last_good_manifest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A manifest that cannot be read is reported with its path; the old one goes on serving."""
    async with (
        a_worker(Play(text="hi")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        broken = manifest(worker.address).replace("model:", "modle:")
        router.manifest.write_text(broken)
        await eventually(lambda: any("modle" in str(vars(r)) for r in caplog.records))
        during = await post(router)
        router.manifest.write_text(manifest(worker.address, model="renamed"))
        await eventually(lambda: _serves(router, "renamed"))

    assert during.status_code == 200


async def _serves(router: RunningRouter, model: str) -> bool:
    return (await router.http.get(f"/v1/models/{model}")).status_code == 200


async def test_a_wrong_model_is_not_used(tmp_path: Path) -> None:
    """A worker that serves another model gets no request, and the router is not ready."""
    async with (
        sim_worker(Script(), model_name="something-else") as worker,
        running_router(tmp_path, manifest(worker.address), ready=False) as router,
    ):
        await eventually(lambda: _recipe_is_loaded(router))
        answer = await post(router)

    assert answer.status_code == 503
    assert worker.requests == []
