"""``sglr serve`` as a process: its first line, its refusals, its end."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.router import manifest

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
