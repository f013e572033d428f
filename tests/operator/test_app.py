"""The whole operator against an API server that fails, with real routers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sglr_operator.config import Address, PushConfig
from sglr_proto.backend import SGLangBackend
from support.kube_api import FakeApi, running_api
from support.kube_objects import NAMESPACE
from support.kube_wait import until
from support.operator_objects import idle, is_ready, put_backend, put_service, put_slice, reason
from support.operators import conditions, operating
from support.push import Router, routing


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
            await idle(api)
            composed = running.sample("sglr_operator_composed_total", outcome="unchanged")
            patches = api.count("patch", "sglangbackends")
            api.objects("sglangbackends")[(NAMESPACE, "chat")]["metadata"]["annotations"] = {}
            await idle(api)

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
            await idle(api)
            before = composed()
            async with routing(port, "r1"):
                key = (NAMESPACE, "chat")
                await until(
                    lambda: api.objects("sglangbackends")[key]["status"]["routers"]["synced"] == 2,
                    what="told",
                )
                await idle(api)
                assert composed() == before

                put_backend(api, model={"name": "renamed"})
                await until(
                    lambda: api.objects("sglangbackends")[key]["status"]["models"] == ["renamed"],
                    what="one edit",
                )
                assert running.sample("sglr_operator_composed_total", outcome="changed") == 2


async def test_k29_users_objects_get_no_finalizer_and_no_annotation(tmp_path: Path) -> None:
    """Kubectl delete works while the operator is down, and GitOps sees no drift."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_backend(api)
        await running.serves()
        await until(lambda: reason(api, "Ready") != "", what="a status")
        await idle(api)

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
