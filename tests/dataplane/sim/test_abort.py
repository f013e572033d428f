"""The Abort rpc as the real worker has it: by prefix, always a success, streams left open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from sglr_dataplane.sim.script import Play, Rule, Script
from sglr_proto.sglang import scheduler_pb2 as pb
from support.sim import sim_worker
from support.sim_client import LIMIT, SimClient, a_request, completes_of, connected

if TYPE_CHECKING:
    from sglr_dataplane.sim.worker import SimWorker

SLOW = Script(rules=(Rule(play=Play(ids=tuple(range(100, 400)), delay="20ms")),))


async def abort(client: SimClient, rid: str) -> pb.AbortResponse:
    """Return the answer to an Abort of *rid*."""
    return await client.stub.Abort(pb.AbortRequest(request_id=rid), timeout=LIMIT)


async def running(worker: SimWorker, count: int) -> None:
    """Return when *count* calls are being answered."""
    await worker.wait_for_requests(count)
    await worker.recorder.wait_until(lambda: len(worker.recorder.scheduled) >= count, LIMIT)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_aborted_stream_stays_open_for_ever(*, stream: bool) -> None:
    """Abort ends the generation, and neither a message nor an end follows."""
    async with sim_worker(SLOW) as worker, connected(worker.address) as client:
        hanging = asyncio.create_task(client.partial(a_request("r1", stream=stream), limit=1.0))
        await running(worker, 1)
        answer = await abort(client, "r1")
        is_idle = not worker.scheduler.running
        messages, error = await hanging

    assert answer.success
    assert is_idle
    assert completes_of(messages) == []
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_aborting_an_unknown_id_is_a_success() -> None:
    """The answer says nothing about whether there was such a request."""
    async with sim_worker() as worker, connected(worker.address) as client:
        answer = await abort(client, "nobody")

    assert answer.success
    assert worker.aborted == ["nobody"]


async def test_ids_are_matched_by_prefix() -> None:
    """Abort("pfx1") also ends pfx10, which is told so, and leaves pfx2 alone."""
    async with sim_worker(SLOW) as worker, connected(worker.address) as client:
        longer = asyncio.create_task(client.generate(a_request("pfx10")))
        other = client.stub.Generate(a_request("pfx2"), timeout=LIMIT)
        await running(worker, 2)
        await abort(client, "pfx1")
        ended = completes_of(await longer)
        await other.read()
        still_running = [run.rid for run in worker.scheduler.running]
        other.cancel()

    assert [complete.finish_reason for complete in ended] == ["abort"]
    assert still_running == ["pfx2"]


async def test_aborting_the_empty_id_ends_everything() -> None:
    """Every id starts with nothing."""
    async with sim_worker(SLOW) as worker, connected(worker.address) as client:
        calls = [asyncio.create_task(client.generate(a_request(rid))) for rid in ("a", "b")]
        await running(worker, 2)
        await abort(client, "")
        answers = await asyncio.gather(*calls)

    assert [completes_of(answer)[0].finish_reason for answer in answers] == ["abort", "abort"]


async def test_health_checks_cannot_be_aborted() -> None:
    """The only ids Abort refuses."""
    async with sim_worker() as worker, connected(worker.address) as client:
        answer = await abort(client, "HEALTH_CHECK_1")

    assert not answer.success
