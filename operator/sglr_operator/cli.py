"""``sglr-operator``: run the operator, or judge manifests without a cluster."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import sglr_proto
from sglr_operator.config import (
    Address,
    CopyConfig,
    LeaseConfig,
    OperatorConfig,
    PushConfig,
    validated,
)
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
    except ModuleNotFoundError as error:
        print(
            f"sglr-operator: the package {error.name!r} is missing; install the operator's with "
            "pip install 'sglang-k8s-router[operator]'.",
            file=sys.stderr,
        )
        return USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglr-operator", description=__doc__)
    parser.add_argument("--version", action="version", version=sglr_proto.__version__)
    commands = parser.add_subparsers(title="commands", required=True)
    run = commands.add_parser("run", help="watch the cluster and push endpoint lists to routers")
    _add_run_flags(run)
    run.set_defaults(run=_run)
    check = commands.add_parser(
        "check", help="say what the API server and the operator would say about a file"
    )
    check.add_argument(
        "-f", "--filename", required=True, action="append", help="a YAML file; - reads from stdin"
    )
    check.set_defaults(run=_check)
    diff = commands.add_parser("diff", help="say how a file differs from what the cluster has")
    diff.add_argument(
        "-f", "--filename", required=True, action="append", help="a YAML file; - reads from stdin"
    )
    diff.add_argument("--kubeconfig", help="default: the pod's service account, else the user's")
    diff.set_defaults(run=_diff)
    return parser


def _add_run_flags(run: argparse.ArgumentParser) -> None:
    add = run.add_argument
    add("--namespace", action="append", default=[], help="watch this one; repeat; default: all")
    add("--kubeconfig", help="default: the pod's service account, else the user's own")
    add("--http-address", type=_address, default="0.0.0.0:8081", help="health and metrics")
    add("--debug-address", type=_address, help="/debug/snapshot, on loopback; default: nowhere")
    add("--push-address", type=_address, default="0.0.0.0:9443", help="where routers subscribe")
    add("--push-certificate", help="PEM chain of the push server; without it there is no TLS")
    add("--push-key", help="PEM key of the push server")
    add("--push-client-ca", help="PEM bundle that router certificates must chain to")
    add("--push-auth", choices=["none", "mtls", "token-review", "token-keys"], default="none")
    add("--push-audience", default="sglr-operator", help="what router tokens are made for")
    add("--router-account", action="append", default=[], help="NAMESPACE:NAME let in; repeat")
    add(
        "--references",
        action="store_true",
        help="read Secrets and ConfigMaps labelled sglr.dev/for-routers=true",
    )
    add("--keep-copy", action="store_true", help="keep the last good list in a ConfigMap")
    add("--lease-namespace", default=os.environ.get("POD_NAMESPACE", "default"))
    add("--lease-name", default="sglr-operator")
    add("--identity", default=_identity(), help="unique per replica; default: the pod's")
    add("--log-level", choices=["DEBUG", "INFO", "WARNING", "ERROR"], default="INFO")


def _address(text: str) -> Address:
    """Return ``HOST:PORT`` as an address."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004  # TCP's last port
        raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT")
    return Address(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104  # as Go servers have it


def _identity() -> str:
    """Return a name for this replica that a restarted container keeps and no other pod has."""
    pod, uid = os.environ.get("POD_NAME"), os.environ.get("POD_UID")
    return f"{pod}_{uid}" if pod and uid else f"{socket.gethostname()}_{secrets.token_hex(4)}"


def _config(arguments: argparse.Namespace) -> OperatorConfig:
    push = PushConfig(
        address=arguments.push_address,
        certificate=arguments.push_certificate,
        key=arguments.push_key,
        client_ca=arguments.push_client_ca,
        auth=arguments.push_auth,
        audience=arguments.push_audience,
        router_accounts=tuple(arguments.router_account),
    )
    lease = LeaseConfig(
        namespace=arguments.lease_namespace,
        name=arguments.lease_name,
        identity=arguments.identity,
    )
    return validated(
        OperatorConfig(
            namespaces=tuple(arguments.namespace),
            kubeconfig=arguments.kubeconfig,
            push=push,
            lease=lease,
            copy=CopyConfig() if arguments.keep_copy else None,
            references=arguments.references,
            http=arguments.http_address,
            debug=arguments.debug_address,
        )
    )


def _run(arguments: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT; 0 after a clean end."""
    # The operator's own dependencies are an extra; `check` works without them.
    from prometheus_client import CollectorRegistry

    from sglr_operator.app import Operator
    from sglr_operator.log import set_up
    from sglr_operator.metrics import Metrics

    config = _config(arguments)
    set_up(arguments.log_level)

    async def run() -> None:
        operator = Operator(config, Metrics(CollectorRegistry()))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, operator.stop)
        await operator.run()

    problems: list[BaseException] = []
    try:
        asyncio.run(run())
    except* OperatorError as group:
        problems = _leaves(group)
    for problem in problems:
        print(f"sglr-operator: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _leaves(group: BaseExceptionGroup[OperatorError]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def _diff(arguments: argparse.Namespace) -> int:
    """Print what applying the files would change; 0 when nothing, 1 when something."""
    # Only this and `run` ask an API server, whose client is slow to import.
    from sglr_operator.difference import differences

    changed = 0
    for name in arguments.filename:
        try:
            lines = asyncio.run(differences(_text(name), arguments.kubeconfig))
        except (OSError, UnicodeDecodeError, ManifestError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return USAGE
        for line in lines:
            print(line)
        changed = 1 if lines else changed
    return changed


def _text(name: str) -> str:
    return sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")


def _check(arguments: argparse.Namespace) -> int:
    """Judge every file; 0 when nothing is wrong, 1 when something is, 2 when a file is unreadable."""
    # cel-python is needed here alone, and takes half a second to import.
    from sglr_operator.verdict import judge

    wrong = 0
    for name in arguments.filename:
        try:
            verdict = judge(_text(name))
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
