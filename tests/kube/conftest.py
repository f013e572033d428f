"""Tests against a real API server; `make test-kube` runs them, everything else leaves them out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kube_real import RealCluster, started

BINARIES = os.environ.get("SGLR_KUBE_BIN", "")
"""The folder that scripts/kube/build.sh filled."""

collect_ignore_glob = [] if BINARIES else ["test_*.py"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A control plane with the CRD, the operator's account and nothing else."""
    with started(tmp_path_factory.mktemp("cluster"), Path(BINARIES)) as found:
        found.kubectl("apply", "--validate=false", "-f", "crds/")
        found.grant_operator()
        yield found
