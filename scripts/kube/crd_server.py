"""Puts a current server of custom resources behind the older API server of the tests.

The API server of scripts/kube/build.sh knows no CEL. Kubernetes lets another server answer for a group
(API aggregation), the group of CustomResourceDefinitions included. Both keep what they hold in the
same etcd, apart from each other. Nobody runs a cluster like this: it is a bench, and what is found
on it holds for the schema, its rules and strict validation, not for Kubernetes as a whole.
"""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kube.cluster import Cluster

NAME: Final = "apiextensions-apiserver"
GROUP, VERSION = "sglr.dev", "v1alpha1"
_SERVICES: Final = "/apis/apiregistration.k8s.io/v1/apiservices"
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_BUILT_IN: Final = "v1.apiextensions.k8s.io"


def command(cluster: Cluster, program: Path) -> list[str]:
    """Return how *program* is started beside the API server of *cluster*."""
    config = cluster.root / "kubeconfig"
    return [
        str(program),
        f"--etcd-servers=http://127.0.0.1:{cluster.ports.etcd}",
        "--etcd-prefix=/registry-crd",
        "--bind-address=127.0.0.1",
        f"--secure-port={cluster.ports.crd}",
        f"--tls-cert-file={cluster.keys}/server.crt",
        f"--tls-private-key-file={cluster.keys}/server.key",
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        # What they ask for is not served by the older API server.
        "--enable-priority-and-fairness=false",
        "--disable-admission-plugins=ValidatingAdmissionPolicy,MutatingAdmissionPolicy",
    ]


def attach(cluster: Cluster) -> None:
    """Let the API server of *cluster* send definitions, and objects of our group, to the other one."""
    place = "/api/v1/namespaces/kube-system/services"
    cluster.wait(NAME, lambda: bool(cluster.get("/api/v1/namespaces/kube-system")))
    body: dict[str, Any] = {
        "metadata": {"name": "crd-server"},
        "spec": {
            "type": "ExternalName",
            "externalName": "localhost",
            "ports": [{"port": cluster.ports.crd}],
        },
    }
    cluster.ask(place, body)
    target = {
        "caBundle": base64.b64encode((cluster.keys / "ca.crt").read_bytes()).decode(),
        "service": {
            "name": "crd-server",
            "namespace": "kube-system",
            "port": cluster.ports.crd,
        },
    }
    # Named before the first definition: the API server would claim the group for itself.
    priorities = {"groupPriorityMinimum": 1000, "versionPriority": 100}
    spec = {"group": GROUP, "version": VERSION, **priorities, **target}
    cluster.ask(
        _SERVICES,
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": spec,
        },
    )
    cluster.wait(NAME, lambda: bool(cluster.get(f"{_SERVICES}/{_BUILT_IN}")))
    unmanaged = {"kube-aggregator.kubernetes.io/automanaged": None}
    cluster.patch(f"{_SERVICES}/{_BUILT_IN}", {"metadata": {"labels": unmanaged}, "spec": target})
    cluster.wait(NAME, lambda: _is_remote(cluster, _BUILT_IN))
    # A group without a definition answers 404, and its APIService would be unavailable for a minute.
    cluster.wait(NAME, lambda: _keeps_rules(cluster))
    cluster.ask(_DEFINITIONS, _placeholder())
    cluster.wait(NAME, lambda: _is_remote(cluster, f"{VERSION}.{GROUP}", nudge=True))


def _is_remote(cluster: Cluster, name: str, *, nudge: bool = False) -> bool:
    """Return whether the API service *name* is answered by the other server by now."""
    if nudge:
        # A change makes the API server look again; by itself it waits half a minute.
        stamp = {"sglr.dev/looked-at": str(time.monotonic())}
        cluster.patch(f"{_SERVICES}/{name}", {"metadata": {"annotations": stamp}})
    found = json.loads(cluster.get(f"{_SERVICES}/{name}"))
    return any(
        each["type"] == "Available" and each["status"] == "True" and each["reason"] != "Local"
        for each in found.get("status", {}).get("conditions", [])
    )


def _keeps_rules(cluster: Cluster) -> bool:
    """Return whether a definition comes back with its rule: the older server drops it."""
    kept = cluster.ask(f"{_DEFINITIONS}?dryRun=All", _placeholder())
    return "x-kubernetes-validations" in json.dumps(json.loads(kept)["spec"])


def _placeholder() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"placeholders.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"plural": "placeholders", "kind": "Placeholder"},
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
