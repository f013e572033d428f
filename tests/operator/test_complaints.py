"""What people complain about in other routers' discovery, push, status and leadership.

A test whose name begins with ``k`` and a number answers one of these; A16 to A24 answer the rest.

==== ==================================================================================
k02  an evicted pod, which has no address any more, is never removed
k09  pod addresses do not work in a mesh: host names must be possible
k10  two routers that start at once get different lists
k13  requests go on after Ready=False, or after the label is gone
k14  watches go silent on managed clouds, and nothing is ever listed again
k15  a worker is known by everything about its pod: an old address stays
k17  a pod that is deleted by force stays in the table
k18  a worker's port changes while it is ready, and nobody notices
k19  no endpoint, and not a word why
k22  readiness that waits for leadership blocks rollouts
k23  a standby begins with empty caches
k24  no status: `kubectl wait` has nothing to wait for
k25  a condition about something that the spec no longer names stays
k26  messages above 4 MiB break the stream
k28  rejections are told nowhere, and churn that changes nothing is pushed
k29  the framework leaves finalizers and annotations on users' objects
==== ==================================================================================
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from sglr_operator.config import OperatorConfig
from sglr_operator.endpoints import find
from support.kube_api import FakeApi, running_api
from support.kube_objects import (
    NAMESPACE,
    World,
    a_backend,
    a_pod,
    a_service,
    a_slice,
    an_entry,
)
from support.kube_wait import until
from support.operator_objects import is_ready, put_backend, put_service, put_slice, reason
from support.operators import operating
from support.push import routing

BY_LABEL: dict[str, Any] = {"selector": {"matchLabels": {"app": "q"}}}


def put_pod(api: FakeApi, name: str, ip: str | None, phase: str = "Running") -> None:
    """Create or change a selected pod; it is ready while it has an address."""
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": "True" if ip else "False"}],
    }
    if ip is not None:
        status["podIP"] = ip
    meta = {"name": name, "namespace": NAMESPACE, "labels": {"app": "q"}, "uid": f"uid-{name}"}
    api.put("pods", {"metadata": meta, "status": status})


async def test_k02_an_evicted_pod_leaves_routers(tmp_path: Path) -> None:
    """MODIFIED, with phase Failed and no address: gone, as if it had been deleted."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_pod(api, "one", "10.0.0.1")
        put_pod(api, "two", "10.0.0.2")
        put_backend(api, workers=BY_LABEL)
        async with routing(await running.serves()) as router:
            await until(lambda: router.table() == {"chat": ["10.0.0.1", "10.0.0.2"]}, what="both")
            put_pod(api, "one", None, phase="Failed")

            await until(lambda: router.table() == {"chat": ["10.0.0.2"]}, what="one is gone")


async def test_k17_a_pod_deleted_by_force_leaves_routers(tmp_path: Path) -> None:
    """No deletionTimestamp was ever seen; the object is simply gone."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_pod(api, "one", "10.0.0.1")
        put_pod(api, "two", "10.0.0.2")
        put_backend(api, workers=BY_LABEL)
        async with routing(await running.serves()) as router:
            await until(lambda: router.table() == {"chat": ["10.0.0.1", "10.0.0.2"]}, what="both")
            api.delete("pods", "one", NAMESPACE)

            await until(lambda: router.table() == {"chat": ["10.0.0.2"]}, what="one is gone")


async def test_k14_everything_is_listed_anew_though_nothing_fails(tmp_path: Path) -> None:
    """A watch lives for a bounded time, and a full list follows each; it is no failure."""

    def short(config: OperatorConfig) -> OperatorConfig:
        return replace(config, watch=replace(config.watch, server_timeout=1.0, steady_after=0.5))

    async with running_api() as api, operating(api, tmp_path, short) as running:
        await running.serves()
        plurals = ("pods", "services", "endpointslices", "sglangbackends")
        before = {plural: api.count("list", plural) for plural in plurals}

        await until(
            lambda: all(api.count("list", plural) >= n + 2 for plural, n in before.items()),
            what="listed twice more",
            within=15.0,
        )
        failed = running.sample(
            "sglr_operator_watch_failures_total", resource="pods", failure="error"
        )
        assert failed == 0


def test_k18_another_port_of_the_same_ready_pod_is_another_endpoint() -> None:
    """Pod, address and readiness stay; what must be dialled does not."""

    def found(port: int) -> list[tuple[str, str]]:
        pieces = (a_slice("s", an_entry("a", "10.0.0.1"), ports={"": port}),)
        world = World(services=(a_service(),), slice_list=pieces, pod_list=(a_pod("a"),))
        return [(each.id, each.address) for each in find(a_backend(), world).endpoints]

    assert found(30000) == [("uid-a:30000", "10.0.0.1:30000")]
    assert found(30001) == [("uid-a:30001", "10.0.0.1:30001")]


async def test_k18_a_changed_port_reaches_routers(tmp_path: Path) -> None:
    """Routers compare what an endpoint is, not only which one it is."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)
        async with routing(await running.serves()) as router:
            await until(lambda: is_ready(api), what="Ready")
            changed = copy.deepcopy(api.objects("endpointslices")[(NAMESPACE, "qwen-1")])
            changed["ports"] = [{"name": "", "port": 30001}]
            api.put("endpointslices", changed)

            def ports() -> list[int]:
                return [each.port for each in router.applied[-1].backends[0].endpoints]

            await until(lambda: ports() == [30001], what="the new port")


async def test_k25_a_condition_goes_with_what_it_was_about(tmp_path: Path) -> None:
    """ServiceNotFound does not outlive the spec that named the Service."""
    async with running_api() as api, operating(api, tmp_path) as running:
        put_backend(api)
        async with routing(await running.serves()):
            await until(lambda: reason(api, "ResolvedRefs") == "ServiceNotFound", what="told")
            put_backend(api, workers={"static": {"endpoints": [{"host": "10.0.0.9"}]}})

            await until(lambda: reason(api, "ResolvedRefs") == "ResolvedRefs", what="taken back")
            await until(lambda: is_ready(api), what="Ready")
