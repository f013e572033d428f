"""An operator of one namespace, with no right anywhere else, on a real API server."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ports import reserved_port

from sglr_dataplane.fleet.credentials import credentials_of
from sglr_dataplane.fleet.intake_config import IntakeConfig
from support.certificates import authority, issue
from support.kube_objects import a_document
from support.kube_real import SYSTEM, RealCluster, condition, eventually
from support.push import Router, routing

pytestmark = pytest.mark.timeout(180)

RULES = ("watch.yaml", "references.yaml")


def flags(namespace: str, folder: Path) -> tuple[str, ...]:
    """Return how the operator is told its namespace, its certificate and who may subscribe."""
    authority(folder, "ca")
    certificate, key = issue(folder, "server", "ca")
    return (
        *("--namespace", namespace, "--references", "--push-auth", "token-keys"),
        *("--push-certificate", str(certificate), "--push-key", str(key)),
        *("--router-account", f"{namespace}:router", "--lease-name", "sglr-operator"),
    )


def account(cluster: RealCluster, namespace: str, name: str) -> None:
    """Create a service account."""
    meta = {"name": name, "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})


def showing(folder: Path, token: str) -> Callable[[IntakeConfig], IntakeConfig]:
    """Return the change that makes a router show *token*."""
    path = folder / f"token-{abs(hash(token))}"
    path.write_text(token)
    return lambda config: replace(config, ca=folder / "ca.crt", token=path)


def secret(namespace: str, value: str) -> dict[str, Any]:
    """Return the labelled Secret with the workers' key."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "worker",
            "namespace": namespace,
            "labels": {"sglr.dev/for-routers": "true"},
        },
        "data": {"key": base64.b64encode(value.encode()).decode()},
    }


def worker_key(router: Router) -> str | None:
    """Return the key that a router would show workers."""
    found = router.applied[-1].backends if router.applied else ()
    return credentials_of(found[0].backend.spec).key if found else None


async def within(claim: Callable[[], bool], *, what: str) -> None:
    """Wait in a thread for *claim*, so that routers in this loop go on."""
    await asyncio.to_thread(eventually, claim, what=what, within=30)


async def test_a24_one_namespace_is_served_with_rights_in_it_alone(
    cluster: RealCluster, tmp_path: Path
) -> None:
    """Published keys let its router in; a Secret appears, rotates, and reaches the router."""
    namespace, port = cluster.namespace(), reserved_port()
    elsewhere = cluster.namespace()
    cluster.workers(namespace, "qwen", "10.0.0.1")
    for name in ("router", "stranger"):
        account(cluster, namespace, name)
    who = cluster.grant_namespaced(namespace, *RULES)
    given = flags(namespace, tmp_path)
    with cluster.operator(f"of-{namespace}", port, *given, account=who) as operator:
        spec = {"workerAuth": {"apiKeySecretRef": {"name": "worker", "key": "key"}}}
        for place in (namespace, elsewhere):
            document = a_document(model={"name": f"m-{place}"}, **spec)
            document["metadata"]["namespace"] = place
            cluster.apply(document)
        good = showing(tmp_path, cluster.token("router", namespace, "sglr-operator"))
        stranger = showing(tmp_path, cluster.token("stranger", namespace, "sglr-operator"))
        general = showing(tmp_path, cluster.token("router", namespace))
        async with (
            routing(port, change=good) as router,
            routing(port, "stranger", change=stranger) as refused,
            routing(port, "general", change=general) as misused,
        ):

            def resolved() -> dict[str, Any]:
                return condition(cluster.get("sglb", "chat", namespace), "ResolvedRefs")

            await within(lambda: resolved().get("reason") == "SecretNotFound", what="told")
            cluster.apply(secret(namespace, "first"))
            await within(lambda: worker_key(router) == "first", what="used")
            await within(
                lambda: (
                    condition(cluster.get("sglb", "chat", namespace), "Ready").get("status")
                    == "True"
                ),
                what="Ready",
            )
            cluster.apply(secret(namespace, "second"))
            await within(lambda: worker_key(router) == "second", what="rotated")

            assert refused.applied == []
            assert misused.applied == []
            assert operator.logged("may not subscribe")
            assert operator.logged("not made for audience")
            # Nothing outside: no status there, and no request was refused.
            assert "status" not in cluster.get("sglb", "chat", elsewhere)
            assert not operator.logged('"forbidden"')
            assert not operator.logged("first")
            text = json.dumps(cluster.get("sglb", "chat", namespace))
            assert "second" not in text
        assert operator.end() == 0
        assert cluster.get("lease", "sglr-operator", SYSTEM)
