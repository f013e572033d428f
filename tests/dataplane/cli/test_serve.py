"""``sglr serve`` as a process: its first line, its refusals, its end."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from sglr_dataplane.sim.script import Play
from support.router import SECONDS, a_worker, eventually, manifest
from support.router_process import sglr

SERVE = [sys.executable, "-m", "sglr_dataplane", "serve", "--cache-dir", "verdicts"]


def _refused(folder: Path, *arguments: str) -> str:
    """Return what ``sglr serve`` says when it refuses to start."""
    done = subprocess.run(
        [*SERVE, *arguments], cwd=folder, capture_output=True, text=True, timeout=15, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.processes
def test_a_missing_manifest_is_one_sentence(tmp_path: Path) -> None:
    """The file is named; no traceback."""
    assert "nothing.yaml" in _refused(tmp_path, "-f", "nothing.yaml", "--port", "0")


@pytest.mark.processes
def test_a_wrong_manifest_names_the_field(tmp_path: Path) -> None:
    """An unknown field ends the start, with its path."""
    (tmp_path / "b.yaml").write_text(manifest("127.0.0.1:1").replace("model:", "modle:"))

    assert "spec.modle" in _refused(tmp_path, "-f", "b.yaml", "--port", "0")


@pytest.mark.processes
@pytest.mark.parametrize("pause", ["0s", "2h", "15"])
def test_a_keepalive_that_makes_no_sense_is_refused(tmp_path: Path, pause: str) -> None:
    """No pause at all would fill the network, one of hours keeps nothing alive."""
    assert f"'{pause}'" in _refused(tmp_path, "-f", "b.yaml", "--keepalive", pause)


@pytest.mark.processes
@pytest.mark.parametrize("size", ["4095", "1048577", "64Ki", "-1"])
def test_a_limit_of_headers_that_makes_no_sense_is_refused(tmp_path: Path, size: str) -> None:
    """Less refuses ordinary clients; more lets anybody fill the memory before a key is asked for."""
    assert f"'{size}'" in _refused(tmp_path, "-f", "b.yaml", f"--max-header-bytes={size}")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("flags", "most"), [((), 65536), (("--max-header-bytes", "131072"), 131072)]
)
async def test_headers_are_read_up_to_the_limit_that_was_asked_for(
    tmp_path: Path, flags: tuple[str, ...], most: int
) -> None:
    """A kilobyte below it the request is answered, a byte above it is 431 in the envelope."""
    (tmp_path / "b.yaml").write_text(manifest("127.0.0.1:1"))
    async with (
        sglr("serve", "-f", str(tmp_path / "b.yaml"), "--port", "0", *flags) as address,
        httpx2.AsyncClient(base_url=f"http://{address}", timeout=SECONDS) as http,
    ):
        below = await http.get("/livez", headers={"x-much": "y" * (most - 1024)})
        above = await http.get("/livez", headers={"x-much": "y" * most})

    assert below.status_code == 200
    assert (above.status_code, above.json()["error"]["code"]) == (431, "headers_too_large")


async def _is_ready(http: httpx2.AsyncClient) -> bool:
    return (await http.get("/readyz")).status_code == 200


@pytest.mark.processes
async def test_the_pause_between_keepalives_is_what_was_asked_for(tmp_path: Path) -> None:
    """A stream that is silent for longer than that has its comment."""
    silent = Play(text="late", first_delay="900ms")
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    async with a_worker(silent) as worker:
        (tmp_path / "b.yaml").write_text(manifest(worker.address))
        flags = ["-f", str(tmp_path / "b.yaml"), "--port", "0", "--keepalive", "200ms"]
        async with (
            sglr("serve", *flags) as address,
            httpx2.AsyncClient(base_url=f"http://{address}", timeout=SECONDS) as http,
        ):
            await eventually(lambda: _is_ready(http))
            answer = await http.post("/v1/chat/completions", json=body)

    assert answer.text.startswith(": keep-alive\n\n: keep-alive\n\n")
    assert answer.text.endswith("data: [DONE]\n\n")


@pytest.mark.processes
def test_a_taken_port_says_what_to_do(tmp_path: Path) -> None:
    """The address and the way out are named."""
    (tmp_path / "b.yaml").write_text(manifest("127.0.0.1:1"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = _refused(tmp_path, "-f", "b.yaml", "--port", str(port))

    assert f"127.0.0.1:{port}" in told
    assert "--port" in told


@pytest.mark.processes
def test_it_announces_its_address_and_ends_on_sigterm(tmp_path: Path) -> None:
    """One JSON line on stdout once it listens; SIGTERM ends it with status 0."""
    (tmp_path / "b.yaml").write_text(manifest("127.0.0.1:1"))
    router = subprocess.Popen(
        [*SERVE, "-f", "b.yaml", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert router.stdout is not None
        announced = json.loads(router.stdout.readline())
        host, _, port = announced["address"].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5):
            pass
        router.send_signal(signal.SIGTERM)
        assert router.wait(15) == 0
    finally:
        router.kill()
        router.wait(10)
        assert router.stdout is not None
        router.stdout.close()

    assert announced["listening"] is True


@pytest.mark.processes
def test_a_router_does_not_import_what_it_may_not_need() -> None:
    """Starting stays quick and small: gRPC, the slower encoder and the SDK wait for their users."""
    heavy = ("grpc", "tokenizers", "openai", "huggingface_hub", "opentelemetry", "httpx2")
    program = (
        "import sys, sglr_dataplane.cli.serve, sglr_dataplane.cli.prefork\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True
    )

    assert done.stdout.strip() == "[]"
