"""The client of one HTTP worker: what it asks for itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.openai_http import OpenAIEngine, openai_engine
from sglr_dataplane.errors import DeadlineExceededError, WorkerError, WorkerUnavailableError
from sglr_dataplane.job import Forward, Job
from support.h1peer import Peer, a_peer


def a_card(id: str, **fields: Any) -> dict[str, Any]:
    """Return an entry of a list of models."""
    return {"id": id, "object": "model", "owned_by": "vllm", **fields}


@asynccontextmanager
async def an_engine(
    answers: dict[str, tuple[int, Any]], *names: str, **deadlines: float
) -> AsyncGenerator[tuple[OpenAIEngine, Peer]]:
    """Return the engine of a worker with *answers* by path, status and JSON; none: silence."""

    async def talk(peer: Peer, reader: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        while True:
            head = await peer.request(reader)
            path = head.split(b" ")[1].decode()
            if path not in answers:
                await reader.read(1)
                return
            status, document = answers[path]
            body = json.dumps(document).encode()
            w.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))

    async with a_peer(talk) as peer:
        engine = openai_engine(
            f"127.0.0.1:{peer.port}", names=names or ("m",), deadlines=Deadlines(**deadlines)
        )
        try:
            yield engine, peer
        finally:
            await engine.aclose()


def models(*cards: dict[str, Any]) -> dict[str, tuple[int, Any]]:
    """Return the answer of a worker that lists *cards*."""
    return {"/v1/models": (200, {"object": "list", "data": list(cards)})}


@pytest.mark.parametrize(
    ("status", "serves"), [(200, True), (204, True), (404, True), (503, False), (500, False)]
)
async def test_health_is_what_its_path_says(status: int, serves: bool) -> None:
    """503 while it loads; no such path says nothing."""
    async with an_engine({"/health": (status, {})}) as (engine, _):
        assert await engine.is_serving() is serves


async def test_a_probe_ends() -> None:
    """At its own deadline, by nobody's listening, and by a key that is not accepted."""
    async with an_engine({}, probe=0.05) as (engine, _):
        with pytest.raises(DeadlineExceededError, match=r"a health check within 0\.05 s"):
            await engine.is_serving()
    async with an_engine({"/health": (401, {})}) as (engine, _):
        with pytest.raises(WorkerError, match="unauthorised"):
            await engine.is_serving()
    lost: list[int] = []
    engine.on_lost = lambda: lost.append(1)
    with pytest.raises(WorkerUnavailableError):
        await engine.is_serving()
    gone = openai_engine("127.0.0.1:1", names=("m",))
    gone.on_lost = lambda: lost.append(1)
    with pytest.raises(WorkerUnavailableError):
        await gone.is_serving()
    await gone.aclose()
    assert lost == [1]


@pytest.mark.parametrize(
    ("cards", "name"),
    [
        ((a_card("other"), a_card("m", max_model_len=9)), "m"),
        ((a_card("other"), a_card("local", root="m", max_model_len=9)), "local"),
        ((a_card("other", max_model_len=9),), "other"),
    ],
)
async def test_the_model_is_found_by_its_id_or_its_root(
    cards: tuple[dict[str, Any], ...], name: str
) -> None:
    """Else what is there is told, so that operators read what it serves."""
    async with an_engine(models(*cards)) as (engine, _):
        facts = await engine.facts()

    assert (facts.served_model_name, facts.context_length) == (name, 9)
    assert facts.max_running_requests is None


async def test_adapters_are_entries_with_a_parent() -> None:
    """As vLLM and SGLang list them."""
    cards = (a_card("m", parent=None), a_card("sql", parent="m"))
    async with an_engine(models(*cards)) as (engine, _):
        assert (await engine.facts()).adapters == (("sql", "sql"),)


async def test_sglang_says_how_much_it_runs_at_once() -> None:
    """Under either name of the path; others are not asked."""
    answers = models(a_card("m") | {"owned_by": "sglang"})
    answers |= {
        "/server_info": (404, {}),
        "/get_server_info": (200, {"max_running_requests": 7, "version": "0.5.23"}),
    }
    async with an_engine(answers) as (engine, _):
        facts = await engine.facts()

    assert (facts.max_running_requests, facts.version) == (7, "0.5.23")


@pytest.mark.parametrize("document", [{}, [], {"data": []}, {"data": "x"}, {"data": [{"id": ""}]}])
async def test_a_list_of_nothing_is_an_error(document: Any) -> None:
    """The worker is not ready to say."""
    async with an_engine({"/v1/models": (200, document)}) as (engine, _):
        with pytest.raises(WorkerError, match="lists no model"):
            await engine.facts()


@pytest.mark.parametrize(
    ("asked", "adapter", "sent"),
    [("m", "", "m"), ("alias", "", "m"), ("m:sql", "sql", "sql"), ("other", "", "other")],
)
async def test_the_model_has_the_worker_s_name(asked: str, adapter: str, sent: str) -> None:
    """An alias becomes it, an adapter its own; a name that the worker lists stays."""
    cards = (a_card("m"), a_card("other"), a_card("sql", parent="m"))
    async with an_engine(models(*cards), "m", "alias") as (engine, _):
        await engine.facts()
        body = json.dumps({"model": asked}).encode()
        job = Job("1", asked, (0,), adapter=adapter, forward=Forward("/v1/x", body))
        request = engine.generate(job)._request

    assert json.loads(request.partition(b"\r\n\r\n")[2])["model"] == sent
