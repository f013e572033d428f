"""The Kustomize base, from an empty cluster to a chat, and away again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from steps import CHART, ROOT, Json, Namespace, Release, apply_definition, ask, eventually, run

BASE: Final = ROOT / "deploy" / "kustomize" / "base"
_RUNNING: Final = "app.kubernetes.io/component in (operator, router, demo)"


def an_overlay(folder: Path) -> Path:
    """Return an overlay as a user has one: routers reachable, in versions that the cluster serves.

    Kubernetes before 1.21 has two kinds as beta; the chart asks for that, and a base cannot.
    """
    patches = [_replacing("Service", "/spec/type", "NodePort", name="sglr-router")]
    for kind, group in {"PodDisruptionBudget": "policy", "CronJob": "batch"}.items():
        # CronJob's group has had a v1 for ever, for Jobs alone.
        kinds = run("kubectl", "api-resources", f"--api-group={group}", "--no-headers").splitlines()
        (version,) = (line.split()[-3] for line in kinds if line.split()[-1] == kind)
        patches.append(_replacing(kind, "/apiVersion", version))
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(BASE, folder.resolve())],
        "patches": patches,
    }
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
    return folder


def _replacing(kind: str, path: str, value: str, **target: str) -> Json:
    patch = json.dumps([{"op": "replace", "path": path, "value": value}])
    return {"target": {"kind": kind, **target}, "patch": patch}


def test_the_kustomize_base_ends_with_a_chat(tmp_path: Path) -> None:
    """Applied and waited for, it serves the workers of a SGLangBackend; deleted, all of it goes."""
    release = Release("sglr", Namespace("sglr-system"))
    overlay = str(an_overlay(tmp_path))
    apply_definition("-k", overlay)
    # Workers and their backend are no part of the base; the chart's own are at hand.
    version = json.loads(run("kubectl", "version", "-o", "json"))["serverVersion"]["gitVersion"]
    workers = run(
        "helm", "template", "sglr", str(CHART), "--namespace", release.namespace.name,
        "--kube-version", version,
        "--set", "demo.enabled=true", "--show-only", "templates/demo/workers.yaml",
    )  # fmt: skip
    release.namespace.kubectl("apply", "-f", "-", given=workers)
    release.rolled_out()
    release.namespace.kubectl(
        "wait", "--for=condition=Ready", f"sglb/{release.demo}", "--timeout=120s"
    )

    eventually(lambda: "Hello?" in ask(release.url(), "demo", "Hello?"), 90, "a chat is answered")
    assert release.namespace.condition(release.demo, "Programmed")[0] == "True"

    # A namespace that is deleted with pods in it is looked at again after half of their grace
    # period, five minutes for routers, although these ended long before.
    release.namespace.kubectl("delete", "deployments", "--all")
    eventually(lambda: not release.namespace.all("pods", _RUNNING), 150, "all pods have ended")
    # Some objects go with the namespace before kubectl comes to them.
    run("kubectl", "delete", "-k", overlay, "--ignore-not-found", "--wait", "--timeout=170s")
    wide = run("kubectl", "get", "namespaces,crds,clusterroles,clusterrolebindings", "-o", "name")
    assert [name for name in wide.split() if "sglr" in name] == []
