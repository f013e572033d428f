"""The whole operator against API servers that are away, old, strict or full of faults."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from support.kube_api import FakeApi, FaultKind, running_api
from support.kube_objects import NAMESPACE
from support.kube_wait import until
from support.kube_wire import Call
from support.operator_objects import is_ready, put_backend, put_service, put_slice, reason
from support.operators import operating
from support.push import routing


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


async def test_k22_health_metrics_and_debug_are_served(tmp_path: Path) -> None:
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


async def test_k23_a_clean_hand_over_does_not_wait_for_the_lease_to_end(tmp_path: Path) -> None:
    """The standby, its caches full, leads under a later epoch as soon as the leader let go."""
    async with running_api() as api:
        put_service(api)
        put_slice(api, "10.0.0.1")
        put_backend(api)

        def named(name: str) -> Any:
            # Ten minutes: only a Lease that was given back can be taken in time.
            lease = {"identity": name, "duration": 600.0, "renew_deadline": 400.0}
            return lambda config: replace(config, lease=replace(config.lease, **lease))

        async with operating(api, tmp_path, named("a")) as first:
            await first.serves()
            async with operating(api, tmp_path, named("b")) as second:
                await until(lambda: second.operator._ready() == (), what="the standby is ready")
                assert second.operator.push_port is None
                first.operator.stop()
                port = await second.serves()
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
