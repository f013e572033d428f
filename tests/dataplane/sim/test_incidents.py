"""Scripted trouble over loopback: statuses, deaths, resets, hangs, a full queue."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from sglr_dataplane.sim.script import Incident, Play, RpcFault, Rule, Script, Status
from sglr_proto.sglang import scheduler_pb2 as pb
from support.sim import sim_worker
from support.sim_client import LIMIT, a_request, chunks_of, completes_of, connected

BROKEN = Status(code="INTERNAL", message="broken on purpose", trailers={"x-why": "test"})


def playing(play: Play, **script: Any) -> Script:
    """Return a script that always plays *play*."""
    return Script(rules=(Rule(play=play),), **script)


def troubled(*incidents: Incident) -> Script:
    """Return a script of two tokens and *incidents*."""
    return playing(Play(ids=(1, 2), incidents=incidents))


@pytest.mark.parametrize(
    ("after", "chunks", "completes"),
    [(0, [], 0), (1, [[1]], 0), (2, [[1], [2]], 0), ("complete", [[1], [2]], 1)],
)
async def test_a_status_at_any_point(after: Any, chunks: list[list[int]], completes: int) -> None:
    """Before the first token, mid-stream, before and after complete, trailers included."""
    script = troubled(Incident(after=after, status=BROKEN))
    async with sim_worker(script) as worker, connected(worker.address) as client:
        messages, error = await client.partial(a_request())

    assert chunks_of(messages) == chunks
    assert len(completes_of(messages)) == completes
    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "broken on purpose")
    assert ("x-why", "test") in [(key, value) for key, value in error.trailing_metadata()]


async def test_a_status_of_a_call_without_stream() -> None:
    """Nothing is sent before it."""
    script = troubled(Incident(after=1, status=BROKEN))
    async with sim_worker(script) as worker, connected(worker.address) as client:
        messages, error = await client.partial(a_request(stream=False))

    assert messages == []
    assert error.code() is grpc.StatusCode.INTERNAL


async def test_a_stream_may_end_well_without_complete() -> None:
    """A03 (a): two chunks and status OK; also by ``status: OK`` in the middle."""
    without = playing(Play(ids=(1, 2), complete="missing"))
    async with sim_worker(without) as worker, connected(worker.address) as client:
        whole = await client.generate(a_request())
        worker.use(troubled(Incident(after=1, status=Status(code="OK"))))
        cut = await client.generate(a_request())

    assert (chunks_of(whole), completes_of(whole)) == ([[1], [2]], [])
    assert (chunks_of(cut), completes_of(cut)) == ([[1]], [])


@pytest.mark.parametrize("after", [0, 1])
async def test_a_reset_breaks_one_connection_only(after: int) -> None:
    """The client sees its connection break; the worker answers others, and the same one later."""
    script = Script(
        rules=(
            Rule(play=Play(ids=(1, 2), incidents=(Incident(after=after, die="reset"),)), times=1),
            Rule(play=Play(ids=(3,))),
        )
    )
    async with (
        sim_worker(script) as worker,
        connected(worker.address) as client,
        connected(worker.address) as other,
    ):
        await other.is_serving()
        messages, error = await client.partial(a_request("broken"))
        others = await other.generate(a_request("other"))
        again = await client.generate(a_request("again"))

    assert chunks_of(messages) in ([[1]] if after else [], [])
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert chunks_of(others) == chunks_of(again) == [[3]]
    assert worker.recorder.deaths == []


async def test_a_death_in_the_middle_of_a_stream() -> None:
    """The stream breaks, and the port refuses."""
    script = troubled(Incident(after=1, die="exit"))
    async with sim_worker(script) as worker:
        async with connected(worker.address) as client:
            _, error = await client.partial(a_request())
        async with connected(worker.address) as client:
            _, refused = await client.partial(a_request())

    assert error.code() is refused.code() is grpc.StatusCode.UNAVAILABLE
    assert worker.recorder.deaths == ["the script says so"]
    assert worker.cancelled == []


async def test_a_hang_says_nothing_for_ever() -> None:
    """After the chunks before it."""
    script = troubled(Incident(after=1, hang=True))
    async with sim_worker(script) as worker, connected(worker.address) as client:
        messages, error = await client.partial(a_request(), limit=0.5)

    assert chunks_of(messages) == [[1]]
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_health_can_change_in_the_middle_of_an_answer() -> None:
    """The answer goes on."""
    script = troubled(Incident(after=1, serving=False))
    async with sim_worker(script) as worker, connected(worker.address) as client:
        before = await client.is_serving()
        messages = await client.generate(a_request())
        after = await client.is_serving()

    assert (before, after) == (True, False)
    assert len(completes_of(messages)) == 1


async def test_a_full_queue_loses_the_request_in_silence() -> None:
    """As the real worker: no error, the stream just stays open."""
    script = playing(Play(ids=(1,), first_delay="20s"))
    async with (
        sim_worker(script, max_running_requests=1, max_queued_requests=1) as worker,
        connected(worker.address) as client,
    ):
        held = []
        for rid in ("run", "wait"):
            held.append(client.stub.Generate(a_request(rid), timeout=LIMIT))
            await worker.wait_for_requests(len(held))
        lost = await client.hangs(a_request("lost"))
        running = [run.rid for run in worker.scheduler.running]
        waiting = [run.rid for run in worker.scheduler.waiting]
        for call in held:
            call.cancel()

    assert lost
    assert (running, waiting) == (["run"], ["wait"])


async def test_a_full_queue_can_be_told() -> None:
    """UNAVAILABLE, the code of a dead worker, with the scheduler's sentence."""
    script = playing(Play(ids=(1,), first_delay="20s"), queue_full="unavailable")
    async with (
        sim_worker(script, max_running_requests=1, max_queued_requests=0) as worker,
        connected(worker.address) as client,
    ):
        held = client.stub.Generate(a_request("run"), timeout=LIMIT)
        await worker.wait_for_requests(1)
        _, error = await client.partial(a_request("told"))
        held.cancel()

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert error.details() == "The request queue is full."


async def test_a_queued_request_runs_when_a_slot_is_free() -> None:
    """First come, first served, also after a cancel."""
    script = Script(
        rules=(Rule(play=Play(ids=(1,), first_delay="20s"), times=1), Rule(play=Play(ids=(2,))))
    )
    async with (
        sim_worker(script, max_running_requests=1) as worker,
        connected(worker.address) as client,
    ):
        held = client.stub.Generate(a_request("run"), timeout=LIMIT)
        await worker.wait_for_requests(1)
        queued = asyncio.create_task(client.generate(a_request("queued")))
        await worker.wait_for_requests(2)
        held.cancel()
        messages = await queued

    assert chunks_of(messages) == [[2]]


async def test_single_rpcs_can_be_broken() -> None:
    """With a status, by silence, or slow; the others work."""
    script = Script(
        rpcs={
            "GetModelInfo": RpcFault(status=Status(code="UNAVAILABLE", message="not now")),
            "GetServerInfo": RpcFault(hang=True),
            "GetLoads": RpcFault(delay="100ms"),
            "Check": RpcFault(status=Status(code="UNIMPLEMENTED")),
        }
    )
    loop = asyncio.get_running_loop()
    async with sim_worker(script) as worker, connected(worker.address) as client:
        with pytest.raises(grpc.aio.AioRpcError, match="not now"):
            await client.stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=LIMIT)
        with pytest.raises(grpc.aio.AioRpcError, match="Deadline"):
            await client.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=0.2)
        began = loop.time()
        await client.stub.GetLoads(pb.GetLoadsRequest(), timeout=LIMIT)
        took = loop.time() - began
        with pytest.raises(grpc.aio.AioRpcError) as unimplemented:
            await client.is_serving()

    assert took >= 0.1
    assert unimplemented.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert worker.recorder.calls["GetLoads"] == 1


async def test_a_fault_of_the_simulator_is_an_error_not_a_hang() -> None:
    """A duration nobody checked, from Python: INTERNAL, and it says whose fault it is."""
    script = playing(Play(ids=(1,), delay="20"))
    async with sim_worker(script) as worker, connected(worker.address) as client:
        _, error = await client.partial(a_request())

    assert error.code() is grpc.StatusCode.INTERNAL
    assert "simulator fault" in str(error.details())
