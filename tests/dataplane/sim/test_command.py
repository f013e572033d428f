"""``sim-worker`` as a process: ready line, journal, death, SIGTERM, a restart on its port."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from pathlib import Path

import grpc
import pytest

from sglr_dataplane.sim.command import DEATH_EXIT_CODE, add_arguments, run
from sglr_proto.sglang import scheduler_pb2 as pb
from support.sim import sim_process
from support.sim_client import LIMIT, a_request, chunks_of, completes_of, connected

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]


def script_file(directory: Path, text: str) -> Path:
    """Write *text* to a script in *directory* and return its path."""
    path = directory / "script.yaml"
    path.write_text(text)
    return path


async def test_it_plays_its_script_and_writes_its_journal(tmp_path: Path) -> None:
    """The ready file names the address; each event is one line of JSON."""
    script = script_file(tmp_path, "rules: [{play: {ids: [5, 6]}}]")
    ready = tmp_path / "ready.json"
    async with (
        sim_process(tmp_path, "--script", str(script), "--ready-file", str(ready)) as worker,
        connected(worker.address) as client,
    ):
        messages = await client.generate(a_request("r1"))
        events = worker.events()

    assert chunks_of(messages) == [[5], [6]]
    assert json.loads(ready.read_text()) == {"ready": True, "address": worker.address}
    [generate] = [event for event in events if "generate" in event]
    assert generate["generate"] == "r1"
    assert generate["request"]["tokenized"]["input_ids"] == [11, 12, 13]
    assert {"scheduled": "r1"} in events


async def test_a_deadly_request_ends_the_process(tmp_path: Path) -> None:
    """With its exit code; the reason is in the journal, and a restart takes the same port."""
    async with sim_process(tmp_path) as worker:
        address = worker.address
        async with connected(worker.address) as client:
            _, error = await client.partial(a_request(ids=()))
        code = await worker.wait()
        await worker.start()
        async with connected(worker.address) as client:
            answered = await client.generate(a_request())

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert code == DEATH_EXIT_CODE
    assert {"died": "input_ids is empty"} in worker.events()
    assert worker.address == address
    assert completes_of(answered)


async def test_a_killed_process_breaks_its_streams(tmp_path: Path) -> None:
    """SIGKILL in the middle of an answer."""
    script = script_file(tmp_path, "rules: [{play: {ids: [1, 2], delay: 20s}}]")
    async with sim_process(tmp_path, "--script", str(script)) as worker:
        async with connected(worker.address) as client:
            call = client.stub.Generate(a_request(), timeout=LIMIT)
            first = await call.read()
            await worker.kill()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
        code = await worker.wait()

    assert isinstance(first, pb.GenerateResponse)
    assert list(first.chunk.token_ids) == [1]
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert code == -signal.SIGKILL


async def test_sigterm_gives_running_streams_five_seconds(tmp_path: Path) -> None:
    """A short answer is finished, a long one ends with UNAVAILABLE, the process with 0."""
    script = script_file(
        tmp_path,
        "rules: [{when: {rid: short}, play: {ids: [1, 2], delay: 1s}},"
        " {play: {ids: [1, 2], delay: 60s}}]",
    )
    loop = asyncio.get_running_loop()
    async with (
        sim_process(tmp_path, "--script", str(script)) as worker,
        connected(worker.address) as client,
    ):
        short = client.stub.Generate(a_request("short"), timeout=20)
        long = client.stub.Generate(a_request("long"), timeout=20)
        await short.read()
        await long.read()
        began = loop.time()
        worker.send(signal.SIGTERM)
        rest = [await short.read() for _ in range(3)]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await long.read()
        took = loop.time() - began
        code = await worker.wait()

    _second, complete, ending = rest
    assert isinstance(complete, pb.GenerateResponse)
    assert complete.HasField("complete")
    assert ending is grpc.aio.EOF
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert 4.5 < took < 9
    assert code == 0


async def test_an_idle_process_ends_at_once(tmp_path: Path) -> None:
    """SIGTERM without streams needs no grace."""
    loop = asyncio.get_running_loop()
    async with sim_process(tmp_path) as worker:
        began = loop.time()
        await worker.terminate()
        took = loop.time() - began

    assert took < 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--script", "missing.yaml"], "missing.yaml"),
        (["--tokenizer", "missing"], "directory is not there"),
        (["--token-delay", "20"], "Duration '20'"),
    ],
)
async def test_what_keeps_it_from_starting_is_one_sentence(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, no traceback."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    code = await asyncio.to_thread(run, parser.parse_args(arguments))
    captured = capsys.readouterr()

    assert code == 2
    assert captured.err.startswith("sim-worker: ")
    assert told in captured.err
    assert captured.err.count("\n") == 1
