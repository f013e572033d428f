"""Bring the cluster's custom resource definition to this release: Helm installs it once and never again.

Usage: apply_crd.py FILE.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from api import Api

COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def main() -> None:
    """Create or replace the definition; nothing is ever deleted."""
    definition = json.loads(Path(sys.argv[1]).read_text())
    outcome = Api.in_cluster().put(COLLECTION, definition)
    print(f"{definition['metadata']['name']}: {outcome}")  # noqa: T201  # the job's log


if __name__ == "__main__":
    main()
