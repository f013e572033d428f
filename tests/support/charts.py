"""The chart, rendered in process by Helm's own code."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import helm_python
import yaml

from sglr_dataplane.cli import serve
from sglr_operator import cli as operator_cli

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "sglr"
NAMESPACE: Final = "inference"
RELEASE: Final = "sglr"

Object = dict[str, Any]
Values = Mapping[str, Any]


@lru_cache(maxsize=1)
def chart() -> helm_python.Chart:
    """Return the chart, loaded once."""
    return helm_python.Chart.load(CHART)


def files(
    values: Values | None = None, *, name: str = RELEASE, of: helm_python.Chart | None = None
) -> dict[str, str]:
    """Return what each template renders as, by its path below templates/."""
    if of is None:
        return _files(json.dumps(values or {}), name)
    rendered = of.render(dict(values or {}), name=name, namespace=NAMESPACE)
    return {path.split("/templates/", 1)[1]: text for path, text in rendered.items()}


@lru_cache(maxsize=64)
def _files(values: str, name: str) -> dict[str, str]:
    """Return what the chart itself renders; the tests ask for the same again and again."""
    return files(json.loads(values), name=name, of=chart())


def render(
    values: Values | None = None, *, name: str = RELEASE, of: helm_python.Chart | None = None
) -> list[Object]:
    """Return every object that the chart makes of *values*."""
    return [
        item
        for path, text in files(values, name=name, of=of).items()
        if path.endswith(".yaml")
        for item in yaml.safe_load_all(text)
        if item is not None
    ]


def one(objects: Iterable[Object], kind: str, name: str) -> Object:
    """Return the only object of that kind and name."""
    (found,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)
    return found


def kinds(objects: Iterable[Object]) -> set[tuple[str, str]]:
    """Return kind and name of every object."""
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def pods(objects: Iterable[Object]) -> Iterator[tuple[str, Object]]:
    """Yield the spec of every pod that would run, under the name of what makes it."""
    for each in objects:
        name = f"{each['kind']}/{each['metadata']['name']}"
        if each["kind"] == "Pod":
            yield name, each["spec"]
        elif each["kind"] in {"Deployment", "Job"}:
            yield name, each["spec"]["template"]["spec"]
        elif each["kind"] == "CronJob":
            yield name, each["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def container(objects: Iterable[Object], deployment: str) -> Object:
    """Return the first container of a Deployment."""
    spec = one(objects, "Deployment", deployment)["spec"]["template"]["spec"]
    first: Object = spec["containers"][0]
    return first


def cluster(folder: Path, version: str, served: Iterable[str]) -> helm_python.Chart:
    """Return the chart as it meets a cluster of *version* that serves exactly *served*.

    The chart asks in two templates what a cluster can do; they answer for this cluster.
    """
    copy = folder / "sglr"
    shutil.copytree(CHART, copy)
    path = copy / "templates" / "_capabilities.tpl"
    text, versions = re.subn(
        r"\(index \. 0\)\.Capabilities\.KubeVersion\.Version", f'"v{version}.0"', path.read_text()
    )
    names = " ".join(f'"{name}"' for name in served)
    text, apis = re.subn(
        r"\(index \. 0\)\.Capabilities\.APIVersions\.Has \(index \. 1\)",
        f"has (index . 1) (list {names})",
        text,
    )
    assert (versions, apis) == (1, 1)
    path.write_text(text)
    return helm_python.Chart.load(copy)


def operator_arguments(objects: list[Object]) -> Any:
    """Return the operator's flags as its own command line reads them."""
    first = container(objects, "sglr-operator")
    assert first["command"] == ["sglr-operator"]
    return operator_cli._parser().parse_args(first["args"])


def router_arguments(objects: list[Object]) -> argparse.Namespace:
    """Return the routers' flags as their own command line reads them."""
    first = container(objects, "sglr-router")
    assert first["command"] == ["sglr"]
    assert first["args"][0] == "serve"
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    return parser.parse_args(first["args"][1:])


def rules(name: str) -> list[Object]:
    """Return one of the operator's lists of rights."""
    found: list[Object] = yaml.safe_load((ROOT / "deploy" / "rbac" / f"{name}.yaml").read_text())
    return found


EVERYTHING: Final[Values] = {
    "demo": {"enabled": True},
    "operator": {
        "replicas": 2,
        "podAnnotations": {"a": "b"},
        "extraEnv": [{"name": "X", "value": "y"}],
    },
    "router": {
        "autoscaling": {"enabled": True, "targetInFlight": 100},
        "ingress": {"enabled": True, "hosts": ["llm.example.com"], "className": "nginx"},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}]},
        "shutdown": {"preStop": "3s"},
        "grpc": {"enabled": True},
        "processes": 2,
        "service": {"type": "LoadBalancer", "annotations": {"c": "d"}},
        "extraVolumes": [{"name": "tokenizers", "persistentVolumeClaim": {"claimName": "t"}}],
        "extraVolumeMounts": [{"name": "tokenizers", "mountPath": "/models"}],
        "priorityClassName": "high",
    },
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "clientsFrom": [{"podSelector": {}}],
        "workers": [{"podSelector": {"matchLabels": {"app": "sglang"}}}],
        "apiServer": {"cidrs": ["10.0.0.1/32"]},
    },
    "monitoring": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "imagePullSecrets": [{"name": "registry"}],
    "commonLabels": {"team": "ml"},
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}}
    ],
}
"""Values that switch on whatever can be switched on."""

MATRIX: Final[Mapping[str, Values]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "namespaced": {"watch": {"clusterWide": False}},
    "two namespaces": {"watch": {"clusterWide": False, "namespaces": ["a", "b"]}},
    "references": {"watch": {"references": True}},
    "token keys": {
        "watch": {"clusterWide": False, "namespaces": ["a", "b"], "references": True},
        "push": {"auth": "tokenKeys", "extraRouterAccounts": ["other:router"]},
    },
    "traces": {"router": {"tracing": {"endpoint": "http://collector:4318"}}},
    "mutual TLS": {"push": {"auth": "mtls"}},
    "cert-manager": {"push": {"tls": {"mode": "certManager"}}, "watch": {"clusterWide": False}},
    "own issuer": {
        "push": {
            "tls": {
                "mode": "certManager",
                "certManager": {"issuerRef": {"kind": "ClusterIssuer", "name": "i"}},
            }
        }
    },
    "own secrets": {
        "push": {
            "auth": "mtls",
            "tls": {"mode": "secret", "secret": {"server": "s", "client": "c"}},
        }
    },
    "no TLS": {"push": {"tls": {"mode": "disabled"}}},
    "own accounts": {
        "operator": {"serviceAccount": {"create": False, "name": "op"}},
        "router": {"serviceAccount": {"create": False, "name": "ro"}},
        "rbac": {"create": False},
    },
    "pinned image": {"image": {"digest": "sha256:" + "a" * 64}},
}
