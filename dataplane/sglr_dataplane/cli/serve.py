"""``sglr serve``: the router, in front of the workers of a manifest."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from sglr_dataplane import log
from sglr_dataplane.api.server import AddressInUseError
from sglr_dataplane.app import serve
from sglr_dataplane.config import DrainSettings, Limits, RouterConfig
from sglr_proto.backend import ManifestError
from sglr_proto.duration import seconds

if TYPE_CHECKING:
    from collections.abc import Callable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``sglr serve`` takes."""
    default = RouterConfig()
    parser.add_argument(
        "-f", "--file", required=True, metavar="FILE",
        help="SGLangBackend documents (YAML); reloaded when the file changes",
    )  # fmt: skip
    parser.add_argument("--host", default=default.host, help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port", type=int, default=default.port, help="port; 0: any free one (%(default)s)"
    )
    parser.add_argument(
        "--max-body-bytes", type=int, default=default.limits.max_body_bytes, metavar="N",
        help="largest request body (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--drain-settle", type=_duration, default=default.drain.settle, metavar="TIME",
        help="after SIGTERM, how long requests are still taken while /readyz fails (%(default)gs)",
    )  # fmt: skip
    parser.add_argument(
        "--drain-deadline", type=_duration, default=default.drain.deadline, metavar="TIME",
        help="after SIGTERM, when streams that still run are ended with an error (%(default)gs)",
    )  # fmt: skip
    parser.add_argument(
        "--cache-dir", default=_cache_dir(), metavar="DIR",
        help="where slow verdicts, such as which tokenizer is exact, are kept (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--log-level", default=default.log_level,
        choices=("DEBUG", "INFO", "WARNING", "ERROR"), help="(%(default)s)",
    )  # fmt: skip
    parser.add_argument("--no-access-log", action="store_true", help="write no line per request")


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C; prints one JSON line with the address once it listens."""
    config = RouterConfig(
        host=arguments.host,
        port=arguments.port,
        manifest=arguments.file,
        cache_dir=arguments.cache_dir,
        log_level=arguments.log_level,
        access_log=not arguments.no_access_log,
        limits=Limits(max_body_bytes=arguments.max_body_bytes),
        drain=DrainSettings(settle=arguments.drain_settle, deadline=arguments.drain_deadline),
    )
    log.set_up(config.log_level)
    # Its thread pool would start per process and not survive a fork; requests are the parallelism.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(config, on_listening=_announce))
    except (ManifestError, AddressInUseError) as error:
        print(f"sglr serve: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _announce(address: str, _stop: Callable[[], None]) -> None:
    print(json.dumps({"listening": True, "address": address}), flush=True)


def _duration(text: str) -> float:
    """Return *text*, such as ``250ms``, in seconds."""
    try:
        return seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _cache_dir() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(base) / "sglr")
