"""Operator and routers may do what they need and prove who they are; nobody may do more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.charts import (
    EVERYTHING,
    MATRIX,
    NAMESPACE,
    one,
    operator_arguments,
    pods,
    render,
    router_arguments,
    rules,
)


def _lists_secrets(case: str) -> bool:
    """Return whether a case asks for the right to list Secrets."""
    return bool(MATRIX[case].get("watch", {}).get("references"))


@pytest.mark.parametrize("case", MATRIX)
def test_only_those_who_ask_the_api_server_hold_its_token(case: str) -> None:
    """Routers, workers and the test run without; accounts do not hand it out by themselves."""
    objects = render(MATRIX[case])
    holders = {name for name, spec in pods(objects) if spec["automountServiceAccountToken"]}

    assert {name.split("/")[0] for name in holders} <= {"Deployment", "Job", "CronJob"}
    assert {n for n in holders if n.startswith("Deployment")} == {"Deployment/sglr-operator"}
    assert all(
        not o["automountServiceAccountToken"] for o in objects if o["kind"] == "ServiceAccount"
    )


def test_a_cluster_wide_operator_reviews_the_tokens_of_its_own_routers() -> None:
    """Only the release's router account may subscribe, with a token for this purpose only."""
    objects = render()
    arguments = operator_arguments(objects)
    router = one(objects, "Deployment", "sglr-router")["spec"]["template"]["spec"]

    assert arguments.push_auth == "token-review"
    assert arguments.router_account == [f"{NAMESPACE}:{router['serviceAccountName']}"]
    (token,) = (v["projected"]["sources"] for v in router["volumes"] if "projected" in v)
    assert token == [
        {
            "serviceAccountToken": {
                "audience": arguments.push_audience,
                "expirationSeconds": 3600,
                "path": "token",
            }
        }
    ]


def test_a_namespaced_operator_asks_for_certificates_instead() -> None:
    """A24: a token review is a question to the whole cluster, which it may not ask."""
    objects = render({"watch": {"clusterWide": False}})
    arguments = operator_arguments(objects)
    router = one(objects, "Deployment", "sglr-router")["spec"]["template"]["spec"]

    assert arguments.push_auth == "mtls"
    assert arguments.push_client_ca == "/etc/sglr/push/ca.crt"
    assert not [v for v in router["volumes"] if "projected" in v]


def test_cluster_wide_rights_are_the_listed_ones() -> None:
    """One ClusterRole with the operator's own list, and a Role for the Lease."""
    objects = render()

    role = one(objects, "ClusterRole", f"{NAMESPACE}-sglr-operator")
    assert role["rules"] == rules("watch") + rules("cluster")
    assert one(objects, "Role", "sglr-operator-lease")["rules"] == rules("lease") + rules("copy")


@pytest.mark.parametrize(
    ("watch", "namespaces"),
    [
        ({"clusterWide": False}, [NAMESPACE]),
        ({"clusterWide": False, "namespaces": ["b", "a"]}, ["a", "b"]),
    ],
)  # fmt: skip
def test_a_namespaced_release_has_rights_and_watches_there_alone(
    watch: dict[str, Any], namespaces: list[str]
) -> None:
    """A24: a Role in each namespace, nothing cluster-wide, and the operator watches just these."""
    objects = render({"watch": watch, "monitoring": EVERYTHING["monitoring"]})

    assert not [o for o in objects if o["kind"].startswith("Cluster")]
    assert operator_arguments(objects).namespace == namespaces
    roles = [o for o in objects if o["kind"] == "Role" and o["rules"] == rules("watch")]
    assert [r["metadata"]["namespace"] for r in roles] == namespaces
    for role in roles:
        (binding,) = (
            o
            for o in objects
            if o["kind"] == "RoleBinding" and o["roleRef"]["name"] == role["metadata"]["name"]
            and o["metadata"]["namespace"] == role["metadata"]["namespace"]
        )  # fmt: skip
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "sglr-operator", "namespace": NAMESPACE}
        ]


@pytest.mark.parametrize("case", ["references", "token keys"])
def test_secrets_are_listed_only_where_backends_may_name_them(case: str) -> None:
    """With watch.references, in the watched namespaces alone, and the operator is told."""
    objects = render(MATRIX[case])
    watching = [o for o in objects if o["kind"] in {"Role", "ClusterRole"}]
    listing = [o for o in watching if rules("references")[0] in o["rules"]]

    assert operator_arguments(objects).references is True
    assert [o["metadata"].get("namespace") for o in listing] == {
        "references": [None], "token keys": ["a", "b"],
    }[case]  # fmt: skip
    assert operator_arguments(render()).references is False


def test_a_namespaced_operator_may_check_tokens_by_published_keys() -> None:
    """tokenKeys: routers show their token, the operator asks nobody, and only these accounts pass."""
    objects = render(MATRIX["token keys"])
    arguments = operator_arguments(objects)
    router = one(objects, "Deployment", "sglr-router")["spec"]["template"]["spec"]
    (token,) = (v["projected"]["sources"] for v in router["volumes"] if "projected" in v)

    assert arguments.push_auth == "token-keys"
    assert arguments.router_account == [f"{NAMESPACE}:sglr-router", "other:router"]
    assert token[0]["serviceAccountToken"]["audience"] == arguments.push_audience
    assert router_arguments(objects).operator_token == Path("/var/run/secrets/sglr/token")
    assert not [o for o in objects if o["kind"].startswith("Cluster")]


@pytest.mark.parametrize("case", [case for case in MATRIX if not _lists_secrets(case)])
def test_no_role_holds_a_wildcard_or_lists_secrets(case: str) -> None:
    """A24: nothing reads other people's Secrets, and no rule is wider than its words."""
    for role in (o for o in render(MATRIX[case]) if o["kind"] in {"Role", "ClusterRole"}):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if "secrets" in rule["resources"]:
                assert rule["verbs"] == ["create"] or rule["resourceNames"]
                assert not {"list", "watch"} & set(rule["verbs"])
