"""The Snapshot: backends and their endpoints at one version, and its bytes.

The bytes are canonical JSON: what means the same is spelled the same, in whatever order it was
listed, so that a hash says whether anything changed. Unknown fields are ignored when reading: a
router may be older than the operator that feeds it.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from sglr_proto.address import join
from sglr_proto.backend import Protocol, SGLangBackend, StaticEndpoint, Workers
from sglr_proto.errors import ManifestError, SnapshotError
from sglr_proto.references import references_of
from sglr_proto.resolved import Resolved

Counter = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A number that only rises."""

Epoch = tuple[Counter, Counter]
"""Whose versions they are: when the Lease was made (Unix time, in seconds) and how often it changed
hands since; ``(0, 0)`` without an operator. A later epoch outranks every version of an earlier."""

NO_EPOCH: Final[Epoch] = (0, 0)


class EndpointState(enum.StrEnum):
    """What may be sent to an endpoint, as the control plane knows it."""

    READY = "READY"
    """New requests."""
    DRAINING = "DRAINING"
    """Nothing new; what runs there may end there."""
    UNREADY = "UNREADY"
    """Nothing."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An address where a worker is, or was a moment ago.

    Two endpoints are the same worker if their ids are equal; an address alone may be given to
    another pod.
    """

    id: Annotated[str, Meta(min_length=1, max_length=320)]
    """Pod UID and port, or ``static/`` and the address."""
    host: Annotated[str, Meta(min_length=1, max_length=254)]
    """A DNS name or an IP address, without brackets."""
    port: Annotated[int, Meta(ge=1, le=65535)]
    protocol: Protocol = Protocol.GRPC
    state: EndpointState = EndpointState.READY
    incarnation: Annotated[str, Meta(max_length=128)] = ""
    """Changes when another process answers at the address (a container restart): a connection that
    was made before is of no use. Empty when nobody knows."""
    weight: Annotated[int, Meta(ge=1, le=1000)] = 1
    """How much of the work it is to have, against the backend's other workers."""
    priority: Annotated[int, Meta(ge=0, le=15)] = 0
    """Its tier: used when no worker of a lower number is well and has room."""
    zone: Annotated[str, Meta(max_length=63)] = ""
    """Where the worker's node is; empty when nobody knows."""
    pod: Annotated[str, Meta(max_length=253)] = ""
    """The pod's name, for people; empty for a static endpoint."""
    bootstrap_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """Where a worker that prefills hands over, as its pod is annotated (``sglang.ai/bootstrap-port``);
    0 when it is not. Kept for pools of prefill and decode workers; nothing reads it yet."""

    @property
    def address(self) -> str:
        """What to dial, such as ``10.0.0.1:30000`` or ``[fd00::1]:30000``."""
        return join(self.host, self.port)


class BackendSnapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One backend and all of its endpoints."""

    backend: SGLangBackend
    endpoints: tuple[Endpoint, ...] = ()
    """Sorted by id, each id once."""
    version: Counter = 0
    """Rises with each change of this backend, within an epoch."""
    resolved: Resolved | None = None
    """What the objects that the spec names hold; None when it names none, or nobody read them."""

    def __post_init__(self) -> None:
        """Refuse two endpoints with one id."""
        _refuse_twins((endpoint.id for endpoint in self.endpoints), "endpoints", self.backend.key)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that routers are told, at one version."""

    epoch: Epoch = NO_EPOCH
    version: Counter = 0
    """Rises with each change of any backend, within an epoch."""
    backends: tuple[BackendSnapshot, ...] = ()
    """Sorted by key, each key once."""

    def __post_init__(self) -> None:
        """Refuse two backends with one key."""
        _refuse_twins((each.backend.key for each in self.backends), "backends", "the snapshot")

    @property
    def order(self) -> tuple[Epoch, int]:
        """What to compare: the snapshot with the greater order is the newer one."""
        return self.epoch, self.version


def static_snapshot(backends: Iterable[SGLangBackend], version: int) -> Snapshot:
    """Return the snapshot of *backends* whose workers are listed in their specs.

    Args:
        backends: In any order; no two with one key.
        version: Of the snapshot and of each backend in it; at least 0.

    Raises:
        ManifestError: A backend's workers are not listed: only an operator can find them.
    """
    found = [
        BackendSnapshot(
            backend=backend,
            endpoints=tuple(
                static_endpoint(each, backend.spec.workers.protocol) for each in _listed(backend)
            ),
            version=version,
        )
        for backend in backends
    ]
    return canonical(Snapshot(version=version, backends=tuple(found)))


def static_endpoint(listed: StaticEndpoint, protocol: Protocol = Protocol.GRPC) -> Endpoint:
    """Return the endpoint that a backend lists itself, and whose worker speaks *protocol*."""
    return Endpoint(
        id=f"static/{listed.address}",
        host=listed.host,
        port=listed.port,
        protocol=protocol,
        weight=listed.weight,
        priority=listed.priority,
        zone=listed.zone,
    )


def _listed(backend: SGLangBackend) -> tuple[StaticEndpoint, ...]:
    """Return the workers that *backend* lists."""
    if backend.spec.workers.static is None:
        raise ManifestError(
            "spec.workers has no static endpoints; only the operator finds workers of a service, "
            "a selector or an InferencePool.",
            path="spec.workers",
            owner=f"SGLangBackend {backend.key!r}",
        )
    for reference in references_of(backend.spec):
        raise ManifestError(
            f"{reference.path} names {reference.kind} {reference.name!r}; only the operator reads "
            "it. Name a file instead.",
            path=reference.path,
            owner=f"SGLangBackend {backend.key!r}",
        )
    return backend.spec.workers.static.endpoints


def canonical(snapshot: Snapshot) -> Snapshot:
    """Return *snapshot* with everything whose order says nothing in the one order."""
    backends = sorted(map(_canonical, snapshot.backends), key=lambda each: each.backend.key)
    return replace(snapshot, backends=tuple(backends))


def encode(snapshot: Snapshot) -> bytes:
    """Return the canonical bytes of *snapshot*: equal for every order of its parts."""
    return msgspec.json.encode(canonical(snapshot), order="deterministic")


def decode(data: bytes) -> Snapshot:
    """Return the snapshot in *data*, canonical whatever the order of its bytes.

    Raises:
        SnapshotError: The bytes hold no snapshot.
    """
    try:
        return canonical(msgspec.json.decode(data, type=Snapshot))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SnapshotError(f"These bytes hold no snapshot: {error}.") from error


def content_hash(value: Snapshot | BackendSnapshot) -> str:
    """Return the SHA-256, in hex, of what *value* says, without its epoch and versions.

    It is equal as long as there is nothing new to tell.
    """
    if isinstance(value, BackendSnapshot):
        value = Snapshot(backends=(value,))
    unversioned = tuple(replace(each, version=0) for each in value.backends)
    return hashlib.sha256(encode(Snapshot(backends=unversioned))).hexdigest()


def _canonical(snapshot: BackendSnapshot) -> BackendSnapshot:
    """Return *snapshot* with its endpoints, aliases, adapters, ports and static workers sorted."""
    spec = snapshot.backend.spec
    adapters = sorted(spec.model.adapters, key=lambda each: each.name)
    spec = replace(
        spec,
        model=replace(
            spec.model, aliases=tuple(sorted(spec.model.aliases)), adapters=tuple(adapters)
        ),
        workers=_canonical_workers(spec.workers),
    )
    return replace(
        snapshot,
        backend=replace(snapshot.backend, spec=spec),
        endpoints=tuple(sorted(snapshot.endpoints, key=lambda each: each.id)),
    )


def _canonical_workers(workers: Workers) -> Workers:
    """Return *workers* with its lists sorted."""
    if workers.ports is not None:
        workers = replace(workers, ports=tuple(sorted(workers.ports)))
    if workers.static is not None:
        listed = tuple(sorted(workers.static.endpoints, key=lambda each: each.key))
        workers = replace(workers, static=replace(workers.static, endpoints=listed))
    return workers


def _refuse_twins(names: Iterable[str], what: str, owner: str) -> None:
    """Raise if one of *names* stands there twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} of {owner} holds {name!r} twice")
        seen.add(name)
