"""The rules in deploy/rbac are exactly what the operator asks the API server for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglr_operator.config import CopyConfig, OperatorConfig
from sglr_operator.tokens import TokenReviewer
from support.kube_api import FakeApi, running_api
from support.kube_objects import NAMESPACE, a_document
from support.kube_wait import until
from support.kube_wire import Call
from support.operators import operating

RBAC = Path(__file__).resolve().parents[2] / "deploy" / "rbac"
Need = tuple[str, str, str]
"""Group, resource with subresource, verb."""

UNSEEN: set[Need] = {("", "configmaps", "create")}
"""An apply that creates takes this permission as well, within one request."""


def granted(*files: str) -> set[Need]:
    """Return every permission that the rules in *files* give."""
    rules = [rule for name in files for rule in yaml.safe_load((RBAC / name).read_text())]
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def need(call: Call) -> Need:
    """Return the permission that *call* takes."""
    resource = f"{call.plural}/{call.subresource}" if call.subresource else call.plural
    return (call.group, resource, call.verb)


def everywhere(_config: OperatorConfig) -> OperatorConfig:
    """Watch the whole cluster."""
    return _config


def with_copy(config: OperatorConfig) -> OperatorConfig:
    """Watch one namespace, and keep a copy for routers."""
    return replace(in_one(config), copy=CopyConfig(interval=0.05))


def in_one(config: OperatorConfig) -> OperatorConfig:
    """Watch one namespace."""
    return replace(config, namespaces=(NAMESPACE,))


def with_references(config: OperatorConfig) -> OperatorConfig:
    """Watch one namespace, and what its backends name."""
    return replace(in_one(config), references=True)


def populate(api: FakeApi) -> None:
    """Create what makes the operator use all it may."""
    api.served["/apis/inference.networking.k8s.io/v1"] = ["inferencepools"]
    api.served["/api/v1"].append("secrets")
    api.put("sglangbackends", a_document())


@pytest.mark.parametrize(
    ("change", "files"),
    [
        (everywhere, ("watch.yaml", "lease.yaml", "cluster.yaml")),
        (in_one, ("watch.yaml", "lease.yaml")),
        (with_copy, ("watch.yaml", "lease.yaml", "copy.yaml")),
        (with_references, ("watch.yaml", "lease.yaml", "references.yaml")),
    ],
)
async def test_a24_the_rules_are_exactly_what_is_asked_for(
    change: Callable[[OperatorConfig], OperatorConfig], files: tuple[str, ...], tmp_path: Path
) -> None:
    """With these rules nothing is refused, and none of them goes unused."""
    rules = granted(*files)
    async with running_api() as api:
        populate(api)
        api.allowed = lambda call: need(call) in rules
        async with operating(api, tmp_path, change) as running:
            await running.serves()
            leadership = running.operator.leadership
            assert leadership is not None
            if "cluster.yaml" in files:
                await TokenReviewer(leadership._kube, "sglr-operator")("token")
            await until(
                lambda: rules - UNSEEN <= {need(call) for call in api.calls},
                what=f"all used, but {rules - {need(call) for call in api.calls}}",
                within=8.0,
            )

        assert {need(call) for call in api.calls} == rules - UNSEEN


def rules() -> Iterator[tuple[str, Any]]:
    """Yield every rule with its file."""
    for path in sorted(RBAC.glob("*.yaml")):
        for rule in yaml.safe_load(path.read_text()):
            yield path.name, rule


def test_a24_no_rule_has_a_wildcard_and_only_one_file_reads_secrets() -> None:
    """No verb, resource or group is '*'; Secrets are listed only where somebody asks for it."""
    for file, rule in rules():
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        if "secrets" in rule["resources"]:
            assert (file, rule["verbs"]) == ("references.yaml", ["list", "watch"])
