"""Values that cannot mean anything are refused with a sentence, and documented ones are complete."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import helm_python
import pytest
import yaml

from support.charts import CHART, ROOT, chart, one, render

Node = dict[str, Any]


def closed(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every object in the schema that lists its keys."""
    if "properties" in node:
        yield path
        for key, value in node["properties"].items():
            yield from closed(value, (*path, key))


def leaves(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Yield every value that is set and not only a step on the way."""
    for key, value in node["properties"].items():
        if "properties" in value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def nested(path: tuple[str, ...], value: object) -> Node:
    """Return *value* under *path*."""
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)
    return value


SCHEMA: Node = chart().schema or {}
CLOSED = [".".join(path) for path in closed(SCHEMA)]
LEAVES = {".".join(path): leaf for path, leaf in leaves(SCHEMA)}


def test_the_defaults_are_valid() -> None:
    """What nobody changed passes the schema, and holds exactly what the schema names."""
    chart().validate_schema({})
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())

    found = {
        path
        for path in LEAVES
        if path != "global"
        for _ in [_at(defaults, path)]  # raises KeyError for a missing one
    }

    assert found == set(LEAVES) - {"global"}


def _at(values: Node, path: str) -> object:
    found: Any = values
    for key in path.split("."):
        found = found[key]
    return found


@pytest.mark.parametrize("path", CLOSED)
def test_unknown_keys_are_refused_everywhere(path: str) -> None:
    """A typo in any object of the values stops the installation."""
    keys = tuple(path.split(".")) if path else ()

    with pytest.raises(helm_python.HelmValuesError, match="nosuchkey"):
        chart().validate_schema(nested((*keys, "nosuchkey"), 1))


@pytest.mark.parametrize("path", [path for path in LEAVES if path != "global"])
def test_every_value_says_what_it_means_and_refuses_another_type(path: str) -> None:
    """Each value has a description in the schema; a list of lists fits none of them."""
    assert LEAVES[path]["description"].endswith((".", "`."))
    with pytest.raises(helm_python.HelmValuesError):
        chart().validate_schema(nested(tuple(path.split(".")), [[[]]]))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"router": {"shutdown": {"gracePeriod": "30s"}}}, "take 615s"),
        ({"router": {"shutdown": {"drain": "1h", "gracePeriod": "59m"}}}, "cut by SIGKILL"),
        ({"watch": {"namespaces": ["a"]}}, "watch.clusterWide is true"),
        ({"push": {"auth": "token"}, "watch": {"clusterWide": False}}, "use tokenKeys or mtls"),
        ({"push": {"auth": "mtls", "tls": {"mode": "disabled"}}}, "in the clear"),
        ({"push": {"auth": "token", "tls": {"mode": "disabled"}}}, "in the clear"),
        ({"push": {"auth": "tokenKeys", "tls": {"mode": "disabled"}}}, "in the clear"),
        ({"push": {"tls": {"mode": "secret"}}}, "push.tls.secret.server is needed"),
        (
            {"push": {"auth": "mtls", "tls": {"mode": "secret", "secret": {"server": "s"}}}},
            "push.tls.secret.client is needed",
        ),
        ({"operator": {"serviceAccount": {"create": False}}}, "operator.serviceAccount.name"),
        ({"router": {"serviceAccount": {"create": False}}}, "router.serviceAccount.name"),
        (
            {"router": {"autoscaling": {"enabled": True, "minReplicas": 9, "maxReplicas": 3}}},
            "minReplicas is 9, above maxReplicas 3",
        ),
        (
            {"router": {"autoscaling": {"enabled": True, "targetCPUUtilization": None}}},
            "needs targetCPUUtilization or targetInFlight",
        ),
        ({"router": {"ingress": {"enabled": True}}}, "needs router.ingress.hosts"),
        ({"router": {"httpRoute": {"enabled": True}}}, "needs router.httpRoute.parentRefs"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_with_what_to_do(values: Node, words: str) -> None:
    """Nothing is installed that could not work; the sentence names the values."""
    with pytest.raises(helm_python.HelmRenderError, match=words):
        render(values)


@pytest.mark.parametrize(
    "values",
    [
        {"router": {"shutdown": {"drain": "10"}}},
        {"router": {"shutdown": {"drain": "1.5h"}}},
        {"router": {"replicas": -1}},
        {"router": {"service": {"port": 0}}},
        {"operator": {"replicas": 4}},
        {"image": {"digest": "sha256:abc"}},
        {"image": {"pullPolicy": "Sometimes"}},
        {"push": {"auth": "password"}},
        {"router": {"tracing": {"endpoint": "collector:4318"}}},
        {"push": {"extraRouterAccounts": ["only-a-name"]}},
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(values: Node) -> None:
    """The schema knows the ranges, so that `helm install` fails before anything happens."""
    with pytest.raises(helm_python.HelmValuesError):
        chart().validate_schema(values)


@pytest.mark.parametrize(
    ("shutdown", "grace"),
    [
        ({}, 5 + 600 + 10),
        ({"preStop": "20s", "settle": "10s", "drain": "1h", "margin": "1m"}, 20 + 10 + 3600 + 60),
        ({"drain": "30s", "gracePeriod": "2m"}, 120),
        ({"drain": "30s", "gracePeriod": "45s"}, 45),
    ],
)  # fmt: skip
def test_a_router_s_grace_period_holds_all_it_does(shutdown: Node, grace: int) -> None:
    """The sum of its parts, or what is given when it is enough."""
    router = one(render({"router": {"shutdown": shutdown}}), "Deployment", "sglr-router")

    assert router["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == grace


def test_generated_files_are_fresh() -> None:
    """Schema, defaults, reference, copies of the rights and the Kustomize base follow their sources."""
    for script in ("gen_chart.py", "gen_crd.py"):
        result = subprocess.run(
            [sys.executable, ROOT / "scripts" / script, "--check"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert (result.stderr, result.returncode) == ("", 0)


def test_the_kustomize_base_lists_every_file_it_has() -> None:
    """`kubectl apply -k` applies all of it, and nothing of Helm's is in there."""
    base = ROOT / "deploy" / "kustomize" / "base"
    listed = yaml.safe_load((base / "kustomization.yaml").read_text())["resources"]

    assert sorted(listed) == sorted(
        p.name for p in base.iterdir() if p.name != "kustomization.yaml"
    )
    for name in listed:
        text = (base / name).read_text()
        assert "helm.sh" not in text
        assert "managed-by: Helm" not in text
        objects = list(yaml.safe_load_all(text))
        assert objects
