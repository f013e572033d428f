"""``sglr serve``: the router, in front of the workers of a manifest or of an operator."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from sglr_dataplane import log
from sglr_dataplane.api.admin import AdminRefusedError
from sglr_dataplane.api.server import AddressInUseError, TlsFilesError
from sglr_dataplane.api.traces import TracingMissingError
from sglr_dataplane.app import FleetEndedError, Inherited, serve
from sglr_dataplane.config import (
    AdminConfig,
    DrainSettings,
    GrpcConfig,
    Limits,
    RouterConfig,
    ServerTls,
    TracingConfig,
)
from sglr_dataplane.fleet.intake_config import IntakeConfig
from sglr_dataplane.fleet.keys import KeysFileError
from sglr_proto.backend import ManifestError
from sglr_proto.duration import refuse_outside, seconds

if TYPE_CHECKING:
    from collections.abc import Callable


_MOST_PROCESSES: Final = 256
"""More than a machine of any kind has a use for: each wants a core and 100 MB."""
_FEWEST_HEADER_BYTES: Final = 4 * 1024
_MOST_HEADER_BYTES: Final = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``sglr serve`` takes."""
    default = RouterConfig()
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "-f", "--file", metavar="FILE",
        help="SGLangBackend documents (YAML); reloaded when the file changes",
    )  # fmt: skip
    source.add_argument(
        "--operator", metavar="HOST:PORT", help="sglr-operator that pushes backends and workers"
    )
    _add_operator_arguments(parser)
    parser.add_argument("--host", default=default.host, help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port", type=int, default=default.port, help="port; 0: any free one (%(default)s)"
    )
    parser.add_argument(
        "--max-body-bytes", type=int, default=default.limits.max_body_bytes, metavar="N",
        help="largest request body (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--max-header-bytes", type=_header_bytes, default=default.limits.max_header_bytes,
        metavar="N",
        help="largest line and headers of a request, 4096 to 1048576; above it is 431 (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--keys-file", default=default.keys, metavar="FILE",
        help="callers' keys (YAML); reloaded when it changes; without it requests need no key",
    )  # fmt: skip
    parser.add_argument(
        "--cors-origin", action="append", default=[], metavar="ORIGIN",
        help="an origin whose pages may call this router, or *; may be repeated (none)",
    )  # fmt: skip
    parser.add_argument(
        "--processes", type=_processes, default=1, metavar="N",
        help="processes that share the port, each for one core; limits of backends and keys "
        "are divided among them (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--zone", default=os.environ.get("SGLR_ZONE", default.zone), metavar="NAME",
        help="where this router is, for backends that prefer workers of its zone ($SGLR_ZONE)",
    )  # fmt: skip
    _add_tls_and_admin_arguments(parser)
    parser.add_argument(
        "--keepalive", type=_pause, default=default.keepalive, metavar="TIME",
        help="silence after which a stream gets a comment, 100ms to 1h (%(default)gs)",
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
        "--cache-dir", default=default_cache_dir(), metavar="DIR",
        help="where slow verdicts, such as which tokenizer is exact, are kept (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--log-level", default=default.log_level,
        choices=("DEBUG", "INFO", "WARNING", "ERROR"), help="(%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--otlp-endpoint", metavar="URL",
        help="collector of OpenTelemetry's traces, OTLP over HTTP ($OTEL_EXPORTER_OTLP_ENDPOINT; "
        "without either there are none)",
    )  # fmt: skip
    parser.add_argument("--no-access-log", action="store_true", help="write no line per request")


def _add_tls_and_admin_arguments(parser: argparse.ArgumentParser) -> None:
    for flag, metavar, help_text in (
        ("--tls-certificate", "FILE", "PEM chain to serve with; reloaded when it changes"),
        ("--tls-key", "FILE", "PEM key of that certificate"),
        ("--tls-client-ca", "FILE", "PEM bundle that clients' certificates must be signed by"),
        ("--admin-host", "HOST", "address of the admin port (127.0.0.1)"),
        ("--admin-token-file", "FILE", "what callers of the admin port must show"),
    ):
        parser.add_argument(flag, metavar=metavar, help=help_text)
    parser.add_argument(
        "--admin-port", type=int, metavar="PORT",
        help="serves /debug/workers, for sglr top; 8081 by convention (none)",
    )  # fmt: skip
    parser.add_argument(
        "--grpc-port", type=int, metavar="PORT",
        help="serves inference.v1 on --host, with TLS where HTTP has it; 50051 by convention (none)",
    )  # fmt: skip


def _tls(arguments: argparse.Namespace) -> ServerTls | None:
    if arguments.tls_certificate is None:
        return None
    key = arguments.tls_key or arguments.tls_certificate
    return ServerTls(arguments.tls_certificate, key, arguments.tls_client_ca)


def _admin(arguments: argparse.Namespace) -> AdminConfig | None:
    if arguments.admin_port is None:
        return None
    return AdminConfig(
        port=arguments.admin_port,
        host=arguments.admin_host or "127.0.0.1",
        token_file=arguments.admin_token_file,
    )


def tracing_of(arguments: argparse.Namespace) -> TracingConfig | None:
    """Return where traces go; None without an endpoint, and where OpenTelemetry is switched off."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if arguments.otlp_endpoint is not None:
        return TracingConfig(arguments.otlp_endpoint)
    named = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return TracingConfig() if any(map(os.environ.get, named)) else None


def _grpc(arguments: argparse.Namespace) -> GrpcConfig | None:
    if arguments.grpc_port is None:
        return None
    return GrpcConfig(arguments.host, arguments.grpc_port)


def _add_operator_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("with --operator")
    for flag, help_text in (
        ("--operator-ca", "PEM bundle of the operator's certificate; without it there is no TLS"),
        ("--operator-certificate", "PEM chain that this router shows"),
        ("--operator-key", "PEM key of that certificate"),
        ("--operator-token", "bearer token that this router shows, over TLS; read at each connect"),
        ("--last-known-good", "where the last good list is kept, for starts without an operator"),
        ("--last-known-good-copy", "a read-only copy of it, such as a mounted ConfigMap"),
    ):
        group.add_argument(flag, type=Path, metavar="FILE", help=help_text)


def _operator(arguments: argparse.Namespace) -> IntakeConfig | None:
    """Return how to subscribe; None when a file says what is served."""
    if arguments.operator is None:
        return None
    return IntakeConfig(
        operator=arguments.operator,
        router=os.environ.get("POD_NAME", socket.gethostname()),
        # Without a pod every process counts as a router of its own.
        pod_uid=os.environ.get("POD_UID", f"{socket.gethostname()}-{os.getpid()}"),
        file=arguments.last_known_good,
        mounted=arguments.last_known_good_copy,
        ca=arguments.operator_ca,
        certificate=arguments.operator_certificate,
        key=arguments.operator_key,
        token=arguments.operator_token,
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C; prints one JSON line with the address once it listens."""
    config = RouterConfig(
        host=arguments.host,
        port=arguments.port,
        manifest=arguments.file or RouterConfig().manifest,
        cache_dir=arguments.cache_dir,
        log_level=arguments.log_level,
        access_log=not arguments.no_access_log,
        limits=Limits(
            max_body_bytes=arguments.max_body_bytes, max_header_bytes=arguments.max_header_bytes
        ),
        keys=arguments.keys_file,
        tls=_tls(arguments),
        admin=_admin(arguments),
        grpc=_grpc(arguments),
        cors_origins=tuple(arguments.cors_origin),
        keepalive=arguments.keepalive,
        zone=arguments.zone,
        tracing=tracing_of(arguments),
        drain=DrainSettings(settle=arguments.drain_settle, deadline=arguments.drain_deadline),
    )
    if config.grpc is not None and arguments.processes > 1:
        if not config.grpc.port:
            print("sglr serve: --grpc-port needs a number with --processes.", file=sys.stderr)
            return 2
        config = replace(config, grpc=replace(config.grpc, shared=True))
    log.set_up(config.log_level)
    _spare_the_interpreter()
    # Its thread pool would start per process and not survive a fork; requests are the parallelism.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    operator = _operator(arguments)
    if arguments.processes == 1:
        return _serve(config, _announce, operator)
    # What a router of one process never needs.
    from sglr_dataplane.cli.prefork import Prefork

    return _status_of(Prefork(config, operator, arguments.processes, _serve).run)


def _serve(
    config: RouterConfig,
    on_listening: Callable[[str, Callable[[], None]], None],
    operator: IntakeConfig | None,
    inherited: Inherited | None = None,
) -> int:
    def work() -> int:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(
                serve(config, on_listening=on_listening, operator=operator, inherited=inherited)
            )
        return 0

    return _status_of(work)


def _status_of(work: Callable[[], int]) -> int:
    """Return what *work* returns, or the status of what it raises, told in a sentence."""
    try:
        return work()
    except (
        ManifestError,
        KeysFileError,
        TlsFilesError,
        AdminRefusedError,
        AddressInUseError,
        TracingMissingError,
    ) as error:
        print(f"sglr serve: {error}", file=sys.stderr)
        return 2
    except FleetEndedError as error:
        print(f"sglr serve: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _announce(address: str, _stop: Callable[[], None]) -> None:
    print(json.dumps({"listening": True, "address": address}), flush=True)


def _processes(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= _MOST_PROCESSES:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected 1 to {_MOST_PROCESSES}, not {text!r}")


def _header_bytes(text: str) -> int:
    """Return *text* as a number of bytes: ordinary clients need 4 KiB, and nobody a mebibyte."""
    if text.isdecimal() and _FEWEST_HEADER_BYTES <= int(text) <= _MOST_HEADER_BYTES:
        return int(text)
    expected = f"{_FEWEST_HEADER_BYTES} to {_MOST_HEADER_BYTES} bytes"
    raise argparse.ArgumentTypeError(f"expected {expected}, not {text!r}")


def _duration(text: str) -> float:
    """Return *text*, such as ``250ms``, in seconds."""
    try:
        return seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _pause(text: str) -> float:
    """Return *text* in seconds: long enough that comments are no traffic of their own."""
    try:
        refuse_outside(0.1, 3600, keepalive=text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return seconds(text)


def _spare_the_interpreter() -> None:
    """Switch off what Python does for every request and nobody here needs.

    A tenth of a request's cost: the collector's default is to look at the young objects after 700
    allocations, which is in the middle of every few requests. Answered requests leave it nothing
    (``api.http_protocol``); connections and failures leave a little. What there is by now stays, and
    is not looked at again. No log line names a thread or a process of Python's.
    """
    gc.freeze()
    gc.set_threshold(20_000, 2, 10)
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def default_cache_dir() -> str:
    """Return where the router keeps what is slow to find, as the XDG rules have it."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(base) / "sglr")
