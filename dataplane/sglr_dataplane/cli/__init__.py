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
    ("demo", "sglr_dataplane.cli.demo", "two simulated workers, the router and three answers"),
    ("serve", "sglr_dataplane.cli.serve", "the router, in front of the workers of a manifest"),
    ("top", "sglr_dataplane.cli.top", "a live view of a router's backends and workers"),
    ("check", "sglr_dataplane.cli.check", "a report of what a manifest's backends need and can do"),
    ("parse", "sglr_dataplane.cli.parse", "a model's text through the router's parsers"),
    ("batch", "sglr_dataplane.cli.batch", "a file of requests, answered into another"),
    ("sim-worker", "sglr_dataplane.sim.command", "a simulated SGLang gRPC worker"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; return its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="sglr", description="A router for SGLang workers.")
    parser.add_argument("--version", action="version", version=f"sglr {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module_name, summary in _COMMANDS:
        command = commands.add_parser(name, help=summary, description=f"Run {summary}.")
        if name in given[:1]:
            module = import_module(module_name)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    parsed = parser.parse_args(given)
    status: int = parsed.run(parsed)
    return status
