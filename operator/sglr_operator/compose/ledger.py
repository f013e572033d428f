"""From backends and endpoints to what routers are told, with versions; pure.

A version rises exactly when the content of a backend changes. The content hash is taken over
canonical bytes, so no order of events can make a change out of nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from sglr_operator.objects import ObjectMeta
from sglr_proto.backend import SGLangBackend
from sglr_proto.resolved import Resolved
from sglr_proto.snapshot import (
    BackendSnapshot,
    Endpoint,
    EndpointState,
    Snapshot,
    canonical,
    content_hash,
)

_MASS = 2
"""An update that takes more than one in two ready endpoints is worth a warning."""


@dataclass(frozen=True, slots=True)
class Composed:
    """What routers are told about one backend."""

    snapshot: BackendSnapshot
    hash: str
    """Of everything but the version."""
    version: int

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.snapshot.backend.key


@dataclass(frozen=True, slots=True)
class Removed:
    """A backend that routers must forget; *version* is above all it ever had."""

    key: str
    version: int


class Ledger:
    """The versions of one epoch, by backend; the only state of composing.

    A backend that went and came back goes on counting where it stopped, so that a late message
    about the old one is never the newer.
    """

    def __init__(self) -> None:
        """Start an epoch: every backend's next version is 1."""
        self._versions: dict[str, int] = {}
        self._hashes: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Ledger of {len(self._hashes)} backends>"

    def enter(
        self,
        backend: SGLangBackend,
        endpoints: tuple[Endpoint, ...],
        resolved: Resolved | None = None,
    ) -> Composed | None:
        """Return the next version of *backend*; None when there is nothing new to tell."""
        plain = BackendSnapshot(backend=backend, endpoints=endpoints, resolved=resolved)
        (plain,) = canonical(Snapshot(backends=(plain,))).backends
        digest = content_hash(plain)
        if self._hashes.get(backend.key) == digest:
            return None
        version = self._next(backend.key)
        self._hashes[backend.key] = digest
        snapshot = msgspec.structs.replace(plain, version=version)
        return Composed(snapshot, digest, version)

    def remove(self, key: str) -> Removed | None:
        """Return the removal of a backend; None when routers were never told about it."""
        if self._hashes.pop(key, None) is None:
            return None
        return Removed(key, self._next(key))

    def _next(self, key: str) -> int:
        self._versions[key] = self._versions.get(key, 0) + 1
        return self._versions[key]


def conflicts(backends: Iterable[tuple[ObjectMeta, SGLangBackend]]) -> Mapping[str, str]:
    """Return, by backend key, why it loses a model name to an older backend of another namespace.

    Backends of one namespace share a name, as their traffic says; nobody gets another team's
    requests. The older object has it: first by creation time, then by namespace and name, so that
    every replica decides alike.
    """
    ordered = sorted(backends, key=lambda each: (each[0].creation_timestamp or "", each[0].key))
    owners: dict[str, SGLangBackend] = {}
    lost: dict[str, str] = {}
    for _, backend in ordered:
        names = backend.spec.model.every_name
        taken = [name for name in names if _is_anothers(owners.get(name), backend)]
        if taken:
            lost[backend.key] = (
                f"Backend {owners[taken[0]].key!r} of another namespace is older and already serves"
                f" {taken[0]!r}; rename the model, alias or adapter, or delete one of the two."
            )
            continue
        for name in names:
            owners.setdefault(name, backend)
    return lost


def _is_anothers(owner: SGLangBackend | None, backend: SGLangBackend) -> bool:
    return owner is not None and owner.metadata.namespace != backend.metadata.namespace


def lost_most(before: BackendSnapshot | None, after: BackendSnapshot) -> bool:
    """Return whether *after* has less than half of the ready endpoints of *before*."""
    had, has = (_ready(each) if each is not None else 0 for each in (before, after))
    return had > 1 and has * _MASS < had


def _ready(snapshot: BackendSnapshot) -> int:
    return sum(endpoint.state is EndpointState.READY for endpoint in snapshot.endpoints)
