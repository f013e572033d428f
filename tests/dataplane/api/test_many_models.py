"""Many models behind one address: splits, canaries, fallbacks and LoRA adapters, over real workers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from sglr_dataplane.fleet.routes import Routes
from sglr_dataplane.sim.script import Incident, Play, Rule, Script, Status
from sglr_dataplane.sim.worker import SimWorker
from sglr_proto.backend import read_manifests
from support.router import DEMO_MODEL, RunningRouter, eventually, running_router
from support.sim import sim_worker

PATH = "/v1/chat/completions"


def a_document(name: str, *workers: SimWorker, **spec: Any) -> str:
    """Return a backend of model ``m``, or as *spec* says, over *workers*."""
    endpoints = [
        {"host": "127.0.0.1", "port": int(worker.address.rpartition(":")[2])} for worker in workers
    ]
    return yaml.safe_dump(
        {
            "apiVersion": "sglr.dev/v1alpha1",
            "kind": "SGLangBackend",
            "metadata": {"name": name},
            "spec": {
                "model": {"name": "m"},
                "tokenizer": {"path": str(DEMO_MODEL)},
                "workers": {"static": {"endpoints": endpoints}},
                "routing": {"policy": "RoundRobin"},
                "healthCheck": {"interval": "200ms", "unhealthyThreshold": 1},
                **spec,
            },
        }
    )


def says(text: str, **settings: Any) -> Any:
    """Return a worker of model ``m`` that says *text*."""
    script = Script(rules=(Rule(play=Play(text=text)),))
    return sim_worker(script, **{"model_name": "m", **settings})


async def ask(router: RunningRouter, model: str = "m", **headers: str) -> httpx2.Response:
    """Return the answer of *model*."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await router.http.post(PATH, json=body, headers=names)


def text_of(answer: httpx2.Response) -> str:
    """Return what the model said."""
    return str(answer.json()["choices"][0]["message"]["content"])


async def all_ready(router: RunningRouter) -> None:
    """Wait until every backend can take a request."""

    async def claim() -> bool:
        backends = (await router.http.get("/readyz")).json()["backends"]
        return all(backend["ready"] for backend in backends.values())

    await eventually(claim)


def test_the_documented_split_is_what_it_says() -> None:
    """The manifest in docs/fleet.md can be served as it stands there."""
    page = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text()
    manifest = next(block for block in page.split("```") if "x-canary" in block)
    backends = read_manifests(manifest.removeprefix("yaml"))
    routes = Routes(backends)

    assert [each.metadata.name for each in backends] == ["qwen-stable", "qwen-canary", "qwen-spot"]
    assert [(way.traffic.weight, way.traffic.priority) for way in routes.ways("qwen")] == [
        (9, 0),
        (1, 0),
        (1, 1),
    ]
    assert [way.backend_key for way in routes.ways("qwen-next")] == ["default/qwen-canary"]


async def test_backends_of_one_model_share_its_requests(tmp_path: Path) -> None:
    """Each gets some, about as its weight says; one that is not ready gets none; one card is shown."""
    async with says("one") as one, says("two") as two:
        documents = a_document("a", one, traffic={"weight": 3}), a_document("b", two)
        async with running_router(tmp_path, "---\n".join(documents)) as router:
            await all_ready(router)
            said = Counter([text_of(await ask(router)) for _ in range(80)])
            await two.stop()
            await eventually(lambda: _is_down(router, "default/b"))
            later = {text_of(await ask(router)) for _ in range(20)}
            cards = (await router.http.get("/v1/models")).json()["data"]

    # Sixty of eighty are expected; fewer than forty happen once in ten million runs.
    assert said.keys() == {"one", "two"}
    assert said["one"] > 40
    assert later == {"one"}
    assert [card["id"] for card in cards] == ["m"]


async def _is_down(router: RunningRouter, key: str) -> bool:
    backends = (await router.http.get("/readyz")).json()["backends"]
    return not backends[key]["ready_workers"]


async def test_a_canary_is_reached_by_header_and_a_fallback_when_nobody_else_is(
    tmp_path: Path,
) -> None:
    """No client that names no header sees the canary; the fallback sees nothing until it must."""
    async with says("stable") as stable, says("canary") as canary, says("spare") as spare:
        header = {"name": "X-Canary", "value": "yes"}
        documents = (
            a_document("canary", canary, traffic={"weight": 0, "header": header}),
            a_document("spare", spare, traffic={"priority": 1}),
            a_document("stable", stable),
        )
        async with running_router(tmp_path, "---\n".join(documents)) as router:
            await all_ready(router)
            plain = {text_of(await ask(router)) for _ in range(10)}
            marked = {text_of(await ask(router, x_canary="yes")) for _ in range(10)}
            await canary.stop()
            await eventually(lambda: _is_down(router, "default/canary"))
            without = text_of(await ask(router, x_canary="yes"))
            await stable.stop()
            await eventually(lambda: _is_down(router, "default/stable"))
            fallen = text_of(await ask(router))

    assert (plain, marked) == ({"stable"}, {"canary"})
    assert (without, fallen) == ("stable", "spare")


FULL = Incident(status=Status(code="RESOURCE_EXHAUSTED", message="The request queue is full."))
GONE = Incident(die="reset")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_a_backend_cannot_take_goes_to_its_fallback(
    tmp_path: Path, stream: bool
) -> None:
    """What its workers say only when they are asked costs no request while another backend is up."""
    full = Script(rules=(Rule(play=Play(text="full", incidents=(FULL,))),))
    async with sim_worker(full, model_name="m") as main, says("spare") as spare:
        documents = a_document("main", main), a_document("spare", spare, traffic={"priority": 1})
        async with running_router(tmp_path, "---\n".join(documents)) as router:
            await all_ready(router)
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
            answer = await router.http.post(PATH, json=body)

    assert answer.status_code == 200
    assert '"error"' not in answer.text
    assert (len(main.requests), len(spare.requests)) == (1, 1)


@pytest.mark.parametrize(
    ("parser", "warned"), [("passthrough", ["seed", "strict"]), ("hermes", ["seed"])]
)
async def test_a_fallbacks_answer_says_once_what_the_fallback_does_not_do(
    tmp_path: Path, parser: str, warned: list[str]
) -> None:
    """What the backend that was asked in vain would not have done is not said."""
    full = Script(rules=(Rule(play=Play(text="full", incidents=(FULL,))),))
    tool = {"name": "clock", "strict": True, "parameters": {"type": "object", "properties": {}}}
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "seed": 1,
        "tools": [{"type": "function", "function": tool}],
    }
    async with sim_worker(full, model_name="m") as main, says("spare") as spare:
        documents = (
            a_document("main", main, parsers={"toolCall": "passthrough"}),
            a_document("spare", spare, parsers={"toolCall": parser}, traffic={"priority": 1}),
        )
        async with running_router(tmp_path, "---\n".join(documents)) as router:
            await all_ready(router)
            answer = await router.http.post(PATH, json=body)

    assert text_of(answer) == "spare"
    said = answer.headers.get_list("x-sglr-warning")
    assert [sentence.split()[0] for sentence in said] == warned


async def test_what_took_a_worker_down_is_not_sent_to_the_fallback(tmp_path: Path) -> None:
    """Some requests end the engine that takes them: another backend's must not be next."""
    deadly = Script(rules=(Rule(play=Play(text="gone", incidents=(GONE,))),))
    async with sim_worker(deadly, model_name="m") as main, says("spare") as spare:
        documents = a_document("main", main), a_document("spare", spare, traffic={"priority": 1})
        async with running_router(tmp_path, "---\n".join(documents)) as router:
            await all_ready(router)
            answer = await ask(router)

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_available_workers")
    assert spare.requests == []


async def test_without_a_fallback_the_first_backend_says_why(tmp_path: Path) -> None:
    """503 worker_busy of the one there is, asked once; a canary of weight 0 is no fallback."""
    full = Script(rules=(Rule(play=Play(text="full", incidents=(FULL,))),))
    async with sim_worker(full, model_name="m") as main, says("canary") as canary:
        header = {"name": "x-canary"}
        dark = a_document("canary", canary, traffic={"weight": 0, "header": header})
        async with running_router(tmp_path, f"{a_document('main', main)}---\n{dark}") as router:
            await all_ready(router)
            answer = await ask(router)

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "worker_busy")
    assert (len(main.requests), canary.requests) == (1, [])


async def test_where_every_weight_is_zero_requests_are_told(tmp_path: Path) -> None:
    """503 with the reason; no backend is used against its word."""
    async with says("one") as one:
        document = a_document("a", one, traffic={"weight": 0})
        async with running_router(tmp_path, document) as router:
            answer = await ask(router)

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_available_workers")
    assert "each has weight 0" in answer.json()["error"]["message"]
    assert one.requests == []


async def test_workers_may_call_the_model_otherwise(tmp_path: Path) -> None:
    """They must serve servedName, and clients send the name."""
    async with says("right", model_name="/models/m") as right, says("wrong") as wrong:
        model = {"name": "m", "servedName": "/models/m"}
        document = a_document("a", right, wrong, model=model)
        async with running_router(tmp_path, document) as router:
            said = {text_of(await ask(router)) for _ in range(6)}
            problem = (await router.http.get("/readyz")).json()["backends"]["default/a"]
            refused = await ask(router, "/models/m")

    assert said == {"right"}
    assert problem["ready_workers"] == 1
    assert refused.json()["error"]["code"] == "model_not_found"


async def test_an_adapter_is_served_by_the_workers_that_list_it_and_no_others(
    tmp_path: Path,
) -> None:
    """Each is asked with its own id of it; the base model's requests name none."""
    model = {"name": "m", "adapters": [{"name": "sql", "servedName": "sql-v2"}, {"name": "fr"}]}
    async with (
        says("with", adapters=("sql-v2", "other")) as one,
        says("with too", adapters=("sql-v2",)) as two,
        says("without") as bare,
    ):
        document = a_document("a", one, two, bare, model=model)
        async with running_router(tmp_path, document) as router:
            await eventually(lambda: _ready_workers(router, 3))
            said = Counter([text_of(await ask(router, "sql")) for _ in range(4)])
            spelled = text_of(await ask(router, "m:sql"))
            asked = {worker: [r.lora_id for r in worker.requests] for worker in (one, two)}
            base = {text_of(await ask(router)) for _ in range(3)}
            cards = {c["id"]: c for c in (await router.http.get("/v1/models")).json()["data"]}
            unknown = [await ask(router, name) for name in ("fr", "other", "m:other", "sql-v2")]

    assert said == {"with": 2, "with too": 2}
    assert spelled.startswith("with")
    assert all(len(set(ids)) == 1 and all(ids) for ids in asked.values())
    assert asked[one][0] != asked[two][0]
    assert base == {"with", "with too", "without"}
    assert [request.lora_id for request in bare.requests] == [""]
    assert {name: card["parent"] for name, card in cards.items()} == {"m": None, "sql": "m"}
    assert cards["sql"]["root"] == "sql"
    assert [answer.json()["error"]["code"] for answer in unknown] == ["model_not_found"] * 4
    assert [answer.status_code for answer in unknown] == [404] * 4


async def _ready_workers(router: RunningRouter, count: int) -> bool:
    backends = (await router.http.get("/readyz")).json()["backends"]
    return sum(int(backend["ready_workers"]) for backend in backends.values()) == count


async def test_an_adapter_whose_workers_are_gone_is_not_served_by_the_base_model(
    tmp_path: Path,
) -> None:
    """While the worker that has it is down the answer is 503, and 404 once it left."""
    model = {"name": "m", "adapters": [{"name": "sql"}]}
    async with says("with", adapters=("sql",)) as one, says("without") as bare:
        both = a_document("a", one, bare, model=model)
        async with running_router(tmp_path, both) as router:
            await eventually(lambda: _ready_workers(router, 2))
            await one.stop()
            await eventually(lambda: _ready_workers(router, 1))
            down = await ask(router, "sql")
            router.manifest.write_text(a_document("a", bare, model=model))

            async def is_gone() -> bool:
                return (await ask(router, "sql")).status_code == 404

            await eventually(is_gone)

    assert (down.status_code, down.json()["error"]["code"]) == (503, "no_available_workers")
    assert bare.requests == []


async def test_with_discovery_what_workers_list_is_served_undeclared(tmp_path: Path) -> None:
    """Under the workers' own names; a key's list of models holds for them as for any."""
    keys = tmp_path / "keys.yaml"
    keys.write_text("keys: [{name: a, key: all}, {name: b, key: some, models: [m, fr]}]")
    model = {"name": "m", "adapterDiscovery": "Worker"}
    async with says("with", adapters=("sql", "fr")) as one:
        document = a_document("a", one, model=model)
        async with running_router(tmp_path, document, keys=str(keys)) as router:
            every = await ask(router, "sql", x_api_key="all")
            allowed = await ask(router, "fr", x_api_key="some")
            refused = await ask(router, "sql", x_api_key="some")
            listed = await router.http.get("/v1/models", headers={"x-api-key": "some"})

    assert (every.status_code, allowed.status_code) == (200, 200)
    assert refused.json()["error"]["code"] == "model_not_found"
    assert [card["id"] for card in listed.json()["data"]] == ["m", "fr"]


async def test_embeddings_of_an_adapter_are_refused(tmp_path: Path) -> None:
    """The workers' call for them names no adapter: the base model must not answer."""
    model = {"name": "m", "adapters": [{"name": "sql"}]}
    body = {"model": "sql", "input": "Hello"}
    async with (
        says("with", adapters=("sql",)) as one,
        running_router(tmp_path, a_document("a", one, model=model)) as router,
    ):
        answer = await router.http.post("/v1/embeddings", json=body)

    assert answer.status_code == 501
    assert one.recorder.calls["Embed"] == 0
