"""The client of a worker, by what its backend's spec says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglr_dataplane.engine.h1.pool import PoolOptions
from sglr_dataplane.engine.lean import lean_engine
from sglr_dataplane.engine.openai_http import openai_engine
from sglr_dataplane.engine.outlets import RelayLimits
from sglr_dataplane.fleet.credentials import credentials_of
from sglr_dataplane.fleet.settings import settings_of
from sglr_proto.backend import HttpWorkers, Protocol
from sglr_proto.duration import seconds

if TYPE_CHECKING:
    from sglr_dataplane.engine import Engine
    from sglr_proto.backend import SGLangBackend
    from sglr_proto.snapshot import Endpoint


def engine_for(endpoint: Endpoint, backend: SGLangBackend) -> Engine:
    """Return the client of *backend*'s worker at *endpoint*; nothing is sent yet."""
    shown = credentials_of(backend.spec)
    settings = settings_of(backend.spec)
    if backend.spec.workers.protocol is not Protocol.HTTP:
        return lean_engine(
            endpoint.address,
            deadlines=settings.deadlines,
            options=settings.channel,
            tls=shown.tls,
            server_name=shown.server_name,
            metadata=shown.metadata,
        )
    wanted = backend.spec.workers.http or HttpWorkers()
    return openai_engine(
        endpoint.address,
        names=backend.spec.model.worker_names,
        deadlines=settings.deadlines,
        options=PoolOptions(most=wanted.max_connections, idle=seconds(wanted.idle_timeout)),
        limits=RelayLimits(line=wanted.max_line_bytes),
        tls=shown.tls,
        server_name=shown.server_name,
        metadata=shown.metadata,
    )
