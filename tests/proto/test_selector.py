"""Label selectors and the four ways to find workers."""

from __future__ import annotations

from typing import Any

import pytest

from sglr_proto.backend import ManifestError, decode_backend
from sglr_proto.selector import LabelRequirement, LabelSelector, SelectorOperator
from sglr_proto.snapshot import static_snapshot


def a_backend_with(workers: dict[str, Any]) -> dict[str, Any]:
    """Return a document whose workers are *workers*."""
    return {
        "apiVersion": "sglr.dev/v1alpha1",
        "kind": "SGLangBackend",
        "metadata": {"name": "qwen"},
        "spec": {"model": {"name": "qwen"}, "tokenizer": {"path": "/t"}, "workers": workers},
    }


@pytest.mark.parametrize(
    ("operator", "values", "labels", "admitted"),
    [
        ("In", ("a", "b"), {"app": "b"}, True),
        ("In", ("a",), {"app": "b"}, False),
        ("In", ("a",), {}, False),
        ("NotIn", ("a",), {"app": "b"}, True),
        ("NotIn", ("a",), {"app": "a"}, False),
        ("NotIn", ("a",), {}, True),
        ("Exists", (), {"app": ""}, True),
        ("Exists", (), {}, False),
        ("DoesNotExist", (), {}, True),
        ("DoesNotExist", (), {"app": "a"}, False),
    ],
)
def test_a_requirement_means_what_kubernetes_means(
    operator: str,
    values: tuple[str, ...],
    labels: dict[str, str],
    admitted: bool,  # a column of the table
) -> None:
    """NotIn admits objects without the label; the others need it, but for DoesNotExist."""
    requirement = LabelRequirement(key="app", operator=SelectorOperator(operator), values=values)

    assert requirement.admits(labels) is admitted


def test_every_condition_of_a_selector_must_hold() -> None:
    """Labels and expressions are one conjunction."""
    selector = LabelSelector(
        match_labels={"app": "sglang"},
        match_expressions=(LabelRequirement(key="track", operator=SelectorOperator.EXISTS),),
    )

    assert selector.matches({"app": "sglang", "track": "canary"})
    assert not selector.matches({"app": "sglang"})
    assert not selector.matches({"track": "canary"})


@pytest.mark.parametrize(
    ("workers", "path"),
    [
        ({}, "spec.workers.static"),
        ({"service": {"name": "a"}, "selector": {"matchLabels": {"a": "b"}}}, "spec.workers"),
        ({"selector": {}}, "spec.workers.selector.matchLabels"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "values"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, "operator"),
        ({"service": {"name": "a"}, "ports": [1]}, "spec.workers.ports"),
        ({"selector": {"matchLabels": {"a": "b"}}, "ports": [1, 1]}, "spec.workers.ports"),
        ({"selector": {"matchLabels": {"a": "b"}}, "ports": []}, "spec.workers.ports"),
        ({"service": {"name": "Not_a_name"}}, "spec.workers.service.name"),
    ],
)
def test_workers_that_cannot_be_found_are_refused_with_their_path(
    workers: dict[str, Any], path: str
) -> None:
    """Exactly one source, a selector that selects, ports only where they are used."""
    with pytest.raises(ManifestError) as caught:
        decode_backend(a_backend_with(workers), lenient=False)

    assert path in str(caught.value)


def test_a_router_without_an_operator_takes_listed_workers_only() -> None:
    """A file cannot find a Service's pods, and says so instead of serving nobody."""
    backend = decode_backend(a_backend_with({"service": {"name": "llama"}}), lenient=False)

    with pytest.raises(ManifestError, match=r"spec\.workers has no static endpoints"):
        static_snapshot([backend], 1)
