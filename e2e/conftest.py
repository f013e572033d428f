"""One release for the suite, in a cluster that KUBECONFIG names."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

import pytest
from load import Load, flowing
from steps import SMALL, Namespace, Release, eventually, surroundings, values

SYSTEM = "sglr-system"
ORDER = (
    "test_readme", "test_lifecycle", "test_workers", "test_keys", "test_upgrade", "test_end",
    "test_kustomize", "test_namespaced",
)  # fmt: skip
"""A release's life: the first installs it, test_end removes it; the last two bring their own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the scenarios into the order of a release's life."""
    items.sort(key=lambda item: ORDER.index(item.path.stem))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say what there was when a scenario failed: fixtures and the next run take it away."""
    report = yield
    if report.when == "call" and report.failed:
        print(f"\n== {item.name} failed; what there was:\n{surroundings()}")
    return report


@pytest.fixture(autouse=True)
def timing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Say how long each scenario took."""
    began = time.monotonic()
    yield
    print(f"\n== {request.node.name} took {time.monotonic() - began:.0f} s")


@pytest.fixture(scope="session")
def release() -> Release:
    """Return the release that most scenarios share: two routers, two simulated workers."""
    release = Release("sglr", Namespace(SYSTEM))
    release.upgrade(
        # A pause per token, so that streams are under way when something happens.
        *values(demo__enabled="true", router__replicas=2, watch__references="true", **SMALL),
        *("--set-json", 'demo.extraArgs=["--token-delay=20ms"]'),
    )
    release.rolled_out()
    return release


@pytest.fixture
def settled(release: Release) -> Release:
    """Return the shared release in its usual state: two of everything, all known to routers."""
    namespace = release.namespace
    namespace.scale(release.demo, 2)
    release.rolled_out()
    eventually(lambda: namespace.ready(release.demo) == 2, 150, "two workers are ready")
    eventually(
        lambda: namespace.condition(release.demo, "Ready")[0] == "True", 150, "the demo is ready"
    )
    eventually(lambda: release.synced() == 2, 150, "both routers know of it")
    return release


@pytest.fixture
def load(settled: Release) -> Iterator[Load]:
    """Return a running load of streams, already flowing; every one must come whole."""
    with flowing(settled) as load:
        yield load
