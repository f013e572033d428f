"""Bad input: a clear refusal in OpenAI's envelope, and nothing of it reaches a worker."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.config import Limits
from sglr_dataplane.sim.script import Play
from sglr_dataplane.sim.worker import SimWorker
from support.router import DEMO_MODEL, RunningRouter, a_worker, manifest, running_router

PATH = "/v1/chat/completions"
JSON = {"content-type": "application/json"}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[RunningRouter, SimWorker]]:
    """A ready router over one worker; bodies may have 1 MiB."""
    limits = Limits(max_body_bytes=2**20)
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address), limits=limits) as router,
    ):
        yield router, worker


def request(**changes: Any) -> dict[str, Any]:
    """Return a good chat request with *changes*."""
    return {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **changes}


def message(**changes: Any) -> dict[str, Any]:
    """Return a request whose only message has *changes*."""
    return request(messages=[{"role": "user", "content": "Hi", **changes}])


def _error(answer: Any) -> Any:
    """Return the error of an answer, whose shape must be the envelope's."""
    error = answer.json()["error"]
    assert answer.headers["content-type"] == "application/json"
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].endswith(".")
    return error


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b"", None, "JSON"),
        (b"{", None, "JSON"),
        (b"[]", None, "object"),
        (b"\xff\xfe", None, "UTF-8"),
        (b'{"model":"m","messages":[{"role":"user","content":"\xc3\x28"}]}', None, "UTF-8"),
        (json.dumps(request(temperature=float("nan"))).encode(), None, "JSON"),
        (b"[" * 100_000, None, ""),
        (b'{"messages":[{"role":"user","content":"Hi"}]}', "model", "model"),
        (b'{"model":"m"}', "messages", "messages"),
        (json.dumps(request(messages=[])).encode(), "messages", "messages"),
        (json.dumps(request(messages="Hi")).encode(), "messages", "messages"),
        (json.dumps(message(role="robot")).encode(), "messages[0].role", "robot"),
        (json.dumps(message(content=7)).encode(), "messages[0].content", "content"),
        (json.dumps(request(max_tokens="5")).encode(), "max_tokens", "max_tokens"),
        (json.dumps(request(max_tokens=0)).encode(), "max_tokens", "max_tokens"),
        (json.dumps(request(temperature=3)).encode(), "temperature", "temperature"),
        (json.dumps(request(stop=[""])).encode(), "stop[0]", "stop"),
        (json.dumps(request(n=0)).encode(), "n", "n"),
        (json.dumps(request(logit_bias={"abc": 1})).encode(), "logit_bias", "'abc'"),
        (json.dumps(request(logit_bias={"99999999": 1})).encode(), "logit_bias", "99999999"),
        (json.dumps(message(content="\ud800")).encode(), None, "messages[0].content"),
        (json.dumps(message(content="a\0b")).encode(), "messages[0].content", "NUL"),
        (
            json.dumps(request(stream_options={"include_usage": True})).encode(),
            "stream_options",
            "",
        ),
        (json.dumps(request(chat_template="{{ 1 }}")).encode(), "chat_template", "chat_template"),
        (json.dumps(request(tool_choice="required")).encode(), "tool_choice", "tools"),
    ],
)
async def test_a34_a_bad_body_is_a_400_that_names_the_place(
    served: tuple[RunningRouter, SimWorker], body: bytes, param: str | None, words: str
) -> None:
    """The message says what was wrong, param says where; no worker hears of it."""
    router, worker = served
    answer = await router.http.post(PATH, content=body, headers=JSON)

    error = _error(answer)
    assert answer.status_code == 400, error
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param, error
    assert words in error["message"]
    assert worker.requests == []


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "code"),
    [
        ("POST", "/v1/nowhere", JSON, 404, "unknown_url"),
        ("GET", "/v1", {}, 404, "unknown_url"),
        ("GET", PATH, {}, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", {}, 405, "method_not_allowed"),
        ("POST", PATH, {"content-type": "text/plain"}, 415, "unsupported_media_type"),
        ("POST", PATH, {**JSON, "content-encoding": "gzip"}, 415, "unsupported_media_type"),
    ],
)
async def test_a34_other_refusals_have_the_same_envelope(
    served: tuple[RunningRouter, SimWorker],
    method: str,
    path: str,
    headers: dict[str, str],
    status: int,
    code: str,
) -> None:
    """Unknown paths, methods and media types are JSON too."""
    router, worker = served
    answer = await router.http.request(method, path, headers=headers, content=b"{}")

    assert (answer.status_code, _error(answer)["code"]) == (status, code)
    assert worker.requests == []


async def test_a34_an_unknown_model_is_a_404(served: tuple[RunningRouter, SimWorker]) -> None:
    """The name is in the message; the code is the one that clients match."""
    router, worker = served
    answer = await router.http.post(PATH, json=request(model="gpt-9"))

    error = _error(answer)
    assert (answer.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert "gpt-9" in error["message"]
    assert worker.requests == []


@pytest.mark.parametrize("chunked", [False, True])
async def test_a39_a_body_over_the_limit_is_a_413(
    served: tuple[RunningRouter, SimWorker], chunked: bool
) -> None:
    """With or without a declared length; the limit is named and nothing reaches a worker."""
    router, worker = served
    size = 2**20 + 1

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b" " * 2**16

    answer = await router.http.post(
        PATH, content=pieces() if chunked else b" " * size, headers=JSON
    )

    error = _error(answer)
    assert (answer.status_code, error["code"]) == (413, "request_too_large")
    assert str(2**20) in error["message"]
    assert worker.requests == []


@pytest.mark.parametrize(("limit", "code"), [(2**25, "request_too_large"), (2**26, None)])
async def test_a39_one_limit_decides_and_nothing_below_it(
    tmp_path: Path, limit: int, code: str | None
) -> None:
    """40 MB that come piece by piece are read where the limit is higher, and by no other rule refused."""
    text = json.dumps(message(content="Hello")).encode()

    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 10**6
            await asyncio.sleep(0.002)
        yield text

    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(
            tmp_path, manifest(worker.address), limits=Limits(max_body_bytes=limit)
        ) as router,
    ):
        answer = await router.http.post(PATH, content=slowly(), headers=JSON)

    assert answer.status_code == (200 if code is None else 413)
    assert answer.json().get("error", {}).get("code") == code
    assert len(worker.requests) == (code is None)


async def test_a39_a_40_mb_body_is_refused_by_default(tmp_path: Path) -> None:
    """The default limit stops it, and the router goes on serving."""
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        body = json.dumps(message(content="x" * 40_000_000))
        large = await router.http.post(PATH, content=body, headers=JSON)
        small = await router.http.post(PATH, json=request())

    assert large.status_code == 413
    assert small.status_code == 200
    assert len(worker.requests) == 1


async def test_a28_a_template_refusal_is_a_400_in_its_words(
    tmp_path: Path, served: tuple[RunningRouter, SimWorker]
) -> None:
    """What the template says against the messages reaches the client; nothing reaches a worker."""
    router, worker = served
    folder = tmp_path / "strict"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((DEMO_MODEL / name).read_bytes())
    (folder / "chat_template.jinja").write_text(
        "{{ raise_exception('Roles must alternate: user, assistant, user.') }}"
    )
    router.manifest.write_text(manifest(worker.address, tokenizer=folder))
    answer = await router.http.post(PATH, json=request())
    while answer.status_code != 400:
        answer = await router.http.post(PATH, json=request())
    before = len(worker.requests)
    again = await router.http.post(PATH, json=request())

    error = _error(again)
    assert error["message"] == "Roles must alternate: user, assistant, user."
    assert error["param"] == "messages"
    assert len(worker.requests) == before


async def test_a_prompt_over_the_workers_limit_is_a_400(
    served: tuple[RunningRouter, SimWorker],
) -> None:
    """The router counts the tokens itself, with the words that agents match on."""
    router, worker = served
    answer = await router.http.post(PATH, json=message(content="word " * 9000))

    error = _error(answer)
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert (
        "maximum context length is 8192 tokens, of which a prompt may have 8185" in error["message"]
    )
    assert worker.requests == []
