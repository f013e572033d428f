"""Every API through HTTP workers: what passes, under which name, and what does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from sglr_client.testing import Fail, MockServer, Raw, Say
from sglr_dataplane.sim.script import Play
from support.http_workers import MODEL, a_chat, an_http_backend
from support.router import a_worker, eventually, manifest, running_router

JSON = "application/json"


async def test_the_model_s_name_is_the_only_thing_that_changes(tmp_path: Path) -> None:
    """An alias becomes the worker's name; numbers, escapes and unknown fields keep their bytes."""
    body = (
        b'{"model" : "alias", "temperature":0.70, "big": 12345678901234567890, "x": 1e2,\n'
        b' "messages": [ {"role":"user", "content":"caf\\u00e9 \\ud83d\\ude00"} ]}'
    )
    seen: list[bytes] = []
    with MockServer([MODEL]) as worker:
        async with running_router(tmp_path, an_http_backend(worker)) as router:
            answer = await router.http.post(
                "/v1/chat/completions", content=body, headers={"content-type": JSON}
            )
        seen = [json.dumps(worker.generations[0].body).encode()]

    assert answer.status_code == 200
    assert json.loads(seen[0]) == {**json.loads(body), "model": MODEL}


async def test_a_request_without_a_model_gets_the_only_one(tmp_path: Path) -> None:
    """As gRPC workers' models do; a null is no model either."""
    with MockServer([MODEL]) as worker:
        async with running_router(tmp_path, an_http_backend(worker)) as router:
            bodies: list[dict[str, Any]] = [{"messages": []}, {"model": None, "messages": []}]
            for body in bodies:
                await router.http.post("/v1/chat/completions", json=body)

    assert [request.body["model"] for request in worker.generations] == [MODEL, MODEL]


@pytest.mark.parametrize(
    ("path", "at_worker"),
    [
        ("/v1/embeddings", "/v1/embeddings"),
        ("/v1/rerank", "/v1/rerank"),
        ("/rerank", "/v1/rerank"),
        ("/v1/score", "/v1/score"),
        ("/score", "/v1/score"),
        ("/v1/classify", "/v1/classify"),
        ("/classify", "/classify"),
        ("/v1/tokenize", "/tokenize"),
        ("/tokenize", "/tokenize"),
        ("/v1/detokenize", "/detokenize"),
        ("/detokenize", "/detokenize"),
        ("/v1/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/generate", "/generate"),
        ("/v1/messages", "/v1/messages"),
        ("/v1/responses", "/v1/responses"),
    ],
)
async def test_every_path_is_forwarded(tmp_path: Path, path: str, at_worker: str) -> None:
    """What a worker answers there is the answer, byte for byte."""
    told = b'{ "from": "the worker", "n": 1.0 }'
    with MockServer([MODEL]) as worker:
        worker.default = Raw([told], content_type=JSON)
        async with running_router(tmp_path, an_http_backend(worker)) as router:
            answer = await router.http.post(path, json={"model": MODEL, "input": "x"})

    assert (answer.status_code, answer.content) == (200, told)
    assert answer.headers["content-type"] == JSON
    assert worker.generations[0].path == at_worker


async def test_what_a_worker_does_not_serve_is_501(tmp_path: Path) -> None:
    """FastAPI's 404 for a path is not the client's mistake, and no failure of the worker."""
    unknown = Raw([b'{"detail":"Not Found"}'], status=404, content_type=JSON)
    with MockServer([MODEL]) as worker:
        worker.default = unknown
        backend = an_http_backend(worker, outlierDetection={"consecutiveFailures": 2})
        async with running_router(tmp_path, backend) as router:
            answers = [await router.http.post("/v1/responses", json={"input": "x"}) for _ in "abc"]

    assert [answer.status_code for answer in answers] == [501] * 3
    assert answers[0].json()["error"]["code"] == "not_served"


async def test_errors_of_a_worker_are_told_in_our_envelope(tmp_path: Path) -> None:
    """Flat, nested, FastAPI's: one shape; codes that are numbers, addresses and HTML go."""
    bodies = {
        b'{"object":"error","message":"Bad n.","type":"BadRequestError","param":"n","code":400}':
            ("Bad n.", "n", "invalid_request"),
        b'{"error":{"message":"Bad n.","type":"x","param":null,"code":"bad_n"}}':
            ("Bad n.", None, "bad_n"),
        b'{"detail":[{"loc":["body","n"],"msg":"not an int","type":"int"}]}':
            ("body.n: not an int", None, "invalid_request"),
        b'{"error":"see http://10.0.0.7:30000/x"}': ("see (address)", None, "invalid_request"),
        b"<html><h1>nginx</h1></html>":
            ("The worker refused the request with status 400.", None, "invalid_request"),
    }  # fmt: skip
    with MockServer([MODEL]) as worker:
        async with running_router(tmp_path, an_http_backend(worker)) as router:
            for body, (message, param, code) in bodies.items():
                worker.play(Raw([body], status=400, content_type=JSON))
                answer = await router.http.post("/v1/chat/completions", json=a_chat())

                assert answer.status_code == 400
                assert answer.json() == {
                    "error": {
                        "message": message,
                        "type": "invalid_request_error",
                        "param": param,
                        "code": code,
                    }
                }


async def test_a38_a_prompt_that_is_too_long_has_the_code_agents_look_for(tmp_path: Path) -> None:
    """A38: vLLM's sentence passes, with context_length_exceeded, and is not tried again."""
    sentence = "This model's maximum context length is 2048 tokens. However, you requested 9000."
    with MockServer([MODEL]) as worker:
        worker.default = Fail(400, sentence)
        async with running_router(tmp_path, an_http_backend(worker)) as router:
            answer = await router.http.post("/v1/chat/completions", json=a_chat())

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert answer.json()["error"]["message"] == sentence
    assert len(worker.generations) == 1


async def test_headers_that_workers_see_are_those_of_a_list(tmp_path: Path) -> None:
    """The request's id and its trace go along; what names the client or its key does not."""
    sent = {
        "x-request-id": "abc",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "anthropic-version": "2023-06-01",
        "authorization": "Bearer secret",
        "x-api-key": "secret",
        "cookie": "secret",
        "x-forwarded-for": "192.0.2.1",
        "x-anything": "1",
    }
    with MockServer([MODEL]) as worker:
        async with running_router(tmp_path, an_http_backend(worker)) as router:
            await router.http.post("/v1/chat/completions", json=a_chat(), headers=sent)
        seen = worker.generations[0].headers

    assert set(seen) == {
        "host", "user-agent", "accept-encoding", "traceparent", "anthropic-version",
        "x-request-id", "content-type", "content-length",
    }  # fmt: skip
    assert seen["x-request-id"] == "abc"


async def test_one_router_has_backends_of_both_protocols(tmp_path: Path) -> None:
    """Each request goes to its model's workers; both are listed; each answers for itself."""
    async with a_worker(Play(text="From gRPC.")) as grpc:
        with MockServer(["h"]) as http:
            http.default = Say("From HTTP.")
            both = manifest(grpc.address) + "---\n" + an_http_backend(http, model="h")
            both = both.replace("- alias\n", "- other\n")
            async with running_router(tmp_path, both) as router:

                async def are_ready() -> bool:
                    facts = (await router.http.get("/readyz")).json()["backends"]
                    return all(each["ready"] for each in facts.values())

                await eventually(are_ready)
                texts = {}
                for model in ("m", "h", "other"):
                    answer = await router.http.post(
                        "/v1/chat/completions", json={**a_chat(), "model": model}
                    )
                    texts[model] = answer.json()["choices"][0]["message"]["content"]
                unknown = await router.http.post(
                    "/v1/chat/completions", json={**a_chat(), "model": "none"}
                )
                unnamed = await router.http.post(
                    "/v1/chat/completions", json={"messages": a_chat()["messages"]}
                )
                garbled = await router.http.post(
                    "/v1/chat/completions", content=b"{", headers={"content-type": JSON}
                )
                ids = [card["id"] for card in (await router.http.get("/v1/models")).json()["data"]]

    assert texts == {"m": "From gRPC.", "h": "From HTTP.", "other": "From HTTP."}
    assert (unknown.status_code, unnamed.status_code, garbled.status_code) == (404, 400, 400)
    assert garbled.json()["error"]["code"] == "invalid_json"
    assert {"m", "h", "other"} <= set(ids)


async def test_the_openai_sdk_reads_http_workers(tmp_path: Path) -> None:
    """Chats, streams, completions, embeddings, models and errors, by the SDK its users have."""
    with MockServer([MODEL]) as worker:
        worker.default = Say("Hello there.", reasoning="Greet.", calls=[("now", "{}")])
        async with (
            running_router(tmp_path, an_http_backend(worker)) as router,
            router.sdk() as sdk,
        ):
            asked: dict[str, Any] = {
                "model": MODEL,
                "messages": [{"role": "user", "content": "hi"}],
            }
            whole = await sdk.chat.completions.create(**asked)
            stream = await sdk.chat.completions.create(
                **asked, stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
            text = await sdk.completions.create(model=MODEL, prompt="hi")
            vectors = await sdk.embeddings.create(
                model=MODEL, input=["a", "b"], encoding_format="float"
            )
            models = [model.id async for model in sdk.models.list()]
            worker.play(Fail(400, "No.", type="invalid_request_error"))
            with pytest.raises(openai.BadRequestError, match=r"No\."):
                await sdk.chat.completions.create(**asked)

    assert whole.choices[0].message.content == "Hello there."
    assert whole.choices[0].finish_reason == "tool_calls"
    content = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert content == "Hello there."
    assert chunks[-1].usage is not None
    assert text.choices[0].text == "Hello there."
    assert len(vectors.data) == 2
    assert models == [MODEL, "alias"]


async def test_tokens_and_first_tokens_are_counted(tmp_path: Path) -> None:
    """Usage is the worker's; where it tells none, each event of a stream counts one."""
    with MockServer([MODEL]) as worker:
        worker.default = Say("One two three.")
        async with running_router(tmp_path, an_http_backend(worker)) as router:
            await router.http.post("/v1/chat/completions", json=a_chat())
            asked = a_chat(stream=True, stream_options={"include_usage": True})
            await router.http.post("/v1/chat/completions", json=asked)
            scrape = (await router.http.get("/metrics")).text

    # Three words each time, as the mock counts; the prompt's str() has two.
    assert 'sglr_tokens_total{kind="completion",model="m"} 6.0' in scrape
    assert 'sglr_time_to_first_token_seconds_count{model="m"} 1.0' in scrape
    assert 'sglr_worker_attempts_total{backend="default/http",outcome="succeeded"} 2.0' in scrape


async def test_turns_of_one_conversation_meet_on_one_worker(tmp_path: Path) -> None:
    """CacheAware goes by the canonical messages: the order of fields and blanks say nothing."""
    history = [{"role": "user", "content": "Tell me a long story about routers. " * 40}]
    with MockServer([MODEL]) as one, MockServer([MODEL]) as two:
        backend = an_http_backend(one, two, routing={"policy": "CacheAware"})
        async with running_router(tmp_path, backend) as router:
            await router.until_workers_are(2)
            for turn in range(6):
                await router.http.post("/v1/chat/completions", json=a_chat(messages=history))
                swapped = [dict(reversed(message.items())) for message in history]
                history = [*swapped, {"role": "user", "content": f"Go on, {turn}."}]

    assert sorted((len(one.generations), len(two.generations))) == [0, 6]
