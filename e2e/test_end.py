"""What is left of a release, and releases that have no right outside their namespace."""

from __future__ import annotations

import json

import openai
from steps import SMALL, Namespace, Release, ask, eventually, run, values


def test_uninstall_leaves_nothing_but_the_crd_and_other_people_s_objects(settled: Release) -> None:
    """A23: a backend of a user stays, and so does its kind; nothing hangs on a finalizer."""
    namespace = settled.namespace
    namespace.apply(
        {
            "apiVersion": "sglr.dev/v1alpha1",
            "kind": "SGLangBackend",
            "metadata": {"name": "theirs"},
            "spec": {
                "model": {"name": "m"},
                "tokenizer": {"path": "/nowhere"},
                "workers": {"static": {"endpoints": [{"host": "10.0.0.1"}]}},
            },
        }
    )

    settled.uninstall()

    _leaves_nothing(settled)
    assert [b["metadata"]["name"] for b in namespace.all("sglb")] == ["theirs"]
    namespace.kubectl("delete", "sglb", "theirs", "--timeout=20s")
    run("kubectl", "delete", "namespace", namespace.name, "--timeout=120s")


def test_two_namespaced_releases_keep_to_themselves() -> None:
    """A24: each in a namespace of its own, without any cluster-wide right, by certificate or token."""
    releases = [Release("sglr-own", Namespace(name)) for name in ("team-a", "team-b")]
    for each, auth in zip(releases, ("mtls", "tokenKeys"), strict=True):
        each.upgrade(
            "--skip-crds",
            *values(
                demo__enabled="true", demo__model=each.namespace.name, demo__replicas=1,
                router__replicas=1, watch__clusterWide="false", push__auth=auth, **SMALL,
            ),
        )  # fmt: skip
    for each in releases:
        for deployment in (each.operator, each.router, each.demo):
            each.namespace.rolled_out(deployment)
        _await_worker(each)
        _await_answer(each)
        with openai.OpenAI(base_url=f"{each.url()}/v1", api_key="none") as client:
            assert [model.id for model in client.models.list()] == [each.namespace.name]
        (pod,) = each.namespace.pods("operator")
        logs = each.namespace.kubectl("logs", pod)
        assert "orbidden" not in logs
        clustered = run("kubectl", "get", "clusterrole", "-o", "name")
        assert f"/{each.namespace.name}-sglr-own" not in clustered
    for each in releases:
        each.uninstall()
        _leaves_nothing(each)
        run("kubectl", "delete", "namespace", each.namespace.name)


def _await_worker(release: Release) -> None:
    """Wait until the one worker is ready."""
    eventually(lambda: release.namespace.ready(release.demo) == 1, 90, "one is ready")


def _await_answer(release: Release) -> None:
    """Wait until the node's port leads to a router, which it does a moment after that is ready."""

    def answers() -> bool:
        return "Hello?" in ask(release.url(), release.namespace.name, "Hello?")

    eventually(answers, 30, "a chat is answered")


def _leaves_nothing(release: Release) -> None:
    """Wait until no object of *release* is left, in its namespace or cluster-wide."""
    selector = f"app.kubernetes.io/instance={release.name}"
    kinds = (
        "pods,services,deployments,replicasets,jobs,cronjobs,secrets,configmaps,serviceaccounts,"
        "roles,rolebindings,poddisruptionbudgets,sglb,endpoints"
    )

    def none_left() -> bool:
        left = json.loads(release.namespace.kubectl("get", kinds, "-l", selector, "-o", "json"))[
            "items"
        ]
        assert not left, [f"{o['kind']}/{o['metadata']['name']}" for o in left]
        return True

    # The garbage collector looks for new kinds every 30 s.
    eventually(none_left, 90, "everything is gone")
    wide = run("kubectl", "get", "clusterroles,clusterrolebindings", "-o", "name")
    assert f"{release.namespace.name}-{release.name}" not in wide
