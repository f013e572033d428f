#!/usr/bin/env python3
"""Write the reference of a SGLangBackend's fields from the structs, or check that it is fresh.

python scripts/gen_reference.py           # write docs/reference/backend.md
python scripts/gen_reference.py --check   # exit 1 when it is stale
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sglr_operator.schema import root

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference" / "backend.md"
HEAD = """\
<!-- Generated from the structs by scripts/gen_reference.py; edit those. -->
# SGLangBackend, field by field

One document for a cluster (a custom resource) and for a file (`sglr serve -f`). Everything is
reloaded when it changes, and no reload drops a stream. Durations are whole numbers with a unit:
`250ms`, `5s`, `1h30m`. "Per router process": with n processes or replicas, n times as much.
"""


def text() -> str:
    """Return the page."""
    spec = root()["properties"]["spec"]
    sections = "\n".join(_section(name, field) for name, field in spec["properties"].items())
    return f"{HEAD}\n{sections}"


def _section(name: str, schema: dict[str, Any]) -> str:
    required = name in root()["properties"]["spec"]["required"]
    lines = [f"## spec.{name}", "", schema["description"] + (" Required." if required else "")]
    rows = list(_rows(schema, f"spec.{name}"))
    if rows:
        lines += ["", "| field | type | default | meaning |", "|---|---|---|---|", *rows]
    return "\n".join(lines) + "\n"


def _rows(schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        default = field.get("default")
        shown = f"`{default}`" if default not in (None, {}) else ""
        meaning = " ".join(str(field.get("description", "")).split()).replace("|", "\\|")
        yield f"| `{here.removeprefix('spec.')}` | {_type(field)} | {shown} | {meaning} |"
        inner = field.get("items", field)
        yield from _rows(inner, here + ("[]" if "items" in field else ""))


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return "one of " + ", ".join(f"`{value}`" for value in field["enum"])
    bounds = [str(field[key]) for key in ("minimum", "maximum") if key in field]
    if len(bounds) == 2:  # noqa: PLR2004  # both ends
        return f"integer, {bounds[0]} to {bounds[1]}"
    return {"array": "list", "object": "mapping"}.get(field["type"], str(field["type"]))


def main() -> int:
    """Write or check; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    wanted = text()
    if TARGET.exists() and TARGET.read_text() == wanted:
        return 0
    if parser.parse_args().check:
        print(f"{TARGET.relative_to(ROOT)} is stale: run scripts/gen_reference.py", file=sys.stderr)
        return 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(wanted)
    print(f"write {TARGET.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
