"""Callers' keys as docs/keys.md has them: what each field does, and where a key does not go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from sglr_dataplane.api.auth import caller_of
from sglr_dataplane.fleet.fair_queue import Priority
from sglr_dataplane.fleet.keys import Key, Keys
from sglr_dataplane.fleet.rates import UNLIMITED, Rates
from sglr_dataplane.sim.script import Play, Script
from support.exchanges import an_exchange
from support.router import RunningRouter, a_worker, eventually, manifest, running_router
from support.sim import sim_worker

PATH = "/v1/chat/completions"
PAGE = Path(__file__).parents[3] / "docs" / "keys.md"
REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
SLOW = Play(text=" ".join(["word"] * 40), delay="100ms")


def a_file(folder: Path, text: str) -> str:
    """Return the path of a keys' file that says *text*."""
    path = folder / "keys.yaml"
    path.write_text(text)
    return str(path)


async def post(router: RunningRouter, key: str, path: str = PATH, **fields: Any) -> httpx2.Response:
    """Return the answer to a request with *key*."""
    return await router.http.post(path, json={**REQUEST, **fields}, headers={"x-api-key": key})


def test_the_documented_file_is_what_the_page_says(tmp_path: Path) -> None:
    """Its example is read as it stands there: two callers, one of them with two keys."""
    example = next(part for part in PAGE.read_text().split("```") if part.startswith("yaml\nkeys:"))
    keys = Keys(a_file(tmp_path, example.removeprefix("yaml")))
    keys.load()
    old, new, batch = (keys.find(f"sk-{each}") for each in ("team-a-2026", "team-a-2027", "batch"))

    assert old is not None
    assert new is not None
    assert batch is not None
    assert (old.name, new.name, batch.name) == ("team-a", "team-a", "batch")
    assert old.models == new.models == frozenset({"qwen", "qwen-sql"})
    assert (old.priority, old.max_inflight) == (Priority.HIGH, 32)
    assert old.rates == Rates(600, 1_000_000, 200_000)
    assert (new.priority, new.max_inflight, new.rates) == (Priority.NORMAL, None, UNLIMITED)
    assert (batch.priority, batch.models) == (Priority.LOW, None)


def test_the_page_has_every_field_and_no_other() -> None:
    """A field that is not documented does not exist."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    documented = {row.split("`")[1] for row in rows}

    assert documented == {
        *("name", "key", "sha256", "models", "priority", "maxInflight"),
        *("requestsPerMinute", "inputTokensPerMinute", "outputTokensPerMinute"),
    }


async def test_a_key_has_only_so_many_requests_under_way(tmp_path: Path) -> None:
    """Both keys of one caller count together, to the end of the stream; another caller is free."""
    text = "keys: [{name: a, key: one, maxInflight: 2}, {name: a, key: two, maxInflight: 2},"
    keys = a_file(tmp_path, f"{text} {{name: b, key: other}}]")
    body = {**REQUEST, "stream": True}
    async with (
        a_worker(SLOW, SLOW, Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address), keys=keys) as router,
        router.http.stream("POST", PATH, json=body, headers={"x-api-key": "one"}) as first,
        router.http.stream("POST", PATH, json=body, headers={"x-api-key": "two"}) as second,
    ):
        refused = await post(router, "two")
        anthropic = await post(router, "one", "/v1/messages", max_tokens=5)
        free = await post(router, "other")
        await first.aclose()

        async def has_room() -> bool:
            return (await post(router, "one")).status_code == 200

        await eventually(has_room)
        await second.aclose()

    assert (first.status_code, second.status_code, free.status_code) == (200, 200, 200)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert refused.headers["retry-after"] == "1"
    assert anthropic.json()["error"]["type"] == "rate_limit_error"
    assert "a" not in refused.json()["error"]["message"].split()


async def test_every_way_a_request_ends_gives_its_place_back(tmp_path: Path) -> None:
    """Well ones, refused ones, and one whose client leaves: the one place is free after each."""
    keys = a_file(tmp_path, "keys: [{name: a, key: one, maxInflight: 1}]")
    async with (
        a_worker(*[Play(text="Hi.")] * 3, SLOW, Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address), keys=keys) as router,
    ):
        found = [
            (await post(router, "one", **fields)).status_code
            for fields in ({}, {"model": "x"}, {"temperature": 9}, {"max_tokens": 1}, {})
        ]
        body, headers = {**REQUEST, "stream": True}, {"x-api-key": "one"}
        async with router.http.stream("POST", PATH, json=body, headers=headers) as left:
            taken = await post(router, "one")

        async def is_free() -> bool:
            return (await post(router, "one")).status_code == 200

        await eventually(is_free)

    assert found == [200, 404, 400, 200, 200]
    assert (left.status_code, taken.status_code) == (200, 429)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PATH, REQUEST),
        ("/v1/completions", {"model": "m", "prompt": "Hello"}),
        ("/v1/messages", {**REQUEST, "max_tokens": 5}),
        ("/v1/messages/count_tokens", REQUEST),
        ("/v1/responses", {"model": "m", "input": "Hello"}),
        ("/v1/embeddings", {"model": "m", "input": "Hello"}),
        ("/v1/tokenize", {"model": "m", "prompt": "Hello"}),
        ("/v1/detokenize", {"model": "m", "tokens": [1]}),
        ("/generate", {"text": "Hello"}),
    ],
)
async def test_a_model_that_a_key_may_not_use_is_nowhere_there(
    router_with_limited_key: RunningRouter, path: str, body: dict[str, Any]
) -> None:
    """404 on every path, in the words of a model that does not exist; nothing reaches a worker."""
    answers = [
        await router_with_limited_key.http.post(
            path, json={**body, "model": model}, headers={"x-api-key": "limited"}
        )
        for model in ("m", "no-such")
    ]
    sentences = [answer.json()["error"]["message"] for answer in answers]

    assert [answer.status_code for answer in answers] == [404, 404]
    assert sentences[0].replace("'m'", "'no-such'") == sentences[1]


@pytest.fixture
async def router_with_limited_key(tmp_path: Path) -> Any:
    """Return a router of model ``m`` with a key that may use its alias alone."""
    keys = a_file(tmp_path, "keys: [{name: b, key: limited, models: [org/alias]}]")
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address), keys=keys) as router,
    ):
        yield router
        assert worker.requests == []


async def test_nothing_of_a_client_reaches_a_worker_and_nothing_of_a_worker_a_client(
    tmp_path: Path,
) -> None:
    """Of the headers: a worker gets the transport's own, a client the router's own."""
    keys = a_file(tmp_path, "keys: [{name: a, key: sk-SECRET}]")
    headers = {
        "authorization": "Bearer sk-SECRET",
        "cookie": "session=1",
        "connection": "keep-alive, x-hop",
        "x-hop": "1",
        "te": "trailers",
        "x-forwarded-for": "10.1.2.3",
        "x-custom": "word",
        "accept-language": "fr",
    }
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address), keys=keys) as router,
    ):
        answers = [
            await router.http.post(PATH, json={**REQUEST, "stream": stream}, headers=headers)
            for stream in (False, True)
        ]
        got = [name for received in worker.received for name, _ in received.metadata]
        values = [value for received in worker.received for _, value in received.metadata]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert set(got) <= {"user-agent", "grpc-accept-encoding", "accept-encoding"}
    assert not any("SECRET" in value or "word" in value for value in values)
    known = {
        *("content-type", "content-length", "date", "x-request-id", "transfer-encoding"),
        *("cache-control", "x-accel-buffering"),
    }
    assert {name for answer in answers for name in answer.headers} <= known


@pytest.mark.parametrize(
    ("highest", "asked", "given"),
    [
        (Priority.HIGH, "high", Priority.HIGH),
        (Priority.HIGH, None, Priority.NORMAL),
        (Priority.HIGH, "LOW", Priority.LOW),
        (Priority.NORMAL, "high", Priority.NORMAL),
        (Priority.LOW, None, Priority.LOW),
        (Priority.LOW, "high", Priority.LOW),
        (None, "high", Priority.NORMAL),
        (None, "low", Priority.LOW),
        (Priority.HIGH, "urgent", Priority.NORMAL),
    ],
)
async def test_a_request_is_as_urgent_as_its_key_allows(
    highest: Priority | None, asked: str | None, given: Priority
) -> None:
    """What it asks for, up to the key's own; without a key it may step back, but not ahead."""
    key = Key("a", b"", None, highest, UNLIMITED) if highest is not None else None
    headers = [(b"x-sglr-priority", asked.encode())] if asked is not None else []

    exchange = an_exchange(headers=headers)
    exchange.key = key
    caller = caller_of(exchange)

    assert caller.priority is given


async def test_embeddings_count_on_their_callers_rates(tmp_path: Path) -> None:
    """They are requests like any other: the second of one a minute is refused."""
    keys = a_file(tmp_path, "keys: [{name: a, key: one, requestsPerMinute: 1}]")
    script = Script(model_info={"is_generation": False})
    async with (
        sim_worker(script, model_name="m") as worker,
        running_router(tmp_path, manifest(worker.address), keys=keys) as router,
    ):
        answers = [
            await router.http.post(
                "/v1/embeddings", json={"model": "m", "input": "a"}, headers={"x-api-key": "one"}
            )
            for _ in range(2)
        ]

    assert [answer.status_code for answer in answers] == [200, 429]


async def test_a_callers_headers_are_read_by_their_names() -> None:
    """As texts, whatever bytes they came as; of several of one name the last."""
    headers = [(b"x-a", b"1"), (b"x-a", b"\xe9"), (b"x-b", b"")]
    read = caller_of(an_exchange(headers=headers)).headers

    assert dict(read) == {"x-a": "é", "x-b": ""}
    assert (read.get("x-b"), read.get("x-c"), read.get("ü", "none")) == ("", None, "none")
    assert len(read) == 2
