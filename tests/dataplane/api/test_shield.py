"""What ends a real engine's process, or hangs it, never reaches one: whichever API carries it.

The simulated worker dies of the nine requests that end SGLang 0.5.23, and hangs at the tenth; so
these tests fail loudly when one gets through.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.sim.script import Play
from support.router import DEMO_MODEL, a_worker, manifest, running_router

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": "Hi"}
NATIVE: dict[str, Any] = {"text": "Hi"}
OUTSIDE = 99_999_999


def native(**sampling: Any) -> dict[str, Any]:
    """Return a request of SGLang's own API with *sampling*."""
    return {**NATIVE, "sampling_params": sampling}


KILLERS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "empty prompt": [
        ("/v1/chat/completions", {**CHAT, "messages": []}),
        ("/v1/completions", {**COMPLETION, "prompt": ""}),
        ("/v1/completions", {**COMPLETION, "prompt": []}),
        ("/v1/completions", {**COMPLETION, "prompt": [[5], []]}),
        ("/generate", {"text": ""}),
        ("/generate", {"input_ids": []}),
        ("/generate", {"text": ["a", ""]}),
    ],
    "id at the vocabulary's size": [
        ("/v1/completions", {**COMPLETION, "prompt": "SIZE"}),
        ("/generate", {"input_ids": "SIZE"}),
    ],
    "id far outside": [
        ("/v1/completions", {**COMPLETION, "prompt": [OUTSIDE]}),
        ("/v1/completions", {**COMPLETION, "prompt": [[5], [-1]]}),
        ("/generate", {"input_ids": [OUTSIDE]}),
        ("/generate", {"input_ids": [[5], [2**70]]}),
    ],
    "temperature that is no number": [
        ("/v1/chat/completions", {**CHAT, "temperature": float("nan")}),
        ("/v1/completions", {**COMPLETION, "temperature": float("nan")}),
        ("/generate", native(temperature=float("nan"))),
        ("/v1/chat/completions", {**CHAT, "temperature": float("inf")}),
    ],
    "bias of what is no id": [
        ("/v1/chat/completions", {**CHAT, "logit_bias": {"abc": 1}}),
        ("/v1/completions", {**COMPLETION, "logit_bias": {"abc": 1}}),
        ("/generate", native(logit_bias={"abc": 1})),
    ],
    "bias of an id outside": [
        ("/v1/chat/completions", {**CHAT, "logit_bias": {str(OUTSIDE): 1}}),
        ("/v1/completions", {**COMPLETION, "logit_bias": {str(OUTSIDE): 1}}),
        ("/generate", native(logit_bias={str(OUTSIDE): 1})),
    ],
    "log probability of an id outside": [
        ("/generate", {**NATIVE, "return_logprob": True, "token_ids_logprob": [OUTSIDE]}),
    ],
    "more alternatives than there are tokens": [
        ("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 10_000_000}),
        ("/v1/completions", {**COMPLETION, "logprobs": 10_000_000}),
        ("/generate", {**NATIVE, "return_logprob": True, "top_logprobs_num": 10_000_000}),
    ],
    "log probabilities from before the prompt": [
        ("/generate", {**NATIVE, "return_logprob": True, "logprob_start_len": -5}),
    ],
    "negative repetition penalty, which hangs": [
        ("/v1/chat/completions", {**CHAT, "repetition_penalty": -1}),
        ("/v1/completions", {**COMPLETION, "repetition_penalty": -1}),
        ("/generate", native(repetition_penalty=-1)),
    ],
}


@pytest.mark.parametrize("streamed", [False, True])
async def test_no_killer_reaches_an_engine(tmp_path: Path, streamed: bool) -> None:
    """Each is 400 with a sentence; afterwards the same worker still answers every API."""
    deaths: list[str] = []
    async with (
        a_worker(Play(text="alive"), die=deaths.append) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        size = _vocabulary_size()
        for name, requests in KILLERS.items():
            for path, request in requests:
                body = {k: [size] if v == "SIZE" else v for k, v in request.items()}
                answer = await router.http.post(
                    path,
                    content=json.dumps({**body, "stream": streamed}),
                    headers={"content-type": "application/json"},
                )

                assert answer.status_code == 400, (name, path, answer.text)
                assert answer.json()["error"]["message"].endswith("."), name
        assert worker.requests == []
        for path, request in (
            ("/v1/chat/completions", CHAT),
            ("/v1/completions", COMPLETION),
            ("/generate", NATIVE),
        ):
            assert "alive" in (await router.http.post(path, json=request)).text

    assert deaths == []


def _vocabulary_size() -> int:
    """Return the size of the demo model's vocabulary, by its tokenizer file alone."""
    document = json.loads((DEMO_MODEL / "tokenizer.json").read_bytes())
    ids = [*document["model"]["vocab"].values(), *(t["id"] for t in document["added_tokens"])]
    return int(max(ids)) + 1


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -1},
        {"top_p": 2},
        {"top_k": -5},
        {"min_p": 2},
        {"presence_penalty": 5},
        {"min_tokens": 9, "max_tokens": 3},
        {"stop_token_ids": [OUTSIDE]},
    ],
)
async def test_what_an_engine_takes_in_silence_is_refused_too(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    """Values that mean nothing are 400 at every API, not a surprising answer."""
    renamed = {"min_tokens": "min_new_tokens", "max_tokens": "max_new_tokens"}
    sampling = {renamed.get(name, name): value for name, value in fields.items()}
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answers = [
            await router.http.post("/v1/chat/completions", json={**CHAT, **fields}),
            await router.http.post("/v1/completions", json={**COMPLETION, **fields}),
            await router.http.post("/generate", json=native(**sampling)),
        ]

    assert [answer.status_code for answer in answers] == [400, 400, 400]
    assert worker.requests == []


async def test_a38_what_does_not_fit_is_refused_at_every_api(tmp_path: Path) -> None:
    """400 context_length_exceeded in the words agents match, with the number that models have."""
    many = "word " * 9000
    requests: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": many}]}),
        ("/v1/chat/completions", {**CHAT, "max_tokens": 8192}),
        ("/v1/completions", {**COMPLETION, "prompt": many}),
        ("/v1/completions", {**COMPLETION, "max_tokens": 8192}),
        ("/generate", {"text": many}),
        ("/generate", native(max_new_tokens=8192)),
    ]
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        errors = [
            (await router.http.post(path, json=request)).json()["error"]
            for path, request in requests
        ]
        models = await router.http.get("/v1/models")

    assert {error["code"] for error in errors} == {"context_length_exceeded"}
    told = models.json()["data"][0]["max_model_len"]
    assert all(f"maximum context length is {told} tokens" in e["message"] for e in errors)
    assert worker.requests == []


async def test_job_ids_are_of_one_length_and_never_the_same(tmp_path: Path) -> None:
    """Not the client's, not each other's prefix: engines match aborts by prefix."""
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        for _ in range(3):
            await router.http.post("/v1/completions", json={**COMPLETION, "prompt": ["a", "b"]},
                                   headers={"x-request-id": "same"})  # fmt: skip

    ids = [request.request_id for request in worker.requests]
    assert {len(each) for each in ids} == {32}
    assert len(set(ids)) == 6


async def test_an_adapters_name_is_never_served_by_the_base_model(tmp_path: Path) -> None:
    """A name no backend lists is 404, also in SGLang's base:adapter form, and lora_path is 400."""
    async with (
        a_worker(Play(text="base")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        named = await router.http.post("/v1/chat/completions", json={**CHAT, "model": "m:adapter"})
        path = await router.http.post("/v1/chat/completions", json={**CHAT, "lora_path": "a"})

    assert (named.status_code, named.json()["error"]["code"]) == (404, "model_not_found")
    assert path.status_code == 400
    assert worker.requests == []
