"""The whole operator against an API server that fails, with real routers."""

from __future__ import annotations

import asyncio
import copy
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sglr_operator.config import Address, PushConfig
from sglr_proto.backend import SGLangBackend
from support.kube_api import Call, FakeApi, FaultKind, running_api
from support.kube_objects import NAMESPACE, a_document
from support.kube_wait import until
from support.operators import conditions, operating
from support.push import Router, routing


def put_backend(api: FakeApi, name: str = "chat", **changes: Any) -> None:
    """Create or change a backend in *api*."""
    api.put("sglangbackends", a_document(**({"model": {"name": name}} | changes), name=name))


def put_service(api: FakeApi, name: str = "qwen") -> None:
    """Create a Service with one port."""
    meta = {"name": name, "namespace": NAMESPACE}
    api.put("services", {"metadata": meta, "spec": {"ports": [{"port": 30000}]}})


def put_slice(api: FakeApi, *hosts: str, name: str = "qwen-1", service: str = "qwen") -> None:
    """Create or replace a slice of ready pods at *hosts*."""
    api.put(
        "endpointslices",
        {
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": "IPv4",
            "endpoints": [
                {
                    "addresses": [host],
                    "conditions": {"ready": True},
                    "targetRef": {"kind": "Pod", "name": f"pod-{host}", "uid": f"uid-{host}"},
                }
                for host in hosts
            ],
            "ports": [{"name": "", "port": 30000}],
        },
    )


def is_ready(api: FakeApi, name: str = "chat") -> bool:
    """Return whether the API server's object says Ready."""
    return bool(conditions(api, name).get("Ready", {}).get("status") == "True")


def reason(api: FakeApi, kind: str, name: str = "chat") -> str:
    """Return a condition's reason as the API server has it."""
    return str(conditions(api, name).get(kind, {}).get("reason", ""))


async def test_a_backend_walks_from_apply_to_acknowledged_routers(tmp_path: Path) -> None:
    """Service, slice and backend become a router's table and a status that tells the story."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1", "10.0.0.2")
        put_backend(api)
        async with routing(await running.serves()) as router:
            await until(lambda: is_ready(api), what="Ready")

            status = api.objects("sglangbackends")[(NAMESPACE, "chat")]["status"]
            assert router.table() == {"chat": ["10.0.0.1", "10.0.0.2"]}
            assert status["endpoints"] == {"total": 2, "ready": 2, "draining": 0}
            assert status["routers"] == {"connected": 1, "synced": 1, "rejected": 0}
            assert status["models"] == ["chat"]
            assert status["observedGeneration"] == 1


async def test_a16_a_pod_that_vanished_unseen_leaves_routers(tmp_path: Path) -> None:
    """A slice deleted while the watch is down is gone from routers after the next list."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_slice(api, "10.0.0.2", name="qwen-2")
        put_backend(api)
        async with routing(await running.serves()) as router:
            await until(lambda: router.table().get("chat") == ["10.0.0.1", "10.0.0.2"], what="both")
            api.forget("endpointslices", "qwen-2", NAMESPACE)
            api.fail("drop", "endpointslices")
            put_slice(api, "10.0.0.1", "10.0.0.3")

            await until(
                lambda: router.table().get("chat") == ["10.0.0.1", "10.0.0.3"], what="no ghost"
            )


async def test_a20_a_watch_that_is_refused_does_not_freeze_the_operator(tmp_path: Path) -> None:
    """After 429s and 500s on the backends' watch a new backend is served without a restart."""
    async with (
        running_api() as api,
        operating(api, tmp_path) as running,
        routing(await running.serves()) as router,
    ):
        api.fail("429", "sglangbackends", times=3)
        api.fail("500", "sglangbackends", times=3)
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)

        await until(lambda: router.table() == {"chat": ["10.0.0.1"]}, what="served", within=8)
        assert running.operator.leads


async def test_a21_a_foreign_peering_does_not_pause_the_operator(tmp_path: Path) -> None:
    """Another kopf program's peering object named default concerns nobody here."""
    async with running_api() as api:
        api.served["/apis/kopf.dev/v1"] = ["clusterkopfpeerings", "kopfpeerings"]
        peer = {"priority": 100, "lifetime": 600, "lastseen": "2999-01-01T00:00:00+00:00"}
        api.put(
            "clusterkopfpeerings",
            {"metadata": {"name": "default", "namespace": ""}, "status": {"other": peer}},
        )
        async with operating(api, tmp_path) as running:
            put_service(api)
            put_slice(api, "10.0.0.1")
            put_backend(api)
            async with routing(await running.serves()):
                await until(lambda: is_ready(api), what="Ready")

        touched = [call for call in api.calls if "peerings" in call.plural]
        assert touched == []


async def test_a22_a_status_write_is_no_reason_to_reconcile(tmp_path: Path) -> None:
    """After things settle nothing is composed, pushed or written any more."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        async with routing(await running.serves()):
            await until(lambda: is_ready(api), what="Ready")
            await asyncio.sleep(0.3)
            composed = running.sample("sglr_operator_composed_total", outcome="unchanged")
            patches = api.count("patch", "sglangbackends")
            api.objects("sglangbackends")[(NAMESPACE, "chat")]["metadata"]["annotations"] = {}
            await asyncio.sleep(0.3)

            assert api.count("patch", "sglangbackends") == patches
            assert running.sample("sglr_operator_composed_total", outcome="unchanged") == composed
            assert running.sample("sglr_operator_pushes_total", kind="update") == 1


async def test_a22_a_new_router_changes_the_status_and_reconciles_nothing(tmp_path: Path) -> None:
    """Our own status write comes back as an event of both watches, and is no news to either."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        port = await running.serves()

        def composed() -> float:
            return sum(
                running.sample("sglr_operator_composed_total", outcome=outcome)
                for outcome in ("changed", "unchanged")
            )

        async with routing(port, "r0"):
            await until(lambda: is_ready(api), what="Ready")
            await asyncio.sleep(0.4)
            before = composed()
            async with routing(port, "r1"):
                key = (NAMESPACE, "chat")
                await until(
                    lambda: api.objects("sglangbackends")[key]["status"]["routers"]["synced"] == 2,
                    what="told",
                )
                await asyncio.sleep(0.4)
                assert composed() == before

                put_backend(api, model={"name": "renamed"})
                await until(
                    lambda: api.objects("sglangbackends")[key]["status"]["models"] == ["renamed"],
                    what="one edit",
                )
                assert running.sample("sglr_operator_composed_total", outcome="changed") == 2


async def test_users_objects_get_no_finalizer_and_no_annotation(tmp_path: Path) -> None:
    """Kubectl delete works while the operator is down, and GitOps sees no drift."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_backend(api)
        await running.serves()
        await until(lambda: reason(api, "Ready") != "", what="a status")
        await asyncio.sleep(0.2)

        meta = api.objects("sglangbackends")[(NAMESPACE, "chat")]["metadata"]
        assert not {"finalizers", "annotations"} & meta.keys()
        patched = [c for c in api.calls if c.verb == "patch" and c.plural == "sglangbackends"]
        assert {call.subresource for call in patched} == {"status"}


async def test_an_invalid_spec_keeps_its_last_good_version_and_stops_nobody(
    tmp_path: Path,
) -> None:
    """The condition says what is wrong and where; routers keep serving; the fix is taken."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        async with routing(await running.serves()) as router:
            await until(lambda: is_ready(api), what="Ready")
            put_backend(api, workers={"selector": {}})
            await until(lambda: reason(api, "Accepted") == "InvalidSpec", what="told")
            assert "spec.workers.selector" in conditions(api, "chat")["Accepted"]["message"]
            put_slice(api, "10.0.0.1", "10.0.0.9")
            put_backend(api, "other")
            await until(lambda: "other" in router.table(), what="the other one is served")
            await until(
                lambda: router.table()["chat"] == ["10.0.0.1", "10.0.0.9"],
                what="the last good spec still follows its pods",
            )
            put_backend(api)

            await until(lambda: is_ready(api), what="Ready again")


async def test_a_backend_that_brings_out_a_bug_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception in one backend's walk is logged; the others are served and leadership stays."""
    from sglr_operator import endpoints

    find = endpoints.find

    def failing(backend: SGLangBackend, view: endpoints.View) -> endpoints.Found:
        if backend.metadata.name == "poison":
            raise ZeroDivisionError
        return find(backend, view)

    monkeypatch.setattr(endpoints, "find", failing)
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api, "poison")
        put_backend(api)
        async with routing(await running.serves()) as router:
            await until(lambda: router.table() == {"chat": ["10.0.0.1"]}, what="the other")

            assert running.operator.leads
            assert running.sample("sglr_operator_composed_total", outcome="bug") >= 1


async def test_an_operator_that_starts_with_an_invalid_spec_takes_nothing_away(
    tmp_path: Path,
) -> None:
    """A spec that went bad while no operator ran leaves routers with what they had."""
    async with running_api() as api:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        async with operating(api, tmp_path) as first:
            port = await first.serves()
            async with routing(port) as router:
                await until(lambda: router.table() == {"chat": ["10.0.0.1"]}, what="served")
                await first.end()
                put_backend(api, workers={})
                await _rule_again(api, tmp_path, port, router)


async def _rule_again(api: FakeApi, folder: Path, port: int, router: Router) -> None:
    push = PushConfig(address=Address("127.0.0.1", port), heartbeat=0.5, accepts_per_second=1e6)
    async with operating(api, folder, lambda config: replace(config, push=push)):
        await until(lambda: router.intake.epoch[1] == 1, what="a second epoch")
        await until(lambda: router.intake.connected, what="list complete")

        assert router.table() == {"chat": ["10.0.0.1"]}


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


async def test_a_pod_that_loses_its_label_leaves_routers(tmp_path: Path) -> None:
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


async def test_two_backends_of_one_model_are_told_apart_by_age(tmp_path: Path) -> None:
    """The younger one is refused and not served; when the older goes, it takes over."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api, "older", model={"name": "qwen"})
        put_backend(api, "younger", model={"name": "qwen"})
        async with routing(await running.serves()) as router:
            await until(
                lambda: reason(api, "Accepted", "younger") == "ModelConflict", what="refused"
            )
            await until(lambda: list(router.table()) == ["older"], what="one is served")
            api.delete("sglangbackends", "older", NAMESPACE)

            await until(lambda: list(router.table()) == ["younger"], what="the other takes over")
            await until(lambda: is_ready(api, "younger"), what="Ready")


async def test_a_missing_crd_is_waited_for(tmp_path: Path) -> None:
    """Without the CRD the operator is not ready, says why, and begins when it is served."""
    async with running_api() as api:
        kinds = api.served.pop("/apis/sglr.dev/v1alpha1")
        async with operating(api, tmp_path) as running:
            await until(
                lambda: any("sglangbackends" in why for why in running.operator._ready()),
                what="says what is missing",
            )
            await until(
                lambda: any("404" in why for why in running.operator._ready()), what="and why"
            )
            api.served["/apis/sglr.dev/v1alpha1"] = kinds
            put_service(api)
            put_slice(api, "10.0.0.1")
            put_backend(api)
            async with routing(await running.serves()) as router:
                await until(lambda: router.table() == {"chat": ["10.0.0.1"]}, what="served")

            assert running.operator._ready() == ()


async def test_an_apiserver_that_is_away_at_the_start_is_waited_for(tmp_path: Path) -> None:
    """The operator says what it waits for, and begins when the API server answers."""
    async with running_api() as api:
        api.is_away = True
        async with operating(api, tmp_path) as running:
            await until(
                lambda: any("no complete answer" in why for why in running.operator._ready()),
                what="says so",
            )
            assert running.operator._live() == ()
            api.is_away = False

            await running.serves()


async def test_an_apiserver_that_goes_away_takes_nothing_from_routers(tmp_path: Path) -> None:
    """The leader steps down when its Lease cannot be renewed; routers serve on, and hear it again."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        port = await running.serves()
        async with routing(port) as router:
            await until(lambda: router.table() == {"chat": ["10.0.0.1"]}, what="served")
            api.is_away = True
            api.fail("reset", times=10_000)
            await until(lambda: running.operator.push_port is None, what="steps down", within=8)
            assert router.table() == {"chat": ["10.0.0.1"]}
            assert running.operator._live() == ()
            api.is_away = False
            api.faults.clear()
            put_slice(api, "10.0.0.2")
            again = await running.serves()
            async with routing(again, "later") as later:
                await until(lambda: later.table() == {"chat": ["10.0.0.2"]}, what="current")

                await until(lambda: router.table() == {"chat": ["10.0.0.2"]}, what="heard again")


async def test_a_status_that_cannot_be_written_is_written_later(tmp_path: Path) -> None:
    """A failed write is counted and tried again; Events that fail are let go."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        api.fail("500", "sglangbackends", times=2, verb="patch")
        api.fail("500", "events", times=1)
        put_backend(api)
        async with routing(await running.serves()):
            await until(lambda: is_ready(api), what="Ready", within=10)

            assert running.sample("sglr_operator_status_writes_total", outcome="failed") == 2


async def test_an_inferencepool_api_that_is_not_served_is_a_condition(tmp_path: Path) -> None:
    """A pool is followed only where pools exist."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_backend(api, workers={"inferencePoolRef": {"name": "pool"}})
        await running.serves()

        await until(lambda: reason(api, "ResolvedRefs") == "CRDMissing", what="told")
        assert api.count("list", "inferencepools") == 0


async def test_an_inferencepool_gives_its_pods(tmp_path: Path) -> None:
    """Where the API is served, the pool's selector and ports are followed."""
    async with running_api() as api:
        api.served["/apis/inference.networking.k8s.io/v1"] = ["inferencepools"]
        meta = {"name": "pool", "namespace": NAMESPACE}
        spec = {"selector": {"matchLabels": {"app": "q"}}, "targetPorts": [{"number": 8000}]}
        api.put("inferencepools", {"metadata": meta, "spec": spec})
        pod = {"name": "p", "namespace": NAMESPACE, "labels": {"app": "q"}}
        status = {
            "phase": "Running",
            "podIP": "10.0.0.5",
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        async with operating(api, tmp_path) as running:
            put_backend(api, workers={"inferencePoolRef": {"name": "pool"}})
            async with routing(await running.serves()) as router:
                api.put("pods", {"metadata": pod, "status": status})

                await until(lambda: router.table() == {"chat": ["10.0.0.5"]}, what="followed")


async def test_the_older_endpointslice_api_serves_as_well(tmp_path: Path) -> None:
    """A server with v1beta1 alone is read with v1beta1."""
    async with running_api() as api:
        api.served["/apis/discovery.k8s.io/v1beta1"] = api.served.pop("/apis/discovery.k8s.io/v1")
        async with operating(api, tmp_path) as running:
            put_service(api)
            put_slice(api, "10.0.0.1")
            put_backend(api)
            async with routing(await running.serves()) as router:
                await until(lambda: router.table() == {"chat": ["10.0.0.1"]}, what="served")


async def test_a24_a_namespaced_operator_asks_for_nothing_else(tmp_path: Path) -> None:
    """With everything outside its namespace forbidden it works, and asks for nothing outside."""

    def allowed(call: Call) -> bool:
        return call.namespace in {NAMESPACE, "default"} and call.plural != "secrets"

    async with running_api() as api:
        api.allowed = allowed
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)

        def only(config: Any) -> Any:
            return replace(config, namespaces=(NAMESPACE,))

        async with (
            operating(api, tmp_path, only) as running,
            routing(await running.serves()) as router,
        ):
            await until(lambda: router.table() == {"chat": ["10.0.0.1"]}, what="served")
            await until(lambda: is_ready(api), what="Ready")

        refused = [call for call in api.calls if not allowed(call)]
        assert refused == []
        assert not [call for call in api.calls if call.plural in {"secrets", "configmaps"}]


async def test_a24_a_missing_permission_is_said_and_makes_it_unready(tmp_path: Path) -> None:
    """A 403 is one clear sentence on /readyz, and nothing is pushed."""
    async with running_api() as api:
        api.allowed = lambda call: call.plural != "pods"
        async with operating(api, tmp_path) as running:
            await until(
                lambda: any("cannot list pods" in why for why in running.operator._ready()),
                what="says what is forbidden",
            )
            url = f"http://127.0.0.1:{running.operator.http_port}/readyz"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                assert answer.status == 503
                assert "cannot list pods" in await answer.text()

            assert running.operator.push_port is None


async def test_health_metrics_and_debug_are_served(tmp_path: Path) -> None:
    """A standby and a leader are both ready; metrics are there from the start."""
    async with running_api() as api, operating(api, tmp_path) as running:
        await running.serves()
        base = f"http://127.0.0.1:{running.operator.http_port}"
        async with aiohttp.ClientSession() as session:
            for path in ("livez", "readyz"):
                async with session.get(f"{base}/{path}") as answer:
                    assert (answer.status, await answer.text()) == (200, "ok\n")
            async with session.get(f"{base}/metrics") as answer:
                text = await answer.text()

            async with session.get(
                f"http://127.0.0.1:{running.operator.debug_port}/debug/snapshot"
            ) as answer:
                shown = await answer.json()

        assert shown["leads"]
        assert shown["published"]["complete"]
        assert "sglr_operator_leader 1.0" in text
        assert 'sglr_operator_stale_seconds{resource="pods"}' in text


async def test_a_clean_hand_over_takes_less_than_three_seconds(tmp_path: Path) -> None:
    """The standby leads under a later epoch soon after the leader was told to stop."""
    async with running_api() as api:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)

        def named(name: str) -> Any:
            return lambda config: replace(config, lease=replace(config.lease, identity=name))

        async with operating(api, tmp_path, named("a")) as first:
            await first.serves()
            async with operating(api, tmp_path, named("b")) as second:
                await until(lambda: second.operator._ready() == (), what="the standby is ready")
                assert second.operator.push_port is None
                began = asyncio.get_running_loop().time()
                await first.end()
                port = await second.serves()
                assert asyncio.get_running_loop().time() - began < 3.0
                async with routing(port) as router:
                    await until(lambda: router.table() == {"chat": ["10.0.0.1"]}, what="served")

                    assert router.intake.epoch[1] == 1


async def test_routers_that_know_a_later_epoch_are_outbid(tmp_path: Path) -> None:
    """A Lease made anew counts from the start; the leader rises above what routers remember."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        await running.serves()
        leadership = running.operator.leadership
        assert leadership is not None
        leadership._note_outranked((4_000_000_000, 7))
        await until(lambda: leadership.publisher.epoch == (4_000_000_000, 8), what="a higher epoch")
        async with routing(await running.serves()) as router:
            await until(lambda: router.table() == {"chat": ["10.0.0.1"]}, what="served")


KINDS: list[FaultKind] = [
    "429", "500", "410", "410 event", "504 version", "reset", "drop", "half-open", "stale",
    "duplicate", "bookmarks only", "delay",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
async def test_after_any_schedule_of_faults_routers_equal_the_server(
    seed: int, tmp_path: Path
) -> None:
    """When faults stop, routers' tables are the server's truth within one watch's lifetime."""
    chance = random.Random(seed)
    plurals = ["endpointslices", "sglangbackends", "services", "pods"]
    truth: dict[str, list[str]] = {}
    async with running_api() as api, operating(api, tmp_path) as running:
        for index in range(3):
            put_service(api, f"s{index}")
        async with routing(await running.serves()) as router:
            for _ in range(50):
                if chance.random() < 0.4:
                    api.fail(chance.choice(KINDS), chance.choice(plurals))
                _change(api, chance, truth)
                await asyncio.sleep(chance.random() * 0.03)
            api.faults.clear()

            # A watch's lifetime (2 s), the silence of a half-open one, and a few backoffs.
            await until(
                lambda: router.table() == truth, what=f"seed {seed}: equal to the truth", within=8
            )


def _change(api: FakeApi, chance: random.Random, truth: dict[str, list[str]]) -> None:
    """Make one random change in *api* and in *truth*."""
    index = chance.randrange(3)
    name, service = f"b{index}", f"s{index}"
    if chance.random() < 0.3 and name in truth:
        remove = chance.choice([api.delete, api.forget])
        remove("sglangbackends", name, NAMESPACE)
        truth.pop(name)
        return
    hosts = sorted(f"10.0.{index}.{chance.randrange(9)}" for _ in range(2))
    put_slice(api, *dict.fromkeys(hosts), name=f"slice-{index}", service=service)
    put_backend(api, name, workers={"service": {"name": service}})
    truth[name] = list(dict.fromkeys(hosts))
