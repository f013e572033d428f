"""A20: a router whose fleet is no longer tended says so, and ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from sglr_dataplane.app import Router
from sglr_dataplane.config import RouterConfig
from support.router import eventually, manifest

BROKEN = """
import sys
from sglr_dataplane.app import Router
from sglr_dataplane.cli import main

async def broken(self):
    raise RuntimeError("the watcher died")

Router.run_fleet = broken
sys.exit(main(["serve", "-f", "b.yaml", "--port", "0", "--cache-dir", "verdicts"]))
"""


class Broken(Router):
    """A router whose fleet loop dies at once."""

    async def run_fleet(self) -> None:
        """Die."""
        raise RuntimeError("the watcher died")


@pytest.mark.processes
def test_a20_a_router_whose_fleet_loop_died_ends_with_an_error(tmp_path: Path) -> None:
    """A20: Kubernetes starts a new one; the log has the traceback."""
    (tmp_path / "b.yaml").write_text(manifest("127.0.0.1:1"))
    done = subprocess.run(
        [sys.executable, "-c", BROKEN],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=18,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    assert "fleet ended" in done.stderr
    assert "RuntimeError: the watcher died" in done.stderr
    assert "sglr serve: The router stopped" in done.stderr


async def test_a20_livez_fails_when_the_fleet_loop_died(caplog: pytest.LogCaptureFixture) -> None:
    """A20: 503 as long as the process still finishes what runs; the one who can end it is told."""
    router = Broken(RouterConfig())
    told: list[bool] = []
    router.on_failure = lambda: told.append(True)
    transport = httpx2.ASGITransport(router.app)
    async with (
        router.running(),
        httpx2.AsyncClient(transport=transport, base_url="http://router") as http,
    ):
        await eventually(lambda: told)
        status = (await http.get("/livez")).status_code

    assert status == 503
    assert "the watcher died" in caplog.text


async def test_a_router_that_is_told_to_end_has_not_failed() -> None:
    """Its fleet is cancelled at the end: that is no failure."""
    router = Router(RouterConfig())
    async with router.running():
        pass

    assert router.failure is None
