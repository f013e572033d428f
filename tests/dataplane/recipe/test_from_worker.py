"""A manifest without a tokenizer, end to end: the workers send theirs."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from sglr_dataplane.sim.script import Play, RpcFault, Script, Status
from support.router import a_worker, eventually, manifest, running_router
from support.sim import sim_worker
from support.tokenizers import DEMO_MODEL

ANSWER = Play(text="Hello there.")
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def without_tokenizer(*addresses: str) -> str:
    """Return a manifest that names none."""
    document = yaml.safe_load(manifest(*addresses))
    del document["spec"]["tokenizer"]
    return yaml.safe_dump(document)


async def test_a_chat_needs_no_tokenizer_from_the_user(tmp_path: Path) -> None:
    """The bundle is fetched, unpacked and loaded before the router says that it is ready."""
    async with a_worker(ANSWER) as worker:
        async with running_router(tmp_path, without_tokenizer(worker.address)) as router:
            answer = await router.http.post("/v1/chat/completions", json=CHAT)

        assert answer.json()["choices"][0]["message"]["content"] == "Hello there."
        assert worker.recorder.calls["GetTokenizer"] == 1


async def test_a_worker_with_another_vocabulary_gets_no_requests(tmp_path: Path) -> None:
    """Both are healthy; one of them would answer in nonsense."""
    other = tmp_path / "other"
    shutil.copytree(DEMO_MODEL, other)
    with (other / "tokenizer.json").open("a") as file:
        file.write("\n")
    async with (
        a_worker(ANSWER) as first,
        running_router(tmp_path, without_tokenizer(first.address)) as router,
        sim_worker(model_name="m", tokenizer=other) as second,
    ):
        router.manifest.write_text(without_tokenizer(first.address, second.address))

        async def both_are_known() -> bool:
            backend = (await router.http.get("/readyz")).json()["backends"]["default/backend"]
            return bool(backend["known_workers"] == 2 and second.recorder.calls["GetTokenizer"])

        await eventually(both_are_known)
        for _ in range(4):
            await router.http.post("/v1/chat/completions", json=CHAT)

        assert len(second.received) == 0
        assert len(first.received) == 4


async def test_workers_that_offer_none_leave_their_backend_without(tmp_path: Path) -> None:
    """503 for the client; the operator reads on /readyz what to do."""
    fault = RpcFault(status=Status(code="UNIMPLEMENTED", message="Method not found!"))
    async with (
        sim_worker(Script(rpcs={"GetTokenizer": fault}), model_name="m") as worker,
        running_router(tmp_path, without_tokenizer(worker.address), ready=False) as router,
    ):
        await eventually(lambda: worker.recorder.calls["GetTokenizer"])
        answer = await router.http.post("/v1/chat/completions", json=CHAT)
        facts = (await router.http.get("/readyz")).json()["backends"]["default/backend"]

    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "tokenizer_unavailable"
    assert facts["problem"].startswith("no worker has sent its tokenizer yet; static/127.0.0.1:")
    assert "does not offer its tokenizer; name one in spec.tokenizer" in facts["problem"]
