"""An operator's push server and routers that hear it, on loopback."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry

from sglr_dataplane.fleet.intake import Health, Intake
from sglr_dataplane.fleet.intake_config import IntakeConfig
from sglr_dataplane.metrics import RouterMetrics
from sglr_operator.compose import Ledger
from sglr_operator.config import Address, PushConfig
from sglr_operator.metrics import Metrics
from sglr_operator.publish import Publisher
from sglr_operator.push import Authenticate, PushService, new_server
from sglr_proto.snapshot import Endpoint, Epoch, Snapshot
from support.kube_objects import a_backend

CONFIG = PushConfig(address=Address("127.0.0.1", 0), heartbeat=0.2, accepts_per_second=1e6)


@dataclass
class Operator:
    """The push half of an operator."""

    publisher: Publisher
    service: PushService
    metrics: Metrics
    ledger: Ledger = field(default_factory=Ledger)
    answered: list[str] = field(default_factory=list)
    outranked: list[Epoch] = field(default_factory=list)
    port: int = 0

    def say(self, name: str, *hosts: str) -> None:
        """Publish backend *name* with endpoints at *hosts*."""
        backend = a_backend(name=name, model={"name": name})
        endpoints = tuple(Endpoint(id=f"{host}:1", host=host, port=1) for host in hosts)
        composed = self.ledger.enter(backend, endpoints)
        assert composed is not None
        self.publisher.publish(composed, since=time.monotonic())

    def forget(self, name: str) -> None:
        """Remove backend *name*."""
        removed = self.ledger.remove(f"inference/{name}")
        assert removed is not None
        self.publisher.remove(removed, since=time.monotonic())

    def sent(self, kind: str) -> float:
        """Return how many messages of one kind went out."""
        value = self.metrics.registry.get_sample_value("sglr_operator_pushes_total", {"kind": kind})
        return value or 0.0


def an_operator(
    epoch: Epoch = (1, 0),
    *,
    config: PushConfig = CONFIG,
    clock: Callable[[], float] = time.monotonic,
    authenticate: Authenticate | None = None,
    may_speak: Callable[[], bool] = lambda: True,
) -> Operator:
    """Return an operator that does not listen yet."""
    answered: list[str] = []
    outranked: list[Epoch] = []
    metrics = Metrics(CollectorRegistry())
    publisher = Publisher(config=config, metrics=metrics, clock=clock, answered=answered.append)
    publisher.begin(epoch)
    service = PushService(
        publisher,
        server="operator-0",
        config=config,
        metrics=metrics,
        clock=clock,
        outranked=outranked.append,
        may_speak=may_speak,
        authenticate=authenticate,
    )
    return Operator(publisher, service, metrics, answered=answered, outranked=outranked)


@asynccontextmanager
async def listening(operator: Operator, port: int = 0) -> AsyncGenerator[Operator]:
    """Let *operator* listen, on *port* when it is given."""
    config = replace(CONFIG, address=Address("127.0.0.1", port))
    server, operator.port = new_server(operator.service, config, None)
    await server.start()
    try:
        yield operator
    finally:
        await server.stop(0)


@dataclass
class Router:
    """A router's intake, and every snapshot it put in force."""

    intake: Intake
    applied: list[Snapshot]
    metrics: RouterMetrics

    def table(self) -> dict[str, list[str]]:
        """Return the hosts of each backend in force."""
        newest = self.applied[-1] if self.applied else Snapshot()
        return {
            each.backend.metadata.name: [endpoint.host for endpoint in each.endpoints]
            for each in newest.backends
        }


@asynccontextmanager
async def routing(
    port: int,
    name: str = "router-0",
    *,
    health: Callable[[], Health] = dict,
    change: Callable[[IntakeConfig], IntakeConfig] = lambda config: config,
) -> AsyncGenerator[Router]:
    """Run a router's intake against the operator at *port*."""
    config = IntakeConfig(
        operator=f"127.0.0.1:{port}",
        router=name,
        pod_uid=f"uid-{name}",
        first_backoff=0.02,
        most_backoff=0.1,
        write_interval=0.02,
        health_interval=0.02,
    )
    applied: list[Snapshot] = []
    metrics = RouterMetrics()
    intake = Intake(
        change(config),
        apply=applied.append,
        health=health,
        metrics=metrics,
        clock=time.monotonic,
        chance=lambda: 0.5,
    )
    task = asyncio.ensure_future(intake.run())
    try:
        yield Router(intake, applied, metrics)
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=5.0)
