"""Whatever the values, the chart makes objects that Kubernetes takes."""

from __future__ import annotations

from pathlib import Path

import helm_python
import kubernetes_validate  # type: ignore[import-untyped]  # it ships no types
import pytest
import yaml

from sglr_operator.verdict import judge
from support.charts import (
    CHART,
    EVERYTHING,
    MATRIX,
    NAMESPACE,
    cluster,
    container,
    kinds,
    one,
    pods,
    render,
)

NEWEST = "1.37"
OLDEST = "1.29"
OTHERS = {
    "Certificate", "HTTPRoute", "Issuer", "PrometheusRule", "SGLangBackend", "ServiceMonitor",
}  # fmt: skip
"""Kinds that Kubernetes itself does not define."""
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding"}


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("case", MATRIX)
def test_kubernetes_knows_every_field(case: str, version: str) -> None:
    """Each object passes Kubernetes' own schema, unknown fields refused."""
    for each in render(MATRIX[case]):
        if each["kind"] not in OTHERS:
            kubernetes_validate.validate(each, version, strict=True)


def test_the_schemas_would_notice_an_unknown_field() -> None:
    """The check above can fail."""
    service = one(render(), "Service", "sglr-router")
    service["spec"]["sesionAffinity"] = "None"

    with pytest.raises(kubernetes_validate.ValidationError, match="sesionAffinity"):
        kubernetes_validate.validate(service, NEWEST, strict=True)


@pytest.mark.parametrize("case", MATRIX)
def test_no_object_is_made_twice_or_elsewhere(case: str) -> None:
    """Names are unique per kind, and everything namespaced says where it belongs."""
    objects = render(MATRIX[case])
    places = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]

    assert len(set(places)) == len(places)
    watched = set(MATRIX[case].get("watch", {}).get("namespaces", ()))
    for kind, namespace, name in places:
        if kind in CLUSTER_WIDE:
            assert namespace is None
        elif name != "sglr-more":
            assert namespace in {NAMESPACE} | watched


@pytest.mark.parametrize("case", MATRIX)
def test_every_object_is_labelled_as_the_release_s(case: str) -> None:
    """Whoever looks for the release's objects by label finds all of them."""
    for each in render(MATRIX[case]):
        if each["metadata"]["name"] != "sglr-more":
            labels = each["metadata"]["labels"]
            assert labels["app.kubernetes.io/instance"] == "sglr"
            assert labels["app.kubernetes.io/managed-by"] == "Helm"
            assert labels.get("team") == MATRIX[case].get("commonLabels", {}).get("team")


def test_long_release_names_still_make_legal_names() -> None:
    """No name is longer than the 63 characters a Service or a label may have (52 for a CronJob)."""
    objects = render(EVERYTHING, name="a-release-name-that-is-as-long-as-helm-lets-it")

    assert max(len(o["metadata"]["name"]) for o in objects if o["kind"] not in CLUSTER_WIDE) <= 63
    assert max(len(o["metadata"]["name"]) for o in objects if o["kind"] == "CronJob") <= 52
    for each in objects:
        for value in each["metadata"].get("labels", {}).values():
            assert len(value) <= 63


def test_every_selector_finds_its_pods() -> None:
    """Services, budgets and policies select the pods of exactly one Deployment."""
    objects = render(EVERYTHING)
    deployments = {
        o["metadata"]["name"]: o["spec"]["template"]["metadata"]["labels"]
        for o in objects
        if o["kind"] == "Deployment"
    }
    for each in objects:
        spec = each.get("spec", {})
        selector = {
            "Service": spec.get("selector"),
            "PodDisruptionBudget": spec.get("selector", {}).get("matchLabels"),
            "NetworkPolicy": spec.get("podSelector", {}).get("matchLabels"),
        }.get(each["kind"])
        if selector is not None:
            found = [n for n, labels in deployments.items() if selector.items() <= labels.items()]
            assert found == [each["metadata"]["name"]]


def test_an_old_cluster_gets_the_apis_it_serves(tmp_path: Path) -> None:
    """Before 1.21, budgets, autoscalers and CronJobs are beta, and probes know no gRPC."""
    old = render(
        EVERYTHING, of=cluster(tmp_path, "1.20", ["policy/v1beta1", "autoscaling/v2beta2"])
    )

    assert one(old, "PodDisruptionBudget", "sglr-router")["apiVersion"] == "policy/v1beta1"
    assert one(old, "HorizontalPodAutoscaler", "sglr-router")["apiVersion"] == "autoscaling/v2beta2"
    assert one(old, "CronJob", "sglr-certificates")["apiVersion"] == "batch/v1beta1"
    assert "tcpSocket" in container(old, "sglr-demo")["readinessProbe"]


def test_a_new_cluster_gets_the_newest_apis(tmp_path: Path) -> None:
    """Where the stable versions are served, they are used."""
    new = render(EVERYTHING, of=cluster(tmp_path, "1.34", ["policy/v1", "autoscaling/v2"]))

    assert one(new, "PodDisruptionBudget", "sglr-router")["apiVersion"] == "policy/v1"
    assert one(new, "HorizontalPodAutoscaler", "sglr-router")["apiVersion"] == "autoscaling/v2"
    assert one(new, "CronJob", "sglr-certificates")["apiVersion"] == "batch/v1"
    assert container(new, "sglr-demo")["readinessProbe"]["grpc"] == {"port": 30000}


def test_helm_s_own_linter_has_nothing_to_say() -> None:
    """`helm lint --strict` passes."""
    report = helm_python.lint(CHART, strict=True, kube_version=f"v{OLDEST}.0")

    assert report["errors"] == []


def test_the_demo_s_backend_is_one_the_operator_accepts() -> None:
    """The operator's own verdict on it, schema and rules included, is clean."""
    backend = one(render({"demo": {"enabled": True}}), "SGLangBackend", "sglr-demo")

    verdict = judge(yaml.safe_dump(backend))

    assert verdict.findings == ()
    assert verdict.backends == 1


def test_extra_objects_are_rendered() -> None:
    """Templates in them know the release."""
    assert ("ConfigMap", "sglr-more") in kinds(render(EVERYTHING))


@pytest.mark.parametrize("case", MATRIX)
def test_every_container_runs_the_one_image(case: str) -> None:
    """Tag or digest, all parts run the same build."""
    images = {c["image"] for _, spec in pods(render(MATRIX[case])) for c in spec["containers"]}

    digest = MATRIX[case].get("image", {}).get("digest")
    assert images == {f"localhost/sglr@{digest}" if digest else "localhost/sglr:0.1.0"}
