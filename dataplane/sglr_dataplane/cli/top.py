"""``sglr top``: a live view of a router's backends and workers, from its admin port."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import argparse

_COLUMNS: Final = (
    ("WORKER", "<32"),
    ("STATE", "<10"),
    ("BREAKER", "<9"),
    ("IN FLIGHT", ">9"),
    ("LOAD", ">6"),
    ("LIMIT", ">6"),
    ("TTFT", ">8"),
    ("LAST", ">7"),
)
_CLEAR: Final = "\x1b[H\x1b[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``sglr top`` takes."""
    parser.add_argument(
        "--url", default="http://127.0.0.1:8081", help="the router's admin port (%(default)s)"
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="the admin token, if any")
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="(%(default)s)"
    )
    parser.add_argument("--once", action="store_true", help="show it once and end")


def run(arguments: argparse.Namespace) -> int:
    """Show the fleet until Ctrl-C; status 1 when the router cannot be asked."""
    if not arguments.url.startswith(("http://", "https://")):
        print(f"sglr top: {arguments.url!r} is no http or https URL.", file=sys.stderr)
        return 2
    token = arguments.token_file.read_text().strip() if arguments.token_file else None
    try:
        while True:
            page = screen(_asked(f"{arguments.url.rstrip('/')}/debug/workers", token))
            print(page if arguments.once else _CLEAR + page, flush=True)
            if arguments.once:
                return 0
            time.sleep(arguments.interval)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        print(f"sglr top: {arguments.url} does not answer: {reason}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


def screen(fleet: dict[str, Any]) -> str:
    """Return *fleet*, as ``/debug/workers`` has it, as text."""
    processes = fleet.get("processes", 1)
    several = f", {processes} processes" if processes > 1 else ""
    lines = [f"router {fleet['phase']}{several}, {fleet['requests']} requests"]
    for backend in fleet["backends"]:
        lines += ["", _title(backend), _row(*(name for name, _ in _COLUMNS))]
        for worker in sorted(backend["workers"], key=lambda each: str(each["worker"])):
            lines.append(_line(worker))
            if worker["problem"]:
                lines.append(f"  {worker['problem']}")
    return "\n".join(lines)


def _title(backend: dict[str, Any]) -> str:
    ready = sum(worker["state"] == "ready" for worker in backend["workers"])
    # As every backend has it unless it shares its model with others.
    share = (backend["weight"], backend["priority"])
    traffic = "" if share == (1, 0) else f"weight {share[0]}, priority {share[1]}  "
    return (
        f"{backend['backend']}  model {backend['model']}  {traffic}{backend['policy']}  "
        f"{ready}/{len(backend['workers'])} ready  {backend['admitted']} run, "
        f"{backend['waiting']} wait"
    )


def _line(worker: dict[str, Any]) -> str:
    first, last = worker["first_token_seconds"], worker["answered_seconds_ago"]
    return _row(
        worker["worker"],
        worker["state"] + ("?" if worker["suspect"] else ""),
        worker["breaker"],
        worker["in_flight"],
        worker["load"],
        "-" if worker["limit"] is None else worker["limit"],
        "-" if first is None else f"{first * 1000:.0f}ms",
        "-" if last is None else f"{last:.0f}s",
    )


def _row(*cells: object) -> str:
    formats = (spec for _, spec in _COLUMNS)
    return " ".join(f"{cell!s:{spec}}" for cell, spec in zip(cells, formats, strict=True)).rstrip()


def _asked(url: str, token: str | None) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  # checked to be http
    with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310  # same
        fleet: dict[str, Any] = json.load(answer)
    return fleet
