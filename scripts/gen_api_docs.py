"""Writes the tables of docs/api.md from what the code does with each field; ``--check`` compares."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sglr_dataplane.api import forwarded
from sglr_dataplane.api.routes import NOT_SERVED
from sglr_dataplane.api.schema import adapted_fields, fields, native_fields, parsing
from sglr_dataplane.api.schema.embeddings import EMBEDDING_FIELDS
from sglr_dataplane.api.schema.fields import Field

PAGE = Path(__file__).parents[1] / "docs" / "api.md"

TABLES: Mapping[str, Mapping[str, Field]] = {
    "chat": fields.CHAT_FIELDS,
    "completions": fields.COMPLETION_FIELDS,
    "messages": adapted_fields.MESSAGES_FIELDS,
    "responses": adapted_fields.RESPONSES_FIELDS,
    "generate": native_fields.NATIVE_FIELDS,
    "generate sampling_params": native_fields.NATIVE_SAMPLING_FIELDS,
    "embeddings": EMBEDDING_FIELDS,
    "tokenize": native_fields.TOKENIZE_FIELDS,
    "detokenize": native_fields.DETOKENIZE_FIELDS,
    "parse calls": parsing.CALLS_FIELDS,
    "parse thoughts": parsing.THOUGHTS_FIELDS,
}
_MARKED = re.compile(r"(<!-- table: (?P<name>[^>]+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)
_FATES = {"honoured": "honoured", "no effect": "accepted, no effect", "refused": "400"}


def table(known: Mapping[str, Field], *, passes: bool = True) -> str:
    """Return the Markdown table of *known*: the honoured, then those without effect, then the rest.

    Args:
        known: What becomes of each field.
        passes: Whether HTTP workers get it; else the router answers by itself.
    """
    rows = [
        "| field | gRPC workers | HTTP workers | what it does, or why not |",
        "|---|---|---|---|",
    ]
    if not passes:
        rows = ["| field | the router | what it does, or why not |", "|---|---|---|"]
    for fate, words in _FATES.items():
        for name, field in sorted(known.items()):
            if field.fate == fate:
                accepted = [f"`{each!r}`" for each in field.neutral]
                also = f" Accepted: {', '.join(accepted)}." if accepted else ""
                note = field.note if field.note.endswith(".") else f"{field.note}."
                fates = f"{words} | {_at_http_workers(name)}" if passes else words
                rows.append(f"| `{name}` | {fates} | {note[:1].upper()}{note[1:]}{also} |")
    return "\n".join(rows) + "\n"


def _at_http_workers(name: str) -> str:
    """Return what becomes of a field whose request goes to an HTTP worker: it always gets it."""
    if name == "model":
        return "passed on, by the worker's name"
    read = name in {field.name for field in msgspec.structs.fields(forwarded.Asked)}
    return "passed on, and gone by" if read else "passed on"


def kwargs_table() -> str:
    """Return the Markdown table of what a request may give a template."""
    rows = ["| name | for |", "|---|---|"]
    rows += [f"| `{name}` | {note} |" for name, note in fields.TEMPLATE_KWARGS.items()]
    return "\n".join(rows) + "\n"


def paths_list() -> str:
    """Return the list of paths that are known and not served."""
    return "\n".join(f"- `POST {path}`" for path in NOT_SERVED) + "\n"


def written(page: str) -> str:
    """Return *page* with every marked part made anew.

    Raises:
        KeyError: A mark names no table.
    """
    made = {
        name: table(known, passes=not name.startswith("parse")) for name, known in TABLES.items()
    }
    made |= {"template kwargs": kwargs_table(), "not served": paths_list()}
    return _MARKED.sub(lambda found: f"{found[1]}{made[found['name']]}{found[4]}", page)


def main() -> int:
    """Write the page, or say that it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if it is stale")
    check = parser.parse_args().check
    before = PAGE.read_text(encoding="utf-8")
    after = written(before)
    if check and before != after:
        print(f"{PAGE} is stale; run scripts/gen_api_docs.py", file=sys.stderr)
        return 1
    if not check:
        PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
