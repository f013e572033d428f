"""Registries over scripted engines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sglr_dataplane.engine import EngineFacts
from sglr_dataplane.fleet.registry import Registry
from sglr_dataplane.job import Job, Sampling, new_job_id
from sglr_proto.backend import (
    Adapter,
    Metadata,
    Model,
    PolicyName,
    Routing,
    SGLangBackend,
    Spec,
    StaticEndpoint,
    StaticWorkers,
    Tokenizer,
    Workers,
)
from sglr_proto.snapshot import BackendSnapshot, Endpoint, EndpointState, Snapshot
from support.engines import ScriptedEngine, some_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KEY = "default/chat"


def a_job(*, n: int = 1, model: str = "m") -> Job:
    """Return a job no other test has."""
    return Job(id=new_job_id(), model=model, input_ids=(1,), sampling=Sampling(n=n))


def an_endpoint(
    id: str = "w1",  # the endpoint's own word
    *,
    host: str = "10.0.0.1",
    port: int = 30000,
    state: EndpointState = EndpointState.READY,
    incarnation: str = "",
) -> Endpoint:
    """Return where a worker is."""
    return Endpoint(id=id, host=host, port=port, state=state, incarnation=incarnation)


def a_backend(
    name: str = "chat",
    *,
    model: str | Model = "m",
    aliases: tuple[str, ...] = (),
    adapters: tuple[Adapter, ...] = (),
    **sections: Any,
) -> SGLangBackend:
    """Return a backend; *sections* are more fields of its spec. Its workers are not looked at."""
    static = StaticWorkers(endpoints=(StaticEndpoint(host="10.0.0.1"),))
    named = (
        Model(name=model, aliases=aliases, adapters=adapters) if isinstance(model, str) else model
    )
    defaults: dict[str, Any] = {
        # In turn: which worker gets the next job is then plain to see in a test.
        "routing": Routing(policy=PolicyName.ROUND_ROBIN),
        "tokenizer": Tokenizer(path="/models/m"),
        "workers": Workers(static=static),
    }
    spec = Spec(model=named, **{**defaults, **sections})
    return SGLangBackend(metadata=Metadata(name=name), spec=spec)


def a_snapshot(
    *endpoints: Endpoint, backend: SGLangBackend | None = None, version: int = 1
) -> Snapshot:
    """Return a snapshot with one backend."""
    backends = BackendSnapshot(backend=backend or a_backend(), endpoints=endpoints)
    return Snapshot(version=version, backends=(backends,))


def a_registry(
    engines: Mapping[str, ScriptedEngine],
    *,
    ready: bool = True,
    facts: EngineFacts | None = None,
    backend: SGLangBackend | None = None,
    clock: Callable[[], float] = time.monotonic,
    processes: int = 1,
) -> Registry:
    """Return a registry with one worker per engine, by endpoint id; *ready* skips their probes."""
    registry = Registry(
        lambda endpoint, _backend: engines[endpoint.id], clock=clock, processes=processes
    )
    registry.apply(a_snapshot(*map(an_endpoint, engines), backend=backend))
    if ready:
        for worker in registry.workers():
            worker.became_ready(facts or some_facts())
    return registry
