"""The definition as a real API server takes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglr_operator.schema import RULES, definition
from sglr_operator.verdict import judge, with_defaults
from support.kube_objects import a_document
from support.kube_real import REPO, RealCluster

EXAMPLES = sorted((REPO / "examples").glob("backend-*.yaml"))
pytestmark = pytest.mark.timeout(120)


def attempt(cluster: RealCluster, document: dict[str, Any]) -> str:
    """Return what the API server says about *document* in a dry run."""
    path = "/apis/sglr.dev/v1alpha1/namespaces/default/sglangbackends?dryRun=All"
    # Raw: this kubectl asks an OpenAPI of the older server whether dry runs are supported.
    return cluster.kubectl(
        "create", "--raw", path, "-f", "-", stdin=json.dumps(document), code=None
    )


def test_the_definition_is_served_with_names_and_columns(cluster: RealCluster) -> None:
    """Short name, category and a line that tells the story."""
    namespace = cluster.namespace()
    document = a_document()
    document["metadata"]["namespace"] = namespace
    cluster.apply(document)

    header, line = cluster.kubectl("get", "sglb", "-n", namespace).strip().splitlines()
    assert header.split() == [
        "NAME", "MODEL", "READY", "TOTAL", "ROUTERS", "STATUS", "REASON", "AGE",
    ]  # fmt: skip
    assert line.split()[:2] == ["chat", "qwen"]
    assert "chat" in cluster.kubectl("get", "inference", "-n", namespace)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_applies_and_comes_back_with_our_defaults(
    cluster: RealCluster, example: Path
) -> None:
    """What we show people is stored as the offline check predicts."""
    namespace = cluster.namespace()
    document = yaml.safe_load(example.read_text())
    document["metadata"]["namespace"] = namespace
    cluster.apply(document)

    stored = cluster.get("sglb", document["metadata"]["name"], namespace)
    assert stored["spec"] == with_defaults(document)["spec"]


REFUSED: list[dict[str, Any]] = [
    {"model": {}},
    {"model": {"name": ""}},
    {"model": {"name": "a b"}},
    {"model": {"name": "x" * 257}},
    {"model": {"name": 7}},
    {"model": {"name": "a", "aliases": ["b", "b"]}},
    {"model": {"name": "a", "aliases": [f"b{i}" for i in range(17)]}},
    {"tokenizer": {"path": ""}},
    {"routing": {"policy": "Best"}},
    {"workers": {"static": {"endpoints": []}}},
    {"workers": {"static": {"endpoints": [{"host": "a", "port": 0}]}}},
    {"workers": {"static": {"endpoints": [{"host": "a"}, {"host": "a", "port": 30000}]}}},
    {"workers": {"selector": {"matchLabels": {"a": "b"}}, "ports": [1, 1]}},
    {"workers": {"service": {"name": "Not_a_name"}}},
]


@pytest.mark.parametrize("change", REFUSED, ids=json.dumps)
def test_a22_the_server_refuses_what_the_offline_check_refuses(
    cluster: RealCluster, change: dict[str, Any]
) -> None:
    """The schema alone keeps these out, and both verdicts agree."""
    document = a_document(**change)
    document["metadata"]["namespace"] = "default"

    assert judge(yaml.safe_dump(document)).findings
    assert "invalid" in attempt(cluster, document).lower()


VIOLATIONS: dict[str, dict[str, Any]] = {
    "exactly one of service, selector": {"workers": {}},
    "ports goes with selector only": {"workers": {"service": {"name": "q"}, "ports": [1]}},
    "http goes with protocol HTTP": {
        "workers": {"service": {"name": "q"}, "protocol": "GRPC", "http": {}}
    },
    "at most one of path, huggingFace": {"tokenizer": {"path": "/t", "fromWorker": {}}},
    "exactly one of inline, path": {"tokenizer": {"chatTemplate": {"inline": "x", "name": "rag"}}},
    "at most one of caFile and caRef": {
        "tls": {"mode": "TLS", "caFile": "/c", "caRef": {"name": "c"}}
    },
    "a CA goes with mode TLS": {"tls": {"caRef": {"name": "c"}}},
    "mode Mutual, and no other": {"tls": {"mode": "Mutual"}},
    "certificateFile and keyFile come together": {
        "tls": {"mode": "Mutual", "certificateSecretRef": {"name": "p"}, "keyFile": "/k"}
    },
    "at most one of apiKeyFile": {
        "workerAuth": {"apiKeyFile": "/k", "apiKeySecretRef": {"name": "s", "key": "k"}}
    },
    "each port once": {"workers": {"selector": {"matchLabels": {"a": "b"}}, "ports": [1, 1]}},
    "an empty selector matches every pod": {"workers": {"selector": {}}},
    "In and NotIn take values": {
        "workers": {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}
    },
    "a host without scheme": {"workers": {"static": {"endpoints": [{"host": "http://a"}]}}},
    "policy ConsistentHash needs": {"routing": {"policy": "ConsistentHash"}},
    "header, bodyField or both": {"routing": {"policy": "ConsistentHash", "consistentHash": {}}},
    "an alias differs": {"model": {"name": "a", "aliases": ["a"]}},
    "an adapter's name differs": {"model": {"name": "a", "adapters": [{"name": "a"}]}},
}
"""By the beginning of a rule's message: a spec that breaks this rule."""
MESSAGES = [message for rules in RULES.values() for _, message in rules]


def kept_rules(cluster: RealCluster) -> int:
    """Return how many rules the server's own definition has: one without CEL drops them."""
    crd = json.loads(cluster.kubectl("get", "crd", "sglangbackends.sglr.dev", "-o", "json"))
    return json.dumps(crd["spec"]).count('"rule"')


@pytest.mark.parametrize("message", MESSAGES)
def test_each_rule_refuses_on_the_server(cluster: RealCluster, message: str) -> None:
    """The server's verdict names the rule; the offline check says the same."""
    [spec] = [spec for start, spec in VIOLATIONS.items() if message.startswith(start)]
    document = a_document(**spec)
    document["metadata"]["namespace"] = "default"
    assert judge(yaml.safe_dump(document)).findings
    if not kept_rules(cluster):
        pytest.skip("this server knows no CEL")

    said = attempt(cluster, document)
    assert message in said or "Duplicate value" in said


def test_rules_that_this_server_cannot_check_are_counted(
    cluster: RealCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server without CEL drops all rules, one with CEL takes all; the number is printed."""
    kept = kept_rules(cluster)
    # One struct can stand in several places, and its rules with it.
    total = json.dumps(definition()).count('"rule"')
    with capsys.disabled():
        print(f"\nCEL rules not checked by this API server: {total - kept} of {total}")  # noqa: T201  # whoever runs this wants to know

    assert kept in {0, total}
