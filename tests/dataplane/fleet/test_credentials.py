"""Credentials: what a router shows workers, and that changed files reach them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

import support.h2peer
from sglr_dataplane.engine.deadlines import Deadlines
from sglr_dataplane.engine.lean import lean_engine
from sglr_dataplane.errors import WorkerUnavailableError
from sglr_dataplane.fleet.credentials import CredentialFiles, credentials_of
from sglr_dataplane.fleet.registry import Registry
from sglr_proto.backend import (
    ManifestError,
    SGLangBackend,
    Tls,
    TlsMode,
    WorkerAuth,
    decode_backend,
)
from support.engines import ScriptedEngine
from support.fleets import KEY, a_backend, a_snapshot, an_endpoint
from support.manifests import changed

PEMS = Path(support.h2peer.__file__).parent / "h2tls"
MUTUAL = Tls(
    mode=TlsMode.MUTUAL,
    ca_file=str(PEMS / "ca.pem"),
    certificate_file=str(PEMS / "router.pem"),
    key_file=str(PEMS / "router.pem"),
)


class Health(health_pb2_grpc.HealthServicer):
    """Serves, and remembers the keys it was shown."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def Check(self, request, context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, N802  # grpc's
        """Answer a health check."""
        shown = dict(context.invocation_metadata())
        self.keys.append(shown.get("authorization", ""))
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


@asynccontextmanager
async def a_secure_worker(health: Health) -> AsyncGenerator[str]:
    """Serve *health* to whoever has a certificate of the tests' authority; give the address."""
    server = aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    pem = (PEMS / "worker.pem").read_bytes()
    ca = (PEMS / "ca.pem").read_bytes()
    port = server.add_secure_port(
        "127.0.0.1:0",
        grpc.ssl_server_credentials([(pem, pem)], ca, require_client_auth=True),
    )
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def is_serving(address: str, backend: SGLangBackend) -> bool:
    """Ask the worker at *address* with *backend*'s credentials."""
    shown = credentials_of(backend.spec)
    engine = lean_engine(
        address,
        deadlines=Deadlines(connect=2, probe=5),
        tls=shown.tls,
        server_name=shown.server_name,
        metadata=shown.metadata,
    )
    try:
        return await engine.is_serving()
    finally:
        await engine.aclose()


async def test_a43_router_and_worker_prove_themselves_on_every_call(tmp_path: Path) -> None:
    """A43: mutual TLS, and the key goes with probes too; without a key there is no header."""
    key = tmp_path / "key"
    key.write_text("worker-key\n")
    health = Health()
    async with a_secure_worker(health) as address:
        keyed = a_backend(tls=MUTUAL, worker_auth=WorkerAuth(api_key_file=str(key)))
        served = await is_serving(address, keyed)
        bare = await is_serving(address, a_backend(tls=MUTUAL))

    assert served
    assert bare
    assert health.keys == ["Bearer worker-key", "Bearer worker-key", "", ""]


@pytest.mark.parametrize(
    "tls",
    [
        Tls(mode=TlsMode.TLS, ca_file=str(PEMS / "ca.pem")),
        Tls(mode=TlsMode.TLS, ca_file="/nowhere/ca.pem"),
        Tls(mode=TlsMode.TLS),
        Tls(),
    ],
    ids=["no certificate", "no authority", "another authority", "plain text"],
)
async def test_who_does_not_prove_itself_is_not_spoken_to(tls: Tls) -> None:
    """Neither side goes on, and a file that is missing does not mean plain text."""
    health = Health()
    async with a_secure_worker(health) as address:
        with pytest.raises(WorkerUnavailableError):
            await is_serving(address, a_backend(tls=tls))

    assert health.keys == []


def test_a_repr_shows_no_key(tmp_path: Path) -> None:
    """A42: what is logged of credentials is whether they are there."""
    key = tmp_path / "key"
    key.write_text("worker-key")
    shown = credentials_of(a_backend(worker_auth=WorkerAuth(api_key_file=str(key))).spec)

    assert repr(shown) == "<Credentials tls=False key=True>"


def test_a_changed_file_gives_its_backends_workers_new_clients(tmp_path: Path) -> None:
    """Rotation needs no restart, and touches nobody else."""
    key = tmp_path / "key"
    key.write_text("old")
    backend = a_backend(worker_auth=WorkerAuth(api_key_file=str(key)))
    registry = Registry(lambda _endpoint, _backend: ScriptedEngine())
    registry.apply(a_snapshot(an_endpoint("w1"), backend=backend))
    files = CredentialFiles()
    first = files.changed(registry.backends())
    unchanged = files.changed(registry.backends())
    key.write_text("newer")
    rotated = files.changed(registry.backends())
    (worker,) = registry.workers()
    before = worker.engine
    for changed_key in rotated:
        registry.reconnect(changed_key)

    assert (first, unchanged, rotated) == ([], [], [KEY])
    assert worker.engine is not before
    assert worker.take_idle_engines() == (before,)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"mode": "Disabled", "caFile": "/a"}, "caFile is set with mode Disabled"),
        ({"mode": "Mutual", "caFile": "/a"}, "certificateFile goes with mode Mutual"),
        ({"mode": "TLS", "keyFile": "/a"}, "keyFile goes with mode Mutual"),
        ({"mode": "TLS", "caFile": "a\nb"}, "expected printable characters"),
    ],
)
def test_what_nobody_could_mean_is_refused(value: dict[str, str], problem: str) -> None:
    """Files without their mode, and a mode without its files."""
    with pytest.raises(ManifestError) as failure:
        decode_backend(changed("spec.tls", value), lenient=False)

    assert problem in str(failure.value)
