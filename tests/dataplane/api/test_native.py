"""SGLang's own API and what belongs to it: /generate, tokenize, detokenize, and what is not served."""

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.api.routes import NOT_SERVED
from sglr_dataplane.sim.script import Play, Rule, Script
from sglr_dataplane.vocab import Vocabulary
from support.router import (
    DEMO_MODEL,
    RunningRouter,
    a_worker,
    eventually,
    manifest,
    running_router,
)
from support.sim import sim_worker

VOCABULARY = Vocabulary.from_dir(DEMO_MODEL)


async def generate(router: RunningRouter, **fields: Any) -> Any:
    """Return the answer to a request of SGLang's own API."""
    return await router.http.post("/generate", json={"text": "Hi", **fields})


def items(body: str) -> list[Any]:
    """Return the events of a stream, which must end with [DONE]."""
    *frames, done, rest = body.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(frame[6:]) for frame in frames]


async def test_generate_answers_as_sglang_does(tmp_path: Path) -> None:
    """Text, ids and meta_info; no model has to be named where there is one."""
    async with (
        a_worker(Play(text=" there é")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = (await generate(router, sampling_params={"temperature": 0})).json()

    facts = answer["meta_info"]
    assert answer["text"] == " there é"
    assert VOCABULARY.decode(answer["output_ids"], VOCABULARY.special) == " there é"
    assert len(answer["output_ids"]) == facts["completion_tokens"]
    assert facts["finish_reason"]["type"] == "stop"
    assert facts["prompt_tokens"] == len(worker.requests[0].tokenized.input_ids)
    assert worker.requests[0].sampling_params.max_new_tokens == 128
    assert worker.requests[0].sampling_params.temperature == 0


@pytest.mark.parametrize("chunk_size", [1, 3])
async def test_a_stream_of_generate_has_only_what_is_new(tmp_path: Path, chunk_size: int) -> None:
    """Joined, its events are the whole answer: text, ids and log probabilities."""
    asked = {"return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": 0}
    async with (
        a_worker(Play(text="A é 漢 🙂 end", chunk_size=chunk_size)) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        whole = (await generate(router, **asked)).json()
        parts = items((await generate(router, **asked, stream=True)).text)

    assert "".join(part["text"] for part in parts) == whole["text"] == "A é 漢 🙂 end"
    assert [i for part in parts for i in part["output_ids"]] == whole["output_ids"]
    for name in ("output_token_logprobs", "output_top_logprobs", "input_token_logprobs"):
        told = [row for part in parts for row in part["meta_info"].get(name, [])]
        assert told == whole["meta_info"][name]
    rows = whole["meta_info"]["output_token_logprobs"]
    assert [row[1] for row in rows] == whole["output_ids"]
    assert whole["meta_info"]["input_token_logprobs"][0][0] is None
    assert parts[-1]["meta_info"]["finish_reason"] == whole["meta_info"]["finish_reason"]
    assert all(part["meta_info"]["finish_reason"] is None for part in parts[:-1])


async def test_several_prompts_or_choices_are_a_list(tmp_path: Path) -> None:
    """A list asked is a list answered; a stream tells them apart by index."""
    script = Script(rules=(Rule(play=(Play(text="first"), Play(text="second"))),))
    async with (
        sim_worker(script, model_name="m") as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        one = (await generate(router, text=["Hi"])).json()
        two = (await generate(router, sampling_params={"n": 2})).json()
        parts = items((await generate(router, sampling_params={"n": 2}, stream=True)).text)

    told = ["", ""]
    for part in parts:
        told[part["index"]] += part["text"]
    assert [each["text"] for each in one] == ["first"]
    assert [each["text"] for each in two] == told == ["first", "second"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": None}, "text"),
        ({"input_ids": [1]}, "input_ids"),
        ({"text": None, "input_ids": []}, "input_ids"),
        ({"sampling_params": {"temperature": "hot"}}, "sampling_params.temperature"),
        ({"sampling_params": {"temperature": 3}}, "temperature"),
        ({"sampling_params": {"max_new_tokens": -1}}, "sampling_params.max_new_tokens"),
        ({"sampling_params": {"stop_regex": "a"}}, "sampling_params.stop_regex"),
        ({"sampling_params": {"regex": "a", "ebnf": "b"}}, "sampling_params.ebnf_grammar"),
        ({"sampling_params": {"no_such": 1}}, "sampling_params.no_such"),
        ({"sampling_params": {"max_tokens": 1}}, "sampling_params.max_tokens"),
        ({"sampling_params": {"regex": ""}}, "sampling_params.regex"),
        ({"lora_path": "x"}, "lora_path"),
        ({"model": "nope"}, "model"),
    ],
)
async def test_what_generate_cannot_do_is_refused(
    shared: RunningRouter, fields: dict[str, Any], param: str
) -> None:
    """With a 4xx and the name of what is wrong."""
    answer = await generate(shared, **fields)

    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("path", ["/v1/tokenize", "/tokenize"])
async def test_tokenize_gives_the_ids_that_generation_uses(
    shared: RunningRouter, path: str
) -> None:
    """Of a text, of several, and of a chat; they decode to what was asked."""
    one = (await shared.http.post(path, json={"model": "m", "prompt": "Hello é"})).json()
    two = (await shared.http.post(path, json={"prompt": ["a", "b c"]})).json()
    chat = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    of_chat = (await shared.http.post(path, json=chat)).json()
    answer = (await shared.http.post("/v1/chat/completions", json=chat)).json()

    assert VOCABULARY.decode(one["tokens"]) == "Hello é"
    assert one["count"] == len(one["tokens"])
    assert one["max_model_len"] > 0
    assert [VOCABULARY.decode(ids) for ids in two["tokens"]] == ["a", "b c"]
    assert two["count"] == [len(ids) for ids in two["tokens"]]
    assert of_chat["count"] == answer["usage"]["prompt_tokens"]


async def test_detokenize_gives_the_text_back(shared: RunningRouter) -> None:
    """Of ids and of lists of them; control tokens only when asked for."""
    path = "/v1/detokenize"
    ids = (await shared.http.post("/v1/tokenize", json={"prompt": "Hello 🙂"})).json()["tokens"]
    end = VOCABULARY.id_of("<|im_end|>")
    one = await shared.http.post(path, json={"tokens": [*ids, end]})
    shown = await shared.http.post(path, json={"tokens": [*ids, end], "skip_special_tokens": False})
    two = await shared.http.post(path, json={"tokens": [ids, ids[:1]]})
    nothing = await shared.http.post(path, json={"tokens": []})

    assert one.json() == {"text": "Hello 🙂"}
    assert shown.json() == {"text": "Hello 🙂<|im_end|>"}
    assert two.json() == {"text": ["Hello 🙂", "Hello"]}
    assert nothing.json() == {"text": ""}


async def test_a48_a_large_body_of_ids_leaves_the_others_running(
    shared: RunningRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe is answered while its text is being made, however long that takes."""
    began, go = threading.Event(), threading.Event()

    def slowly(_: Vocabulary, ids: Sequence[int], hide: frozenset[int]) -> str:
        del ids, hide
        began.set()
        assert go.wait(10)
        return "at last"

    monkeypatch.setattr(Vocabulary, "decode", slowly)
    body = {"tokens": [1000] * 30_000}
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(shared.http.post("/v1/detokenize", json=body))
        await eventually(began.is_set)
        alive = await shared.http.get("/livez")
        go.set()

    assert alive.status_code == 200
    assert (await asked).json() == {"text": "at last"}


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/tokenize", {}, "prompt"),
        ("/v1/tokenize", {"prompt": [1]}, "prompt"),
        ("/v1/tokenize", {"prompt": "a", "messages": []}, "messages"),
        ("/v1/tokenize", {"prompt": "a", "model": "nope"}, "model"),
        ("/v1/detokenize", {}, "tokens"),
        ("/v1/detokenize", {"tokens": "a"}, "tokens"),
        ("/v1/detokenize", {"tokens": [10**9]}, "tokens[0]"),
        ("/v1/detokenize", {"tokens": [[0], [-1]]}, "tokens[1][0]"),
    ],
)
async def test_what_has_no_tokens_is_refused(
    shared: RunningRouter, path: str, fields: dict[str, Any], param: str
) -> None:
    """With a 4xx and the name of what is wrong."""
    answer = await shared.http.post(path, json=fields)

    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param


async def test_what_no_worker_serves_is_501(shared: RunningRouter) -> None:
    """Known paths of other servers say so in JSON, and say why."""
    for path in NOT_SERVED:
        answer = await shared.http.post(path, json={"model": "m"})
        error = answer.json()["error"]

        assert answer.status_code == 501
        assert error["code"] == "not_served"
        assert path in error["message"]


async def test_known_paths_answer_head_and_get_sensibly(shared: RunningRouter) -> None:
    """Probes of a base URL are 200; a GET where POST is meant is a JSON 405 with Allow."""
    root = await shared.http.get("/")
    head = await shared.http.head("/")
    models = await shared.http.head("/v1/models")
    chat = await shared.http.get("/v1/chat/completions")
    slash = await shared.http.post("/v1/completions/", json={"model": "m", "prompt": "Hi"})

    assert (root.status_code, head.status_code, models.status_code) == (200, 200, 200)
    assert chat.status_code == 405
    assert "POST" in chat.headers["allow"]
    assert chat.json()["error"]["code"] == "method_not_allowed"
    assert slash.status_code == 200
