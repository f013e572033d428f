"""The copy of the last good list that routers mount."""

from __future__ import annotations

import asyncio
import base64
import random
from dataclasses import replace
from pathlib import Path

from kubernetes.aio.client import ApiClient, Configuration

from sglr_operator.config import CopyConfig, OperatorConfig
from sglr_operator.keeper import Keeper
from sglr_operator.kube import Kube
from sglr_proto.keepsake import unpack
from sglr_proto.snapshot import BackendSnapshot, Endpoint, Snapshot
from support.kube_api import FakeApi, running_api
from support.kube_objects import a_backend, a_document
from support.kube_wait import until
from support.operators import operating
from support.push import routing


def kept(api: FakeApi) -> Snapshot | None:
    """Return what the ConfigMap holds; None while there is none."""
    body = api.objects("configmaps").get(("default", "sglr-last-known-good"))
    return unpack(base64.b64decode(body["binaryData"]["snapshot"])) if body else None


async def test_a_router_starts_from_the_copy_while_no_operator_answers(tmp_path: Path) -> None:
    """What the leader keeps is what a new router has in force."""

    def keeping(config: OperatorConfig) -> OperatorConfig:
        return replace(config, copy=CopyConfig(interval=0.05))

    async with running_api() as api:
        endpoints = [{"host": "10.0.0.1"}]
        api.put("sglangbackends", a_document({"static": {"endpoints": endpoints}}))
        async with operating(api, tmp_path, keeping) as running:
            await running.serves()
            await until(lambda: kept(api) is not None, what="kept")
        body = api.objects("configmaps")["default", "sglr-last-known-good"]
        mounted = tmp_path / "snapshot"
        mounted.write_bytes(base64.b64decode(body["binaryData"]["snapshot"]))
        async with routing(1, change=lambda config: replace(config, mounted=mounted)) as router:
            await until(lambda: router.table() == {"chat": ["10.0.0.1"]}, what="in force")

            assert router.intake.startup == "mounted"


async def test_it_is_written_when_it_changed_and_while_leading_only() -> None:
    """The same list is written once; a replica that does not lead writes nothing."""
    snapshots = [Snapshot(epoch=(1, 1), version=1)]
    leads = [False]
    asked = [0]

    def newest() -> Snapshot:
        asked[0] += 1
        return snapshots[-1]

    async def looked() -> None:
        """Wait until the keeper has looked several times more."""
        wanted = asked[0] + 5
        await until(lambda: asked[0] >= wanted, what="looked")

    async with running_api() as api, ApiClient(Configuration(host=api.url)) as client:
        keeper = Keeper(
            Kube(client),
            "default",
            "sglr-last-known-good",
            snapshot=newest,
            may_write=lambda: leads[0],
            interval=0.01,
        )
        task = asyncio.ensure_future(keeper.run())
        await looked()
        assert api.count("patch", "configmaps") == 0
        leads[0] = True
        await until(lambda: kept(api) == snapshots[0], what="written")
        await looked()
        assert api.count("patch", "configmaps") == 1
        api.fail("500", "configmaps")
        snapshots.append(Snapshot(epoch=(1, 1), version=2))
        await until(lambda: kept(api) == snapshots[1], what="written after a failure")
        task.cancel()


async def test_a_list_that_outgrew_a_configmap_leaves_the_older_copy() -> None:
    """What cannot be stored is not sent, and said."""
    chance = random.Random(1)
    endpoints = tuple(
        Endpoint(id=f"{chance.getrandbits(128):032x}:1", host="10.0.0.1", port=1)
        for _ in range(50_000)
    )
    large = Snapshot(
        backends=(BackendSnapshot(backend=a_backend(), endpoints=endpoints),), version=1
    )
    async with running_api() as api, ApiClient(Configuration(host=api.url)) as client:
        keeper = Keeper(
            Kube(client),
            "default",
            "c",
            snapshot=lambda: large,
            may_write=lambda: True,
            interval=0.01,
        )
        task = asyncio.ensure_future(keeper.run())
        await until(lambda: keeper._is_too_long, what="said", within=10)
        task.cancel()

        assert api.count("patch", "configmaps") == 0
