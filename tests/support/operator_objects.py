"""Objects that tests of the whole operator put on the fake API server, and what became of them."""

from __future__ import annotations

from typing import Any

from support.kube_api import FakeApi
from support.kube_objects import NAMESPACE, a_document
from support.kube_wait import until
from support.operators import conditions


async def idle(api: FakeApi) -> None:
    """Wait until every watch has been told several times that nothing is new."""
    watches = 6
    wanted = api.bookmarks + 6 * watches
    await until(lambda: api.bookmarks >= wanted, what="nothing new")


def put_backend(api: FakeApi, name: str = "chat", **changes: Any) -> None:
    """Create or change a backend in *api*; *changes* are its spec's parts, or its namespace."""
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


def is_ready(api: FakeApi, name: str = "chat", namespace: str = NAMESPACE) -> bool:
    """Return whether the API server's object says Ready."""
    found = conditions(api, name, namespace)
    return bool(found.get("Ready", {}).get("status") == "True")


def reason(api: FakeApi, kind: str, name: str = "chat", namespace: str = NAMESPACE) -> str:
    """Return a condition's reason as the API server has it."""
    return str(conditions(api, name, namespace).get(kind, {}).get("reason", ""))
