"""Nothing inside gets out: no address, path, key or word of anybody in errors, headers or logs."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from sglr_dataplane.log import JsonFormatter
from sglr_dataplane.sim.script import Incident, Play, Rule, Script, Status, When
from support.router import DEMO_MODEL, RunningRouter, eventually, running_router
from support.sim import sim_worker

CALLER, WORKER_KEY, ADMIN = "sk-CALLER-SECRET", "sk-WORKER-SECRET", "sk-ADMIN-SECRET"
WORDS, ANSWER = "PROMPT-MARKER", "ANSWER-MARKER"
ECHO = f"10.9.8.7:30000 authorization: Bearer {WORKER_KEY} {WORDS} /srv/models/x"
"""What a worker may say of itself in an error."""


def plays() -> Script:
    """Return a worker that ends in every way that the wire has, by what the prompt asks for."""
    ways = {
        "CUT": Incident(after=1, status=Status(code="INTERNAL", message=ECHO)),
        "FAIL": Incident(status=Status(code="INTERNAL", message=ECHO)),
        "REFUSE": Incident(status=Status(code="INVALID_ARGUMENT", message=ECHO)),
        "FULL": Incident(status=Status(code="RESOURCE_EXHAUSTED", message=f"queue is full {ECHO}")),
        "GONE": Incident(status=Status(code="UNAVAILABLE", message=ECHO)),
        "AUTH": Incident(status=Status(code="UNAUTHENTICATED", message=ECHO)),
        "DENIED": Incident(status=Status(code="PERMISSION_DENIED", message=ECHO)),
        "LATE": Incident(status=Status(code="DEADLINE_EXCEEDED", message=ECHO)),
        "RESET": Incident(after=1, die="reset"),
        "HANG": Incident(hang=True),
    }
    rules = [
        Rule(when=When(user=f"{way} "), play=Play(text=f"{ANSWER} and more", incidents=(incident,)))
        for way, incident in ways.items()
    ]
    return Script(rules=(*rules, Rule(play=Play(text=ANSWER))))


def a_backend(name: str, model: str, port: int, tokenizer: Path, key: Path) -> dict[str, Any]:
    """Return a backend over one worker."""
    return {
        "apiVersion": "sglr.dev/v1alpha1",
        "kind": "SGLangBackend",
        "metadata": {"name": name},
        "spec": {
            "model": {"name": model},
            "tokenizer": {"path": str(tokenizer)},
            "workers": {"static": {"endpoints": [{"host": "127.0.0.1", "port": port}]}},
            "workerAuth": {"apiKeyFile": str(key)},
            "timeouts": {"connect": "300ms", "firstToken": "600ms", "streamIdle": "600ms"},
            "healthCheck": {"interval": "200ms"},
            "retry": {"attempts": 0},
            "outlierDetection": {"consecutiveFailures": 1000, "minimumRequests": 10000},
        },
    }


@contextmanager
def a_dead_port() -> Iterator[int]:
    """Return a port that refuses connections."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@asynccontextmanager
async def a_router(
    folder: Path, *, alone: bool = False
) -> AsyncIterator[tuple[RunningRouter, set[str]]]:
    """Return a router of a good, a dead and a broken model, and what nobody may be told.

    With *alone*, of the good one alone: for requests that name no model.
    """
    key, keys, admin = folder / "worker.key", folder / "keys.yaml", folder / "admin.token"
    key.write_text(WORKER_KEY)
    keys.write_text(f"keys: [{{name: team-a, key: {CALLER}, requestsPerMinute: 500}}]")
    admin.write_text(ADMIN)
    async with sim_worker(plays(), model_name="m") as worker:
        with a_dead_port() as dead:
            port = int(worker.address.rpartition(":")[2])
            documents = [
                a_backend("good", "m", port, DEMO_MODEL, key),
                a_backend("dead", "dead", dead, DEMO_MODEL, key),
                a_backend("broken", "broken", port, folder / "no-such-folder", key),
            ]
            text = yaml.safe_dump_all(documents[: 1 if alone else None])
            async with running_router(folder, text, keys=str(keys)) as router:
                inside = {
                    *(CALLER, WORKER_KEY, ADMIN, "SECRET", "127.0.0.1", "10.9.8.7", "/srv/models"),
                    *(str(port), str(dead), str(folder), str(DEMO_MODEL), "no-such-folder"),
                    *("Traceback", "site-packages", ".py"),
                }
                yield router, inside


REQUESTS: list[dict[str, Any]] = [
    *({"content": f"{way} {WORDS}"} for way in ("CUT", "FAIL", "REFUSE", "FULL", "GONE", "AUTH")),
    *({"content": f"{way} {WORDS}"} for way in ("DENIED", "LATE", "RESET", "HANG", "fine")),
    {"content": WORDS, "model": "dead"},
    {"content": WORDS, "model": "broken"},
    {"content": WORDS, "model": f"unknown-{WORDS[:6]}"},
    {"content": WORDS, "temperature": 99},
    {"content": WORDS, "tools": "none"},
]
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions", "/generate")


def bodies(path: str) -> list[dict[str, Any]]:
    """Return a body for each of the requests, as *path* wants it, streamed and whole."""
    found: list[dict[str, Any]] = []
    for stream in (False, True):
        for request in REQUESTS:
            fields = {k: v for k, v in request.items() if k != "content"}
            body = {"model": "m", "stream": stream, "max_tokens": 20, **fields}
            content = request["content"]
            if path == "/v1/responses":
                body |= {"input": content}
                del body["max_tokens"]
            elif path == "/v1/completions":
                body |= {"prompt": content}
            elif path == "/generate":
                body = {"text": content, "stream": stream}
            else:
                body |= {"messages": [{"role": "user", "content": content}]}
            found.append(body)
    return found


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.timeout(60)
async def test_no_error_and_no_header_tells_of_the_inside(tmp_path: Path, path: str) -> None:
    """Every way to fail, on every path that generates: sentences of ours alone."""
    async with a_router(tmp_path, alone=path == "/generate") as (router, inside):
        answers = [await asked(router, path, body) for body in bodies(path)]
        others = [
            await router.http.post(path, json={}, headers={"x-api-key": "sk-CALLER-SECRE"}),
            await router.http.post(path, content=b"{", headers={"x-api-key": CALLER}),
            await router.http.get(path, headers={"x-api-key": CALLER}),
            await router.http.get("/nothing", headers={"x-api-key": CALLER}),
            await router.http.get("/v1/models", headers={"x-api-key": CALLER}),
        ]
    statuses = {answer.status_code for answer in answers}

    assert {200, 400} < statuses
    for answer in (*answers, *others):
        assert told(answer, inside) == []
        if answer.status_code != 200:
            assert WORDS not in answer.text


async def asked(router: RunningRouter, path: str, body: dict[str, Any]) -> httpx2.Response:
    """Return the answer to *body*, asked when the good worker is up again."""

    async def is_up() -> bool:
        backends = (await router.http.get("/readyz")).json()["backends"]
        return bool(backends["default/good"]["ready_workers"])

    await eventually(is_up)
    return await router.http.post(path, json=body, headers={"x-api-key": CALLER})


def told(answer: httpx2.Response, inside: set[str]) -> list[str]:
    """Return what of *inside* an answer tells."""
    date = {"date", "content-length"}  # digits of other things
    headers = [f"{name}: {value}" for name, value in answer.headers.items() if name not in date]
    said = "\n".join([*headers, answer.text])
    # Ports are numbers that ids and times may hold by chance: they are looked for as ports.
    return [word for word in inside if (f":{word}" if word.isdigit() else word) in said]


@pytest.mark.timeout(60)
async def test_no_log_line_holds_a_key_or_a_word_of_anybody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At DEBUG, through every failure, a reload and a scrape."""
    caplog.set_level(logging.DEBUG, logger="sglr_dataplane")
    async with a_router(tmp_path) as (router, _):
        for body in bodies(PATHS[0]):
            await router.http.post(
                PATHS[0], json=body, headers={"authorization": f"Bearer {CALLER}"}
            )
        router.manifest.write_text("not: [yaml")
        await eventually(lambda: "manifest" in caplog.text)
        scrape = (await router.http.get("/metrics")).text
    lines = [
        JsonFormatter().format(record)
        for record in caplog.records
        if record.name.startswith("sglr_dataplane.") and ".sim" not in record.name
    ]
    requests = [json.loads(line) for line in lines if '"message":"request"' in line]
    said = "\n".join([*lines, scrape])

    assert len(requests) >= len(bodies(PATHS[0]))
    for secret in (CALLER, WORKER_KEY, "SECRET", WORDS, ANSWER, "10.9.8.7", "/srv/models"):
        assert secret not in said
