"""A whole operator in this process, against the API server of the tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ports import reserved_port
from prometheus_client import CollectorRegistry

from sglr_operator.app import Operator
from sglr_operator.config import (
    Address,
    CopyConfig,
    DebounceConfig,
    LeaseConfig,
    OperatorConfig,
    PushConfig,
    StatusConfig,
    WatchConfig,
)
from sglr_operator.metrics import Metrics
from support.certificates import authority, issue
from support.kube_api import FakeApi
from support.kube_wait import until

HERE = Address("127.0.0.1", 0)
FAST = OperatorConfig(
    watch=WatchConfig(
        server_timeout=2.0,
        silence=0.5,
        backoff_first=0.02,
        backoff_most=0.1,
        steady_after=1.0,
    ),
    debounce=DebounceConfig(quiet=0.02, most=0.2),
    push=PushConfig(address=HERE, heartbeat=0.5, accepts_per_second=1e6),
    lease=LeaseConfig(duration=6.0, renew_deadline=4.0, retry=0.1, identity="operator-0"),
    status=StatusConfig(interval=0.05, event_interval=60.0),
    http=HERE,
    debug=HERE,
)


def kubeconfig(api: FakeApi, folder: Path) -> str:
    """Write a kubeconfig for *api* and return its path."""
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "clusters": [{"name": "test", "cluster": {"server": api.url}}],
                "users": [{"name": "test", "user": {"token": "secret"}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            }
        )
    )
    return str(path)


@dataclass
class Running:
    """An operator at work."""

    operator: Operator
    metrics: Metrics
    task: asyncio.Task[None]

    def sample(self, name: str, **labels: str) -> float:
        """Return a metric's value now."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def serves(self) -> int:
        """Return the push port, as soon as this operator leads and serves."""
        await until(lambda: self.operator.push_port is not None, what="serving routers")
        assert self.operator.push_port is not None
        return self.operator.push_port

    async def end(self) -> None:
        """Stop it and wait for its end."""
        self.operator.stop()
        await asyncio.wait_for(self.task, 10.0)


@asynccontextmanager
async def operating(
    api: FakeApi,
    folder: Path,
    change: Callable[[OperatorConfig], OperatorConfig] = lambda config: config,
) -> AsyncGenerator[Running]:
    """Run an operator against *api*."""
    # A port of its own, known beforehand: routers find the same operator after a new election.
    push = replace(FAST.push, address=Address("127.0.0.1", reserved_port()))
    config = change(replace(FAST, kubeconfig=kubeconfig(api, folder), push=push))
    metrics = Metrics(CollectorRegistry())
    operator = Operator(config, metrics)
    task = asyncio.create_task(operator.run())
    running = Running(operator, metrics, task)
    try:
        yield running
    finally:
        operator.stop()
        await asyncio.wait_for(asyncio.wait({task}), 15.0)
        task.result()


def private(folder: Path) -> Callable[[OperatorConfig], OperatorConfig]:
    """Return the change that lets routers of one authority alone hear secrets."""
    authority(folder, "ca")
    certificate, key = issue(folder, "server", "ca")
    issue(folder, "router", "ca")

    def change(config: OperatorConfig) -> OperatorConfig:
        push = replace(
            config.push,
            certificate=str(certificate),
            key=str(key),
            client_ca=str(folder / "ca.crt"),
            auth="mtls",
        )
        copy = CopyConfig(interval=0.05)
        return replace(config, references=True, push=push, copy=copy)

    return change


def conditions(api: FakeApi, name: str, namespace: str = "inference") -> dict[str, Any]:
    """Return the conditions of a backend in *api* by type."""
    body = api.objects("sglangbackends").get((namespace, name), {})
    found = body.get("status", {}).get("conditions", [])
    return {condition["type"]: condition for condition in found}
