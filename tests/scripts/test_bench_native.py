"""The tools of the load runs, built and run: what they count is what was sent."""

from __future__ import annotations

import asyncio
import ctypes.util
import json
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sglr_dataplane.cli.bench_figures import Record
from sglr_dataplane.vocab import Vocabulary
from sglr_proto.sglang import scheduler_pb2 as pb
from support.router import DEMO_MODEL, SECONDS, manifest, running_router

NATIVE = Path(__file__).resolve().parents[2] / "bench" / "native"
HEADER = Path("/usr/include/nghttp2/nghttp2.h")
TEXT = 'A line with "quotes", a tab\t, a \\ and an é.\nAnother one.'

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(60),
    pytest.mark.skipif(
        shutil.which("gcc") is None
        or not HEADER.exists()
        or ctypes.util.find_library("nghttp2") is None,
        reason="needs gcc and libnghttp2-dev",
    ),
]


@pytest.fixture(name="ids", scope="module")
def ids_fixture() -> list[int]:
    """Return what the worker says."""
    vocabulary = Vocabulary.from_dir(DEMO_MODEL)
    by_bytes = {vocabulary.bytes_of(i): i for i in range(vocabulary.size)}
    return [by_bytes[bytes([byte])] for byte in TEXT.encode()]


@pytest.fixture(name="tools", scope="module")
def tools_fixture(tmp_path_factory: pytest.TempPathFactory, ids: list[int]) -> Path:
    """Return a folder with both programs, and what the worker answers."""
    folder = tmp_path_factory.mktemp("tools")
    for name, library in (("worker", "-lnghttp2"), ("load", "-lm")):
        command = ["gcc", "-Wall", "-Wextra", "-Werror", "-O1", "-o", str(folder / name)]
        subprocess.run([*command, str(NATIVE / f"{name}.c"), library], check=True, timeout=50)
    (folder / "ids.txt").write_text("\n".join(map(str, ids)))
    (folder / "replies").mkdir()
    answers = {
        "HealthCheck": pb.HealthCheckResponse(healthy=True),
        "GetModelInfo": pb.GetModelInfoResponse(served_model_name="m", is_generation=True),
        "GetServerInfo": pb.GetServerInfoResponse(),
    }
    for name, answer in answers.items():
        (folder / "replies" / name).write_bytes(answer.SerializeToString())
    (folder / "replies" / "Check").write_bytes(b"\x08\x01")
    return folder


@asynccontextmanager
async def a_native_worker(tools: Path, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the worker; its first line is its port."""
    process = await asyncio.create_subprocess_exec(
        *(str(tools / "worker"), "0", "--ids", str(tools / "ids.txt")),
        *("--replies", str(tools / "replies"), *flags),
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 10)


async def line_of(process: asyncio.subprocess.Process) -> Any:
    """Return the next line that *process* says, as JSON."""
    assert process.stdout is not None
    return json.loads(await asyncio.wait_for(process.stdout.readline(), SECONDS))


async def loaded(
    tools: Path, url: str, body: dict[str, Any], *arguments: str
) -> tuple[dict[str, Any], list[Record]]:
    """Put a load of *body* on *url* and return the totals and the records."""
    (tools / "bodies").write_text(json.dumps(body) + "\n")
    process = await asyncio.create_subprocess_exec(
        *(str(tools / "load"), url.rpartition(":")[2], str(tools / "bodies"), *arguments),
        *("--records", str(tools / "records"), "--texts", "--timeout", "30"),
        stdout=subprocess.PIPE,
    )
    totals = await line_of(process)
    assert await asyncio.wait_for(process.wait(), 10) == 0
    lines = (tools / "records").read_bytes().split(b"\n")[:-1]
    return totals, [msgspec.json.decode(line, type=Record) for line in lines]


@pytest.mark.parametrize("stream", [True, False])
async def test_every_token_is_counted_and_every_text_is_whole(
    tools: Path, ids: list[int], tmp_path: Path, stream: bool
) -> None:
    """Through a router, streamed and not: as many tokens and the text that the worker said."""
    body: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": len(ids),
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    async with a_native_worker(tools) as worker:
        port = await line_of(worker)
        async with running_router(tmp_path, manifest(f"127.0.0.1:{port}")) as router:
            totals, records = await loaded(tools, router.url, body, "12", "3", "0")
        worker.send_signal(signal.SIGUSR1)
        said = await line_of(worker)

    assert (totals["done"], totals["failed"], len(records)) == (12, 0, 12)
    assert {record.output_tokens for record in records} == {len(ids)}
    assert {record.text for record in records} == {TEXT}
    assert (said["requests"], said["tokens"], said["active"]) == (12, 12 * len(ids), 0)


async def test_the_pace_is_kept(tools: Path, tmp_path: Path) -> None:
    """No token comes before its time; the rate is that of the requests."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 5,
        "stream": True,
    }
    async with a_native_worker(tools, "--first", "50", "--gap", "20") as worker:
        port = await line_of(worker)
        async with running_router(tmp_path, manifest(f"127.0.0.1:{port}")) as router:
            totals, records = await loaded(tools, router.url, body, "6", "6", "50")

    assert totals["done"] == 6
    assert all(record.first is not None and record.first >= 0.05 for record in records)
    assert all(record.end >= 0.05 + 4 * 0.02 for record in records)
    assert [record.begin for record in records] != [records[0].begin] * 6


async def test_what_is_refused_is_counted_as_failed(tools: Path, tmp_path: Path) -> None:
    """A status above 200 is no answer."""
    body = {"model": "nobody", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with a_native_worker(tools) as worker:
        port = await line_of(worker)
        async with running_router(tmp_path, manifest(f"127.0.0.1:{port}")) as router:
            (tools / "bodies").write_text(json.dumps(body) + "\n")
            process = await asyncio.create_subprocess_exec(
                *(str(tools / "load"), router.url.rpartition(":")[2], str(tools / "bodies")),
                *("4", "2", "0", "--timeout", "20"),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            totals = await line_of(process)
            status = await asyncio.wait_for(process.wait(), 10)

    assert (totals["done"], totals["failed"], status) == (0, 4, 1)
