#!/usr/bin/env python3
"""Write the custom resource definition from the structs, or check that it is fresh.

python scripts/gen_crd.py           # write crds/ and the chart's copy, where there is a chart
python scripts/gen_crd.py --check   # exit 1 and name each stale or missing file
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from sglr_operator.schema import definition

ROOT = Path(__file__).resolve().parent.parent
NAME = "sglr.dev_sglangbackends.yaml"
HEAD = "# Generated from the structs by scripts/gen_crd.py; edit those.\n"


class _Plain(yaml.SafeDumper):
    """Writes every value out: aliases are legal YAML, but nobody reads them gladly."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # PyYAML's signature
        """Say that nothing is an alias."""
        return True


def text() -> str:
    """Return the definition as YAML."""
    return HEAD + yaml.dump(definition(), Dumper=_Plain, sort_keys=False, width=100)


def targets() -> list[Path]:
    """Return every file that must hold the definition."""
    chart = ROOT / "deploy" / "helm" / "sglr"
    copies = [chart / "crds" / NAME] if (chart / "Chart.yaml").exists() else []
    base = ROOT / "deploy" / "kustomize" / "base"
    copies += [base / NAME] if base.exists() else []
    return [ROOT / "crds" / NAME, *copies]


def main() -> int:
    """Write or check; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    wanted, stale = text(), 0
    check = parser.parse_args().check
    for path in targets():
        if path.exists() and path.read_text() == wanted:
            continue
        if check:
            print(f"{path.relative_to(ROOT)} is stale: run scripts/gen_crd.py", file=sys.stderr)
            stale = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted)
            print(f"write {path.relative_to(ROOT)}")
    return stale


if __name__ == "__main__":
    sys.exit(main())
