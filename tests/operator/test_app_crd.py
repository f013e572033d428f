"""An operator that is newer than the definition in its cluster (A23), or whose status is pruned."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from sglr_operator.schema import definition, missing_fields, root
from support.kube_api import running_api
from support.kube_wait import until
from support.operator_objects import is_ready, put_backend, put_service, put_slice
from support.operators import conditions, operating
from support.push import routing


def described(schema: dict[str, Any]) -> dict[str, Any]:
    """Return *schema* as an API server describes it."""
    return {"components": {"schemas": {"dev.sglr.v1alpha1.SGLangBackend": schema}}}


def older() -> dict[str, Any]:
    """Return the schema of a version that had no rate limits and no adapters' served names."""
    schema = copy.deepcopy(root())
    spec = schema["properties"]["spec"]["properties"]
    del spec["rateLimit"]
    del spec["model"]["properties"]["adapters"]["items"]["properties"]["servedName"]
    return schema


def test_a23_what_an_older_definition_lacks_is_found() -> None:
    """By path, lists included; the same definition lacks nothing."""
    [version] = definition()["spec"]["versions"]

    assert missing_fields(older()) == ("spec.model.adapters[].servedName", "spec.rateLimit")
    assert missing_fields(version["schema"]["openAPIV3Schema"]) == ()


async def test_a23_an_old_crd_is_said_on_each_backend_and_by_a_metric(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Accepted says which fields are dropped and what to do; backends are served all the same."""
    async with running_api() as api:
        api.openapi = described(older())
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        async with operating(api, tmp_path) as running, routing(await running.serves()):
            await until(lambda: is_ready(api), what="Ready")

            def said() -> str:
                return str(conditions(api, "chat")["Accepted"]["message"])

            await until(lambda: "older than the operator" in said(), what="said")
            assert "spec.model.adapters[].servedName, spec.rateLimit" in said()
            assert "kubectl apply --server-side -f crds/" in said()
            assert running.sample("sglr_operator_crd_outdated") == 1
            assert "the CRD is too old" in caplog.text


async def test_a23_a_current_crd_is_no_news(tmp_path: Path) -> None:
    """Nothing is said where nothing is missing."""
    async with running_api() as api:
        api.openapi = described(root())
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        async with operating(api, tmp_path) as running, routing(await running.serves()):
            await until(lambda: is_ready(api), what="Ready")

            assert conditions(api, "chat")["Accepted"]["message"] == "The spec is valid."
            assert running.sample("sglr_operator_crd_outdated") == 0


async def test_a22_a_status_that_is_pruned_is_said_once_and_written_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that drops a field we write does not make us write for ever."""
    async with running_api() as api:
        api.pruned = ("operator", "workers")
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        async with operating(api, tmp_path) as running, routing(await running.serves()):
            await until(lambda: is_ready(api), what="Ready")
            # An Event-free change of the endpoints is written once, and settles again.
            put_slice(api, "10.0.0.1", "10.0.0.2")
            await until(
                lambda: conditions(api, "chat")["EndpointsAvailable"]["message"] == "2 ready.",
                what="written",
            )

            async def writes_after_lists(number: int) -> float:
                """Return how often was written, after the pruned status was listed again."""
                for _ in range(number):
                    seen = api.count("list", "sglangbackends")
                    api.compact()
                    await until(lambda: api.count("list", "sglangbackends") > seen, what="listed")  # noqa: B023  # awaited at once
                return running.sample("sglr_operator_status_writes_total", outcome="ok")

            settled = await writes_after_lists(3)
            assert await writes_after_lists(3) == settled
            assert caplog.text.count("drops parts of the status") == 1
