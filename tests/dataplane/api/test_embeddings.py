"""Embeddings: one vector for each input, as numbers or base64, from workers that embed."""

import base64
import struct
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from sglr_dataplane.prompt.tokenizer import Tokenizer
from sglr_dataplane.sim.script import RpcFault, Script, Status
from support.router import DEMO_MODEL, RunningRouter, manifest, running_router
from support.sim import sim_worker

TOKENIZER = Tokenizer.from_dir(DEMO_MODEL)
EMBEDS = Script(model_info={"is_generation": False})


def vector(text: str) -> list[float]:
    """Return what the simulated worker makes of *text*."""
    ids = TOKENIZER.encode(text)
    return [float(len(ids)), float(sum(ids) % 97), ids[0] / 2, -ids[-1] / 2]


@pytest.fixture
async def embedding(tmp_path: Path) -> AsyncGenerator[RunningRouter]:
    """A ready router over one worker with an embedding model."""
    folder = tmp_path / "embedding"  # a test may run another router in tmp_path
    folder.mkdir()
    async with (
        sim_worker(EMBEDS, model_name="m") as worker,
        running_router(folder, manifest(worker.address)) as router,
    ):
        yield router


async def embed(router: RunningRouter, **fields: Any) -> Any:
    """Return the answer to an embedding request."""
    return await router.http.post("/v1/embeddings", json={"model": "m", "input": "Hi", **fields})


async def test_each_input_has_its_vector(embedding: RunningRouter) -> None:
    """In the order of the inputs, texts and ids alike; the usage counts them all."""
    texts = ["one", "two words", "é"]
    answer = (await embed(embedding, input=texts)).json()
    by_ids = (await embed(embedding, input=[list(TOKENIZER.encode(t)) for t in texts])).json()
    one = (await embed(embedding, input=list(TOKENIZER.encode("one")))).json()

    assert answer["object"] == "list"
    assert [item["index"] for item in answer["data"]] == [0, 1, 2]
    assert [item["embedding"] for item in answer["data"]] == [vector(text) for text in texts]
    assert by_ids["data"] == answer["data"]
    assert one["data"] == answer["data"][:1]
    tokens = sum(len(TOKENIZER.encode(text)) for text in texts)
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


async def test_base64_is_little_endian_floats(embedding: RunningRouter) -> None:
    """What openai-python asks for unless it is told otherwise."""
    answer = (await embed(embedding, encoding_format="base64")).json()
    async with embedding.sdk() as sdk:
        read = await sdk.embeddings.create(model="m", input="Hi")

    packed = base64.b64decode(answer["data"][0]["embedding"])
    assert list(struct.unpack("<4f", packed)) == vector("Hi")
    assert read.data[0].embedding == vector("Hi")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": [10**9]}, "input[0]"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"dimensions": 3}, "dimensions"),
        ({"input": "word " * 9000}, "input"),
        ({"lora_path": "x"}, "lora_path"),
    ],
)
async def test_what_cannot_be_embedded_is_refused(
    embedding: RunningRouter, fields: dict[str, Any], param: str
) -> None:
    """400 with the name of what is wrong; the model's own dimensions are accepted."""
    answer = await embed(embedding, **fields)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert (await embed(embedding, dimensions=4)).status_code == 200


async def test_models_do_what_they_are_for(shared: RunningRouter, embedding: RunningRouter) -> None:
    """A model that generates has no embeddings, and one that embeds writes no text: 501."""
    refused = await embed(shared)
    chat = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    unwritten = await embedding.http.post("/v1/chat/completions", json=chat)

    assert (refused.status_code, refused.json()["error"]["code"]) == (501, "not_served")
    assert (unwritten.status_code, unwritten.json()["error"]["code"]) == (501, "not_served")


async def test_a_workers_failure_is_the_clients_answer(tmp_path: Path) -> None:
    """With its status and without the worker's words."""
    fault = RpcFault(status=Status(code="INTERNAL", message="secret"))
    script = Script(model_info={"is_generation": False}, rpcs={"Embed": fault})
    async with (
        sim_worker(script, model_name="m") as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        answer = await embed(router)

    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "worker_error")
    assert "secret" not in answer.text
