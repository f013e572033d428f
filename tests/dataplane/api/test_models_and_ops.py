"""What a router says of itself: its models, its health, its metrics."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sglr_dataplane.sim.script import Play
from sglr_proto import __version__
from support.router import RunningRouter, a_worker, manifest, running_router


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[RunningRouter]:
    """A ready router over one worker."""
    async with (
        a_worker(Play(text="ok")) as worker,
        running_router(tmp_path, manifest(worker.address)) as running,
    ):
        yield running


async def test_models_are_listed_as_typed_clients_need_them(router: RunningRouter) -> None:
    """Each name and alias once, with the four fields that clients insist on."""
    listed = (await router.http.get("/v1/models")).json()

    assert listed["object"] == "list"
    assert {card["id"] for card in listed["data"]} == {"m", "org/alias", "/leading"}
    for card in listed["data"]:
        assert card["object"] == "model"
        assert isinstance(card["created"], int)
        assert isinstance(card["owned_by"], str)
        assert card["root"] == "m"
        assert card["max_model_len"] == 8192
        # What sglang calls its parsers, and why these.
        assert (card["tool_call_parser"], card["reasoning_parser"]) == ("qwen", "qwen3")
        assert "<tool_call>" in card["parsers_reason"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/models/m", "m"),
        ("/v1/models/org/alias", "org/alias"),
        ("/v1/models/org%2Falias", "org/alias"),
        ("/v1/models//leading", "/leading"),
        ("/v1/models/%2Fleading", "/leading"),
        ("/v1//models/m", "m"),
    ],
)
async def test_a_model_is_found_by_its_id(router: RunningRouter, path: str, name: str) -> None:
    """Ids with slashes, a leading one too, encoded or not."""
    answer = await router.http.get(path)

    assert answer.status_code == 200
    assert answer.json()["id"] == name


@pytest.mark.parametrize("path", ["/v1//models", "/v1/models/", "/v1/models"])
async def test_hand_typed_urls_list_the_models(router: RunningRouter, path: str) -> None:
    """A doubled or trailing slash is served without a redirect."""
    answer = await router.http.get(path)

    assert answer.status_code == 200
    assert answer.json()["object"] == "list"


async def test_an_unknown_model_id_is_a_404(router: RunningRouter) -> None:
    """The same code as for a chat with it."""
    answer = await router.http.get("/v1/models/none/such")

    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


async def test_the_sdk_lists_and_retrieves_models(router: RunningRouter) -> None:
    """openai-python reads both answers; it encodes the slash of an id."""
    async with router.sdk() as sdk:
        listed = [model.id async for model in await sdk.models.list()]
        one = await sdk.models.retrieve("org/alias")

    assert set(listed) == {"m", "org/alias", "/leading"}
    assert one.id == "org/alias"


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health"])
async def test_probes_answer(router: RunningRouter, path: str) -> None:
    """GET and HEAD, 200 when a worker is ready."""
    assert (await router.http.get(path)).status_code == 200
    assert (await router.http.head(path)).status_code == 200


async def test_version_names_the_product(router: RunningRouter) -> None:
    """The version is the package's."""
    answer = await router.http.get("/version")

    assert answer.json() == {"name": "sglr", "version": __version__}


async def test_metrics_count_by_bounded_labels(router: RunningRouter) -> None:
    """Unknown paths and models share one series however many there are."""
    for index in range(5):
        await router.http.get(f"/nowhere/{index}")
        body = {"model": f"x{index}", "messages": [{"role": "user", "content": "Hi"}]}
        await router.http.post("/v1/chat/completions", json=body)
    metrics = (await router.http.get("/metrics")).text

    assert 'sglr_requests_total{outcome="unknown_url",route="other"} 5.0' in metrics
    assert (
        'sglr_requests_total{outcome="model_not_found",route="/v1/chat/completions"} 5.0' in metrics
    )
    assert "x1" not in metrics
    assert "nowhere" not in metrics


async def test_metrics_tell_tokens_and_first_token_time(router: RunningRouter) -> None:
    """A served request is counted with the worker's own token counts."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    options = {"stream_options": {"include_usage": True}}
    stream = (await router.http.post("/v1/chat/completions", json={**body, **options})).text
    usage = json.loads(stream.split("\n\n")[-3].removeprefix("data: "))["usage"]
    metrics = (await router.http.get("/metrics")).text

    assert (
        f'sglr_tokens_total{{kind="completion",model="m"}} {usage["completion_tokens"]:.1f}'
        in metrics
    )
    assert f'sglr_tokens_total{{kind="prompt",model="m"}} {usage["prompt_tokens"]:.1f}' in metrics
    assert 'sglr_time_to_first_token_seconds_count{model="m"} 1.0' in metrics
    assert (
        'sglr_worker_attempts_total{backend="default/backend",outcome="succeeded"} 1.0' in metrics
    )
