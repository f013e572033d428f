"""Releases that have no right outside their namespace, with a definition that somebody applied."""

from __future__ import annotations

import openai
from steps import (
    CHART,
    SMALL,
    Namespace,
    Release,
    apply_definition,
    ask,
    eventually,
    run,
    values,
)


def test_two_namespaced_releases_keep_to_themselves() -> None:
    """A24: each in a namespace of its own, without any cluster-wide right, by certificate or token."""
    apply_definition("-f", str(CHART / "crds"))
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
        each.rolled_out()
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
        run("kubectl", "delete", "namespace", each.namespace.name)


def _await_worker(release: Release) -> None:
    """Wait until the one worker is ready."""
    eventually(lambda: release.namespace.ready(release.demo) == 1, 90, "one is ready")


def _await_answer(release: Release) -> None:
    """Wait until the node's port leads to a router, which it does a moment after that is ready."""

    def answers() -> bool:
        return "Hello?" in ask(release.url(), release.namespace.name, "Hello?")

    eventually(answers, 90, "a chat is answered")
