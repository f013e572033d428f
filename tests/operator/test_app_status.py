"""What the whole operator tells of backends: conditions, Events, and who has a model's name."""

from __future__ import annotations

import copy
from pathlib import Path

from support.kube_api import running_api
from support.kube_objects import NAMESPACE
from support.kube_wait import until
from support.operator_objects import is_ready, put_backend, put_service, put_slice, reason
from support.operators import operating
from support.push import routing


async def test_a_missing_service_is_told_and_found_when_it_appears(tmp_path: Path) -> None:
    """ResolvedRefs and an Event say what is missing; creating it is all it takes."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_backend(api)
        async with routing(await running.serves()):
            await until(lambda: reason(api, "ResolvedRefs") == "ServiceNotFound", what="told")
            await until(
                lambda: any(
                    body["reason"] == "ServiceNotFound" and body["type"] == "Warning"
                    for body in api.objects("events").values()
                ),
                what="an Event",
            )
            put_service(api)
            put_slice(api, "10.0.0.1")

            await until(lambda: is_ready(api), what="Ready")


async def test_events_are_not_repeated(tmp_path: Path) -> None:
    """A flapping condition posts the same Event once within its interval."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_backend(api)
        async with routing(await running.serves()):
            for _ in range(3):
                put_slice(api, "10.0.0.1")
                await until(lambda: is_ready(api), what="Ready")
                put_slice(api)
                await until(lambda: reason(api, "EndpointsAvailable") == "NoEndpoints", what="none")

            reasons = [body["reason"] for body in api.objects("events").values()]
            assert reasons.count("EndpointsReady") == 1
            assert reasons.count("NoEndpoints") == 1


async def test_losing_most_ready_endpoints_at_once_is_an_event(tmp_path: Path) -> None:
    """A selector typo or a network fault is seen by a person; routers are told all the same."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1", "10.0.0.2", "10.0.0.3")
        put_backend(api)
        async with routing(await running.serves()) as router:
            await until(lambda: is_ready(api), what="Ready")
            put_slice(api, "10.0.0.1")
            await until(lambda: router.table() == {"chat": ["10.0.0.1"]}, what="told")
            await until(
                lambda: any(
                    body["reason"] == "MassEndpointLoss" for body in api.objects("events").values()
                ),
                what="an Event",
            )

            assert running.sample("sglr_operator_mass_losses_total") == 1


async def test_a_status_that_somebody_else_edits_is_put_right(tmp_path: Path) -> None:
    """What others write into the status does not stay."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        async with routing(await running.serves()):
            await until(lambda: is_ready(api), what="Ready")
            body = copy.deepcopy(api.objects("sglangbackends")[(NAMESPACE, "chat")])
            body["status"]["endpoints"]["ready"] = 99
            api.put("sglangbackends", body)

            await until(
                lambda: (
                    api.objects("sglangbackends")[(NAMESPACE, "chat")]["status"]["endpoints"][
                        "ready"
                    ]
                    == 1
                ),
                what="put right",
            )


async def test_k13_a_pod_that_loses_its_label_leaves_routers(tmp_path: Path) -> None:
    """A18: an edited label takes the pod out of a selector's workers, and back."""
    pod = {
        "metadata": {"name": "p", "namespace": NAMESPACE, "labels": {"app": "q"}},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.5",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    async with running_api() as api, operating(api, tmp_path) as running:
        api.put("pods", copy.deepcopy(pod))
        put_backend(api, workers={"selector": {"matchLabels": {"app": "q"}}})
        async with routing(await running.serves()) as router:
            await until(lambda: router.table() == {"chat": ["10.0.0.5"]}, what="in")
            changed = copy.deepcopy(pod)
            changed["metadata"]["labels"] = {"app": "other"}  # type: ignore[index]  # a pod has metadata
            api.put("pods", changed)
            await until(lambda: router.table() == {"chat": []}, what="out")
            api.put("pods", copy.deepcopy(pod))

            await until(lambda: router.table() == {"chat": ["10.0.0.5"]}, what="in again")


async def test_two_namespaces_that_claim_one_model_are_told_apart_by_age(tmp_path: Path) -> None:
    """The younger one is refused and not served; when the older goes, it takes over."""
    fixed = {"static": {"endpoints": [{"host": "10.0.0.2"}]}}
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api, "older", model={"name": "qwen"})
        put_backend(api, "younger", model={"name": "qwen"}, workers=fixed, namespace="team")
        async with routing(await running.serves()) as router:
            await until(
                lambda: reason(api, "Accepted", "younger", "team") == "ModelConflict",
                what="refused",
            )
            await until(lambda: list(router.table()) == ["older"], what="one is served")
            api.delete("sglangbackends", "older", NAMESPACE)

            await until(lambda: list(router.table()) == ["younger"], what="the other takes over")
            await until(lambda: is_ready(api, "younger", "team"), what="Ready")


async def test_backends_of_one_namespace_share_a_model(tmp_path: Path) -> None:
    """Routers are told of both, and both become ready."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api, "stable", model={"name": "qwen"}, traffic={"weight": 9})
        put_backend(api, "canary", model={"name": "qwen"})
        async with routing(await running.serves()) as router:
            await until(lambda: sorted(router.table()) == ["canary", "stable"], what="both served")

            await until(lambda: is_ready(api, "stable") and is_ready(api, "canary"), what="Ready")
