"""The ``sglr`` command: each subcommand is one module with ``add_arguments`` and ``run``."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

from sglr_proto import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

# name, module, help; modules are imported only when their command runs: starting stays quick.
_COMMANDS: Final = (
    (
        "demo",
        "sglr_dataplane.cli.demo",
        "start two simulated workers and the router, and show three answers",
    ),
    (
        "serve",
        "sglr_dataplane.cli.serve",
        "serve the workers of a manifest, or of an operator, under one address",
    ),
    ("top", "sglr_dataplane.cli.top", "watch a router's backends and workers"),
    ("check", "sglr_dataplane.cli.check", "tell what each backend of a manifest needs and can do"),
    (
        "parse",
        "sglr_dataplane.cli.parse",
        "read a model's text on standard input with the router's parsers",
    ),
    (
        "batch",
        "sglr_dataplane.cli.batch",
        "answer a file of requests in OpenAI's batch format into another",
    ),
    ("bench", "sglr_dataplane.cli.bench", "measure how fast an OpenAI endpoint answers"),
    ("sim-worker", "sglr_dataplane.sim.command", "simulate a worker, of gRPC or HTTP"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="sglr", description="A router for SGLang workers.")
    parser.add_argument("--version", action="version", version=f"sglr {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, module_name, summary in _COMMANDS:
        command = commands.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
        )
        if name in given[:1]:
            module = import_module(module_name)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    parsed = parser.parse_args(given)
    if parsed.command is None:
        parser.print_help()
        return 2
    status: int = parsed.run(parsed)
    return status
