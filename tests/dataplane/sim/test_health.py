"""Health as the real worker has it: two names, a warm-up, a stall, a Watch that ends."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from sglr_dataplane.sim.script import HealthChange, Incident, Play, Rule, Script
from sglr_proto.sglang import scheduler_pb2 as pb
from support.sim import sim_worker
from support.sim_client import (
    ENGINE,
    LIMIT,
    SimClient,
    a_request,
    completes_of,
    connected,
    failure_of,
)

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
HANGING = Script(rules=(Rule(play=Play(incidents=(Incident(hang=True),))),))


async def becomes(client: SimClient, *, serving: bool, service: str = ENGINE) -> bool:
    """Return True when health says *serving*; False when it does not within the limit."""
    for _ in range(int(LIMIT / 0.02)):
        if await client.is_serving(service) is serving:
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.parametrize("service", ["", ENGINE])
async def test_a_warm_worker_serves_under_both_names(service: str) -> None:
    """Liveness asks the empty name, readiness the engine's."""
    async with sim_worker() as worker, connected(worker.address) as client:
        assert await client.is_serving(service)
        assert await client.watch(service) == [SERVING]


async def test_any_other_name_is_unknown() -> None:
    """Check refuses it; Watch calls it unknown."""
    async with sim_worker() as worker, connected(worker.address) as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.is_serving("SglangScheduler")
        watched = await client.watch("SglangScheduler")

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert watched == [SERVICE_UNKNOWN]


@pytest.mark.parametrize("service", ["", ENGINE])
async def test_generate_is_served_while_the_worker_warms_up(service: str) -> None:
    """Health says NOT_SERVING until it is done; the port is open all the time."""
    script = Script(warmup="300ms", rules=(Rule(play=Play(ids=(1,))),))
    async with sim_worker(script) as worker, connected(worker.address) as client:
        cold = await client.is_serving(service)
        answered = await client.generate(a_request())
        warm = await becomes(client, serving=True, service=service)

    assert not cold
    assert completes_of(answered)
    assert warm


async def test_health_changes_over_time() -> None:
    """As scripted, one name at a time or both."""
    script = Script(
        health=(
            HealthChange(after="100ms", serving=False, service=ENGINE),
            HealthChange(after="300ms", serving=True),
        )
    )
    async with sim_worker(script) as worker, connected(worker.address) as client:
        went_down = await becomes(client, serving=False)
        overall = await client.is_serving("")
        came_back = await becomes(client, serving=True)

    assert (went_down, overall, came_back) == (True, True, True)


async def test_a_test_can_set_the_health() -> None:
    """From the same process."""
    async with sim_worker() as worker, connected(worker.address) as client:
        worker.set_serving(serving=False)
        assert await client.watch() == [NOT_SERVING]
        worker.set_serving(serving=True, service=ENGINE)
        assert await client.is_serving(ENGINE)
        assert not await client.is_serving("")


async def test_a_silent_engine_with_requests_pending_stops_serving() -> None:
    """Only the engine's name, and only while something waits."""
    async with (
        sim_worker(HANGING, stall=0.1) as worker,
        connected(worker.address) as client,
    ):
        call = client.stub.Generate(a_request("stuck"), timeout=LIMIT)
        await worker.wait_for_requests(1)
        stalled = await becomes(client, serving=False)
        overall = await client.is_serving("")
        call.cancel()
        await worker.wait_for_cancel("stuck")
        recovered = await client.is_serving()

    assert (stalled, overall, recovered) == (True, True, True)


async def test_the_deep_health_check_takes_half_a_second() -> None:
    """It generates a token and looks every 0.5 s; the request is the engine's, not a client's."""
    loop = asyncio.get_running_loop()
    async with sim_worker() as worker, connected(worker.address) as client:
        began = loop.time()
        answer = await client.stub.HealthCheck(pb.HealthCheckRequest(), timeout=LIMIT)
        took = loop.time() - began

    assert answer.healthy
    assert took >= 0.5
    assert worker.requests == []
    assert worker.recorder.scheduled[0].startswith("HEALTH_CHECK_")


async def test_the_deep_health_check_of_a_hung_engine_does_not_answer_in_time() -> None:
    """Every slot hangs: it would say unhealthy after 20 s; a prober's deadline comes first."""
    async with (
        sim_worker(HANGING, max_running_requests=1) as worker,
        connected(worker.address) as client,
    ):
        call = client.stub.Generate(a_request("stuck"), timeout=LIMIT)
        await worker.wait_for_requests(1)
        error = await failure_of(client.stub.HealthCheck(pb.HealthCheckRequest(), timeout=0.8))
        call.cancel()

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert not [rid for rid in worker.scheduler.streams if rid.startswith("HEALTH_CHECK")]


def _reflected(address: str) -> set[str]:
    with grpc.insecure_channel(address) as channel:
        return set(ProtoReflectionDescriptorDatabase(channel).get_services())


async def test_reflection_names_the_services() -> None:
    """Grpcurl works."""
    async with sim_worker() as worker:
        services = await asyncio.to_thread(_reflected, worker.address)

    assert {ENGINE, "grpc.health.v1.Health"} <= services


async def test_two_workers_do_not_share_a_port() -> None:
    """The second is refused; with SO_REUSEPORT both would listen in silence."""
    async with sim_worker() as worker:
        port = int(worker.address.rpartition(":")[2])

        with pytest.raises(OSError, match=str(port)):
            async with sim_worker(port=port):
                pass


async def test_a_client_that_pings_too_often_is_told_to_go() -> None:
    """Pings every second without messages end all the connection's calls."""
    impatient = (
        ("grpc.keepalive_time_ms", 1000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.keepalive_permit_without_calls", 1),
    )
    async with sim_worker(HANGING) as worker, connected(worker.address, *impatient) as client:
        _, error = await client.partial(a_request(), limit=12.0)

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "Too many pings" in str(error.details())


async def test_messages_of_megabytes_are_taken() -> None:
    """Up to 256 MiB; grpc's own limit would be 4."""
    text = "x" * 5_000_000
    script = Script(rules=(Rule(play=Play(ids=(1,))),))
    async with sim_worker(script) as worker, connected(worker.address) as client:
        request = a_request()
        request.tokenized.original_text = text
        answered = await client.generate(request)

    assert completes_of(answered)
