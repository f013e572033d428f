"""From kubectl apply to routers that acknowledge, on a real API server."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from ports import reserved_port

from support.kube_objects import a_document
from support.kube_real import SYSTEM, RealCluster, condition, eventually
from support.push import routing
from support.router_process import MODEL, answers, worker_and_router

pytestmark = pytest.mark.timeout(180)

AT_ONCE = ("--force", "--grace-period=0", "--timeout=20s")
"""No kubelet confirms the end of a pod here."""


def backend(namespace: str, name: str = "chat", **changes: Any) -> dict[str, Any]:
    """Return a backend of the Service ``qwen`` whose model no other namespace serves."""
    document = a_document(name=name, **({"model": {"name": f"{namespace}-{name}"}} | changes))
    document["metadata"]["namespace"] = namespace
    return document


async def within(claim: Any, *, what: str, seconds: float = 30.0) -> None:
    """Wait in a thread for *claim*, so that routers in this loop go on."""
    await asyncio.to_thread(eventually, claim, what=what, within=seconds)


def ready(cluster: RealCluster, namespace: str, name: str = "chat") -> bool:
    """Return whether a backend's condition Ready is True."""
    found = condition(cluster.get("sglb", name, namespace), "Ready")
    return bool(found.get("status") == "True")


async def test_the_whole_chain_from_kubectl_to_an_acknowledging_router(
    cluster: RealCluster,
) -> None:
    """Pods become slices, slices become a router's table, and the status tells it."""
    namespace, port = cluster.namespace(), reserved_port()
    cluster.workers(namespace, "qwen", "10.0.0.1", "10.0.0.2")
    with cluster.operator("chain", port) as operator:
        cluster.apply(backend(namespace))
        async with routing(port) as router:
            await within(lambda: ready(cluster, namespace), what="Ready")
            assert sorted(router.table()["chat"]) == ["10.0.0.1", "10.0.0.2"]
            waited = ("wait", "--for=condition=Ready", "sglb/chat", "-n", namespace)
            assert "condition met" in cluster.kubectl(*waited, "--timeout=5s")
            line = cluster.kubectl("get", "sglb", "-n", namespace).splitlines()[1].split()
            assert line[2:7] == ["2", "2", "1", "True", "Ready"]

            cluster.report(namespace, "qwen-1", "10.0.0.1", ready=False)
            await within(
                lambda: cluster.get("sglb", "chat", namespace)["status"]["endpoints"]["ready"] == 1,
                what="one is not ready",
            )
            cluster.kubectl("delete", "pod", "qwen-1", "-n", namespace, *AT_ONCE)
            await within(lambda: sorted(router.table()["chat"]) == ["10.0.0.2"], what="gone")
            cluster.kubectl("delete", "sglb", "chat", "-n", namespace, "--timeout=10s")
            await within(lambda: "chat" not in router.table(), what="removed")
        assert operator.end() == 0
        assert not operator.logged("Traceback")
        assert not operator.logged('"forbidden"')


async def test_events_tell_what_is_missing(cluster: RealCluster) -> None:
    """Kubectl describe shows the Event of a Service that does not exist."""
    namespace, port = cluster.namespace(), reserved_port()
    with cluster.operator("events", port):
        cluster.apply(backend(namespace))
        await within(
            lambda: "ServiceNotFound" in cluster.kubectl("get", "events", "-n", namespace),
            what="an Event",
        )

        text = cluster.kubectl("describe", "sglb", "chat", "-n", namespace)
        assert "Service 'qwen' does not exist" in text


async def test_the_status_belongs_to_our_field_manager_and_settles(cluster: RealCluster) -> None:
    """A settled status is not written again, and every field of it is owned by us."""
    namespace, port = cluster.namespace(), reserved_port()
    cluster.workers(namespace, "qwen", "10.0.0.1")
    with cluster.operator("owner", port):
        cluster.apply(backend(namespace))
        async with routing(port):
            await within(lambda: ready(cluster, namespace), what="Ready")
            # Others are written meanwhile, each with all that a backend goes through.
            settled = ""
            for other in ("one", "two"):
                settled = cluster.get("sglb", "chat", namespace)["metadata"]["resourceVersion"]
                cluster.apply(backend(namespace, other))
                await within(lambda name=other: ready(cluster, namespace, name), what="another")
            body = cluster.get("sglb", "chat", namespace)

    assert body["metadata"]["resourceVersion"] == settled
    owners = {each["manager"] for each in body["metadata"]["managedFields"]}
    assert "sglr-operator" in owners
    assert "finalizers" not in body["metadata"]


async def test_an_apiserver_restart_and_an_etcd_compaction_leave_no_ghost(
    cluster: RealCluster,
) -> None:
    """After both, routers follow the truth, and lost nothing in between."""
    namespace, port = cluster.namespace(), reserved_port()
    cluster.workers(namespace, "qwen", "10.0.0.1", "10.0.0.2")
    with cluster.operator("restart", port):
        cluster.apply(backend(namespace))
        async with routing(port) as router:
            await within(lambda: ready(cluster, namespace), what="Ready")
            await asyncio.to_thread(cluster.script, "restart-apiserver")
            await asyncio.to_thread(cluster.script, "compact")
            assert sorted(router.table()["chat"]) == ["10.0.0.1", "10.0.0.2"]
            cluster.kubectl("delete", "pod", "qwen-2", "-n", namespace, *AT_ONCE)
            cluster.pod(namespace, "qwen-3", "10.0.0.3", {"app": "qwen"})

            await within(
                lambda: sorted(router.table()["chat"]) == ["10.0.0.1", "10.0.0.3"],
                what="the truth after the restart",
                seconds=60,
            )


@pytest.mark.parametrize(("how", "limit"), [(signal.SIGTERM, 3.0), (signal.SIGKILL, 20.0)])
async def test_a_standby_takes_over_in_time(
    cluster: RealCluster, how: signal.Signals, limit: float
) -> None:
    """Under 3 s after a clean end and under 20 s after a kill a router hears the standby."""
    namespace = cluster.namespace()
    cluster.workers(namespace, "qwen", "10.0.0.1")
    first, second = reserved_port(), reserved_port()
    with ExitStack() as stack:
        leader = stack.enter_context(cluster.operator(f"{how.name}-a", first))
        await within(lambda: leader.logged("serving routers"), what="the first leads")
        standby = stack.enter_context(cluster.operator(f"{how.name}-b", second))
        cluster.apply(backend(namespace))
        seen: set[str] = set()

        def renewed() -> bool:
            seen.add(cluster.get("lease", "sglr-operator", SYSTEM)["spec"]["renewTime"])
            return len(seen) > 3  # the standby, as often as the leader, looked at it

        await within(renewed, what="the leader renews")
        assert not standby.logged("serving routers")
        began = time.monotonic()
        leader.signal(how)
        await within(lambda: standby.logged("serving routers"), what="the second", seconds=limit)
        async with routing(second) as router:
            await within(lambda: router.table().get("chat") == ["10.0.0.1"], what="it is heard")

        print(f"{how.name}: {time.monotonic() - began:.1f} s")  # noqa: T201  # a measurement


async def test_a_paused_leader_cannot_push_what_it_knew(cluster: RealCluster) -> None:
    """A leader that wakes up after its time sends its routers away instead of feeding them."""
    namespace = cluster.namespace()
    cluster.workers(namespace, "qwen", "10.0.0.1")
    first, second = reserved_port(), reserved_port()
    with ExitStack() as stack:
        leader = stack.enter_context(cluster.operator("paused-a", first))
        await within(lambda: leader.logged("serving routers"), what="the first leads")
        standby = stack.enter_context(cluster.operator("paused-b", second))
        cluster.apply(backend(namespace))
        async with routing(first) as router:
            await within(lambda: router.table().get("chat") == ["10.0.0.1"], what="heard")
            leader.signal(signal.SIGSTOP)
            await within(lambda: standby.logged("serving routers"), what="takes over", seconds=25)
            cluster.pod(namespace, "qwen-2", "10.0.0.2", {"app": "qwen"})
            async with routing(second, "other") as other:
                await within(lambda: len(other.table().get("chat", [])) == 2, what="the new list")
            applied = len(router.applied)
            leader.signal(signal.SIGCONT)
            await within(lambda: leader.logged("leadership lost"), what="it finds out")
            await within(lambda: not router.intake.connected, what="its router is sent away")

            assert len(router.applied) == applied
            lease = cluster.get("lease", "sglr-operator", SYSTEM)
            assert lease["spec"]["holderIdentity"] == "paused-b"


async def test_a_router_shows_a_token_that_the_apiserver_vouches_for(
    cluster: RealCluster, tmp_path: Any
) -> None:
    """TokenReview by the operator's own account: the audience and the account decide."""
    from kubernetes.aio import config as kube_config
    from kubernetes.aio.client import ApiClient, Configuration

    from sglr_operator.kube import Kube
    from sglr_operator.tokens import TokenReviewer

    account = {"name": "router", "namespace": SYSTEM}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    good = cluster.token("router", SYSTEM, "sglr-operator")
    foreign = cluster.token("operator", SYSTEM, "sglr-operator")
    other = cluster.token("router", SYSTEM)
    loader: Any = kube_config
    configuration = Configuration()
    await loader.load_kube_config(
        config_file=str(cluster.root / "kubeconfig"), client_configuration=configuration
    )
    async with ApiClient(configuration) as client:
        review = TokenReviewer(Kube(client), "sglr-operator", (f"{SYSTEM}:router",))

        assert await review(good) is None
        assert "may not subscribe" in (await review(foreign) or "")
        assert await review(other) is not None
        assert "does not know" in (await review("nonsense") or "")
    assert json.dumps(account)


async def test_a_chat_walks_from_kubectl_to_a_worker_through_a_router_process(
    cluster: RealCluster, tmp_path: Path
) -> None:
    """The pod's address and the Service's port are a simulated worker's; a client is answered."""
    namespace, port = cluster.namespace(), reserved_port()
    with cluster.operator("chat", port):
        async with worker_and_router(port, tmp_path, f"{namespace}-chat") as (worker, url):
            cluster.workers(namespace, "qwen", "127.0.0.1", port=worker)
            cluster.apply(backend(namespace, tokenizer={"path": str(MODEL)}))
            found = await answers(url, f"{namespace}-chat", within=60)
            assert found["choices"][0]["message"]["role"] == "assistant"

            await within(lambda: ready(cluster, namespace), what="Ready")
            await within(
                lambda: cluster.get("sglb", "chat", namespace)["status"]["workers"]["healthy"] == 1,
                what="the worker's health is told",
            )
