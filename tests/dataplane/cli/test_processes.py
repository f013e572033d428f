"""``sglr serve --processes``: one router to everybody outside, whatever happens to its parts."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from sglr_dataplane.sim.script import Incident, Play
from support.processes import Served, is_running, kill, serving
from support.router import SECONDS, a_worker, eventually, manifest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

REQUEST = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
ASKED = 'sglr_requests_total{outcome="ok",route="/v1/chat/completions"}'
QUICK = Play(text="Hi.")
SLOW = Play(text="one two three four five six seven eight nine ten", delay="300ms")
ENDLESS = Play(text="one two", incidents=(Incident(after=2, hang=True),))


async def ask(served: Served) -> int:
    """Return the status of one chat on a new connection; 0 when the connection breaks."""
    async with served.connection() as http:
        try:
            answer = await http.post("/v1/chat/completions", json=REQUEST)
        except httpx2.TransportError:
            return 0
        return answer.status_code if answer.text.endswith("data: [DONE]\n\n") else 0


async def gone(clients: list[asyncio.Task[int]]) -> None:
    """Let *clients* hang up."""
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)


async def test_every_scrape_shows_the_sum_of_all_processes(tmp_path: Path) -> None:
    """Requests are counted once, wherever they ran; workers are not counted twice."""
    async with (
        a_worker(QUICK) as worker,
        serving(tmp_path, manifest(worker.address)) as served,
    ):
        statuses = await asyncio.gather(*(ask(served) for _ in range(24)))
        scrapes = [await served.metrics() for _ in range(6)]
        threads = served.supervisor_threads()

        assert statuses == [200] * 24
        assert {line["process"] for line in served.logged("listening")} == {0, 1}

        async def one_worker_is_ready() -> bool:
            found = await served.metrics()
            return found['sglr_workers{backend="default/backend",state="ready"}'] == 1

        await eventually(one_worker_is_ready)

    assert [scrape[ASKED] for scrape in scrapes] == [24] * 6
    assert threads == 1
    assert [scrape["sglr_processes"] for scrape in scrapes] == [2] * 6


async def test_a_killed_process_is_replaced_and_takes_no_count_with_it(tmp_path: Path) -> None:
    """Under load: counters never fall, the death is counted, its requests in flight vanish."""
    plays = (*[QUICK] * 6, *[ENDLESS] * 12, QUICK)
    async with (
        a_worker(*plays) as worker,
        serving(tmp_path, manifest(worker.address)) as served,
    ):
        first = await asyncio.gather(*(ask(served) for _ in range(6)))
        running = [asyncio.create_task(ask(served)) for _ in range(12)]
        await eventually(lambda: len(worker.scheduler.running) == 12)
        before = await served.metrics()
        victim = served.pids()[0]
        kill(victim)
        seen = [before[ASKED]]

        async def two_again() -> bool:
            found = await served.metrics()
            seen.append(found[ASKED])
            return found["sglr_processes"] == 2 and found["sglr_process_deaths_total"] == 1

        await eventually(two_again)
        later = await asyncio.gather(*(ask(served) for _ in range(4)))
        await gone(running)

        async def nothing_runs() -> bool:
            found = await served.metrics()
            seen.append(found[ASKED])
            return found["sglr_requests_in_flight"] == 0

        await eventually(nothing_runs)
        pids = served.pids()

    assert first + later == [200] * 10
    assert (before["sglr_requests_in_flight"], before[ASKED]) == (12, 6)
    assert victim not in pids
    assert len(pids) == 2
    assert seen == sorted(seen)
    assert seen[-1] == 10


async def test_sigterm_lets_the_streams_of_every_process_finish(tmp_path: Path) -> None:
    """One signal to the supervisor drains all; then the router ends with status 0."""
    async with a_worker(SLOW) as worker, serving(tmp_path, manifest(worker.address)) as served:
        running = [asyncio.create_task(ask(served)) for _ in range(12)]
        await eventually(lambda: len(worker.requests) == 12)
        children = served.pids()
        served.process.send_signal(signal.SIGTERM)
        statuses = await asyncio.gather(*running)
        async with asyncio.timeout(SECONDS):
            status = await served.process.wait()

    assert statuses == [200] * 12
    assert status == 0
    assert not any(is_running(pid) for pid in children)
    assert len(served.logged("drained")) == 2


async def test_a_second_signal_ends_every_process_at_once(tmp_path: Path) -> None:
    """Whoever signals twice does not wait for streams."""
    silent = Play(text="one", first_delay="30s")
    async with a_worker(silent) as worker, serving(tmp_path, manifest(worker.address)) as served:
        running = asyncio.create_task(ask(served))
        await eventually(lambda: len(worker.scheduler.running) >= 1)
        children = served.pids()
        served.process.send_signal(signal.SIGTERM)
        await eventually(lambda: len(served.logged("draining")) == 2)
        served.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            await served.process.wait()
        await running

    assert not any(is_running(pid) for pid in children)


async def test_an_edit_of_the_manifest_reaches_every_process(tmp_path: Path) -> None:
    """Each follows the file by itself."""
    async with (
        a_worker(QUICK) as worker,
        serving(tmp_path, manifest(worker.address)) as served,
    ):
        served.manifest.write_text(manifest(worker.address).replace("org/alias", "org/other"))
        await eventually(lambda: len(served.logged("manifest loaded")) == 2)

    assert {line["process"] for line in served.logged("manifest loaded")} == {0, 1}


async def test_a_replacement_serves_the_last_good_manifest_while_the_file_is_broken(
    tmp_path: Path,
) -> None:
    """A process that dies while somebody edits does not come back knowing less."""
    async with (
        a_worker(QUICK) as worker,
        serving(tmp_path, manifest(worker.address)) as served,
    ):
        served.manifest.write_text("kind: [")
        kill(served.pids()[0])
        await eventually(lambda: len(served.logged("worker ready")) == 3)
        statuses = await asyncio.gather(*(ask(served) for _ in range(12)))
        dead = served.logged("process died, another takes its place")

    assert statuses == [200] * 12
    assert len(dead) == 1


async def test_processes_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    """None is left behind with the port."""
    async with (
        a_worker(QUICK) as worker,
        serving(tmp_path, manifest(worker.address)) as served,
    ):
        children = served.pids()
        kill(served.process.pid)

        await eventually(lambda: not any(is_running(pid) for pid in children))
        assert await served.status() == 0


async def test_any_process_answers_for_the_fleet_on_the_admin_port(tmp_path: Path) -> None:
    """What runs in both processes is one number to ``sglr top``."""
    async with (
        a_worker(ENDLESS) as worker,
        serving(tmp_path, manifest(worker.address), "--admin-port", "0") as served,
    ):
        running = [asyncio.create_task(ask(served)) for _ in range(8)]
        await eventually(lambda: len(worker.scheduler.running) == 8)
        admin = f"http://{served.logged('admin listening')[0]['address']}"

        async def all_are_shown() -> bool:
            async with httpx2.AsyncClient(timeout=SECONDS) as http:
                fleet = (await http.get(f"{admin}/debug/workers")).json()
            [backend] = fleet["backends"]
            return (fleet["processes"], backend["workers"][0]["in_flight"]) == (2, 8)

        await eventually(all_are_shown)
        await gone(running)


def test_a_process_that_stands_still_is_replaced(tmp_path: Path) -> None:
    """It answers no probe, and the others answer all: only the supervisor can see it."""
    program = """
import os, signal, sys
from sglr_dataplane.cli.processes import Supervisor, counting

def work(place, replaces):
    if replaces:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        os.kill(os.getppid(), signal.SIGTERM)
    while True:
        signal.pause()

with counting() as counts:
    sys.exit(Supervisor(1, work, counts, deadline=5, look=0.01).run())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_what_the_processes_themselves_refuse_ends_the_router(tmp_path: Path) -> None:
    """As a port that somebody else has: nothing would be better in the next process."""
    (tmp_path / "b.yaml").write_text(manifest("127.0.0.1:1"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "sglr_dataplane", "serve", "-f", "b.yaml"),
                *("--port", "0", "--processes", "2", "--cache-dir", "verdicts"),
                *("--grpc-port", str(port), "--drain-settle", "0s"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )

    assert done.returncode == 2, done.stderr
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_cannot_be_used_is_said_once(tmp_path: Path) -> None:
    """No process is started on a manifest that is wrong."""
    (tmp_path / "b.yaml").write_text("kind: Nonsense")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sglr_dataplane", "serve", "-f", "b.yaml"),
            *("--port", "0", "--processes", "3", "--cache-dir", "verdicts"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.count("sglr serve:") == 1
    assert "Traceback" not in done.stderr
