"""What the spec says of connections reaches the workers' clients."""

from __future__ import annotations

from pathlib import Path

from sglr_dataplane.app import Router
from sglr_dataplane.config import RouterConfig
from sglr_dataplane.engine.channel_options import ChannelOptions
from sglr_dataplane.engine.h2.link import Keepalive
from sglr_dataplane.engine.h2.state import Limits
from sglr_dataplane.engine.lean import LeanEngine
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.fleet.settings import settings_of
from sglr_proto.backend import SGLangBackend, StaticEndpoint, StaticWorkers, Workers
from sglr_proto.spec_grpc import GrpcWorkers
from support.engines import ScriptedEngine
from support.fleets import a_backend, a_snapshot, an_endpoint
from support.router import manifest


def test_every_setting_has_its_place() -> None:
    """In seconds and bytes."""
    workers = Workers(
        static=StaticWorkers(endpoints=(StaticEndpoint(host="10.0.0.1"),)),
        grpc=GrpcWorkers(
            keepalive="31s",
            keepalive_timeout="32s",
            close_timeout="33s",
            max_connections=34,
            idle_timeout="35s",
            stream_buffer_bytes=36_000,
            max_message_bytes=37_000_000,
        ),
    )
    settings = settings_of(a_backend(workers=workers).spec)

    assert settings.channel == ChannelOptions(
        max_connections=34,
        idle_timeout=35.0,
        largest_message=37_000_000,
        limits=Limits(stream_window=36_000),
        keepalive=Keepalive(31.0, 32.0),
    )
    assert settings.schedule.closing == 33.0


def test_a_routers_clients_ping_as_often_as_sglang_allows(tmp_path: Path) -> None:
    """Every 20 s by default: twice what its servers put up with."""
    path = tmp_path / "backends.yaml"
    path.write_text(manifest("127.0.0.1:1"))
    router = Router(RouterConfig(manifest=str(path)))
    router.apply(router.manifest.load())
    (worker,) = router.registry.workers()

    assert isinstance(worker.engine, LeanEngine)
    assert worker.engine.channel.keepalive == Keepalive(20.0, 20.0)


def test_other_connection_settings_give_workers_new_clients() -> None:
    """The workers stay; streams that run keep the client they have."""
    endpoint = an_endpoint("w1")
    made: list[ScriptedEngine] = []

    def make(*_: object) -> ScriptedEngine:
        made.append(ScriptedEngine())
        return made[-1]

    def with_keepalive(seconds: int) -> SGLangBackend:
        static = StaticWorkers(endpoints=(StaticEndpoint(host="10.0.0.1"),))
        grpc = GrpcWorkers(keepalive=f"{seconds}s")
        return a_backend(workers=Workers(static=static, grpc=grpc))

    registry = Registry(make)
    registry.apply(a_snapshot(endpoint, backend=with_keepalive(20)))
    (worker,) = registry.workers()
    registry.apply(a_snapshot(endpoint, backend=with_keepalive(20), version=2))
    unchanged = len(made)
    registry.apply(a_snapshot(endpoint, backend=with_keepalive(30), version=3))

    assert unchanged == 1
    assert registry.workers() == (worker,)
    assert worker.engine is made[1]
