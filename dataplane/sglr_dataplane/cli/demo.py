"""``sglr demo``: two simulated workers, the router, and three answers, without a cluster."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sglr_dataplane.cli.children import Child, ChildFailedError, port_number
from sglr_proto.backend import API_VERSION, KIND

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator

MODEL = "demo"
_START_SECONDS = 30.0
_POLL_SECONDS = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``sglr demo`` takes."""
    parser.add_argument(
        "--once", action="store_true", help="end after the three answers; status 1 if one is wrong"
    )
    parser.add_argument(
        "--port",
        type=port_number,
        default=8080,
        help="the router's port; 0: any free one (%(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Start everything, show and judge three answers, stay until Ctrl-C unless ``--once``."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            judge = _start_judge(stack)
            base_url, router = _start(stack, arguments.port)
            print(f"The router is ready: {base_url} (two simulated workers, model {MODEL!r})\n")
            sys.stdout.flush()
            judge.communicate(base_url.encode())
            status = judge.returncode
            if arguments.once or status:
                return status
            print(
                "Everything stays up until Ctrl-C; the commands above work from another terminal."
            )
            router.wait()
            print("sglr demo: the router ended.", file=sys.stderr)
            return 1
    except ChildFailedError as error:
        print(f"sglr demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.")
        return 0


def _start(stack: ExitStack, port: int) -> tuple[str, Child]:
    """Start two workers and the router; return the router's base URL once it is ready."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sglr-demo-")))
    data = files("sglr_dataplane")
    model = stack.enter_context(as_file(data / "demo_model"))
    script = stack.enter_context(as_file(data / "cli" / "demo_script.yaml"))
    deadline = time.monotonic() + _START_SECONDS
    print("Starting two simulated SGLang workers and the router ...")
    worker = [
        "sim-worker",
        "--model-name",
        MODEL,
        "--tokenizer",
        str(model),
        "--script",
        str(script),
    ]
    workers = [
        stack.enter_context(_running(Child(f"worker {n}", worker, folder / f"worker-{n}.log")))
        for n in (1, 2)
    ]
    manifest = folder / "backends.yaml"
    # The workers' ports are known once they listen; the router follows its manifest meanwhile.
    addresses = [child.address(deadline) for child in workers]
    manifest.write_text(_manifest(addresses, model))
    serve = ["serve", "-f", str(manifest), "--port", str(_usable(port)), "--drain-settle", "0s"]
    router = stack.enter_context(_running(Child("the router", serve, folder / "router.log")))
    base_url = f"http://{router.address(deadline)}"
    _wait_until_ready(base_url, deadline)
    return base_url, router


@contextmanager
def _running(child: Child) -> Generator[Child]:
    try:
        yield child
    finally:
        child.stop()


def _usable(port: int) -> int:
    """Return *port* where it is free, else 0, for any free one; says so."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            print(f"Port {port} is taken; the router takes any free one.")
            return 0
    return port


def _manifest(addresses: list[str], model: Path) -> str:
    endpoints = [
        {"host": host, "port": int(port)}
        for host, _, port in (address.rpartition(":") for address in addresses)
    ]
    backend = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": MODEL},
        "spec": {
            "model": {"name": MODEL},
            "tokenizer": {"path": str(model)},
            "workers": {"static": {"endpoints": endpoints}},
            "routing": {"policy": "RoundRobin"},
        },
    }
    return msgspec.yaml.encode(backend).decode()


def _wait_until_ready(base_url: str, deadline: float) -> None:
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{base_url}/readyz", timeout=2):  # noqa: S310  # our own http URL
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(_POLL_SECONDS)
    raise ChildFailedError(f"The router was not ready within {_START_SECONDS:.0f} s.")


def _start_judge(stack: ExitStack) -> subprocess.Popen[bytes]:
    """Start who asks and judges, in another process, through the SDK that users have.

    It waits for the router's URL on its input: loading the SDK takes as long as all else.
    """
    command = [sys.executable, "-m", "sglr_dataplane.cli.judge", MODEL]
    judge = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603  # our own module
    stack.enter_context(judge)
    stack.callback(judge.kill)
    return judge
