"""``sglr-operator``: run the operator, or judge manifests without a cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import sglr_proto
from sglr_operator.errors import OperatorError
from sglr_proto.errors import ManifestError

USAGE = 2
"""Exit code of a wrong command line or an unreadable file, as argparse has it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except OperatorError as error:
        print(f"sglr-operator: {error}", file=sys.stderr)
        return USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglr-operator", description=__doc__)
    parser.add_argument("--version", action="version", version=sglr_proto.__version__)
    commands = parser.add_subparsers(title="commands", required=True)
    check = commands.add_parser(
        "check", help="say what the API server and the operator would say about a file"
    )
    check.add_argument(
        "-f", "--filename", required=True, action="append", help="a YAML file; - reads from stdin"
    )
    check.set_defaults(run=_check)
    return parser


def _check(arguments: argparse.Namespace) -> int:
    """Judge every file; 0 when nothing is wrong, 1 when something is, 2 when a file is unreadable."""
    # cel-python is needed here alone, and takes half a second to import.
    from sglr_operator.verdict import judge

    wrong = 0
    for name in arguments.filename:
        try:
            text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
            verdict = judge(text)
        except (OSError, UnicodeDecodeError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return USAGE
        except ManifestError as error:
            print(f"{name}: {error}")
            wrong = 1
            continue
        for finding in verdict.findings:
            print(f"{name}: {finding}")
        for other in verdict.skipped:
            print(f"{name}: {other}: skipped, not a SGLangBackend", file=sys.stderr)
        if verdict.findings:
            wrong = 1
        else:
            print(f"{name}: {verdict.backends} SGLangBackend ok")
    return wrong
