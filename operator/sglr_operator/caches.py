"""Everything the operator knows of the cluster: the reflectors' stores, with the indexes it needs.

Also says which backends a change may concern. State: the stores (owned by the reflectors) and
three indexes over slices and pods, kept in step with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sglr_operator.objects import (
    BackendObject,
    ConfigMap,
    EndpointSlice,
    InferencePool,
    Pod,
    Secret,
    Service,
    labels,
)
from sglr_operator.reflector import Change, Key, Reflector
from sglr_proto.backend import SGLangBackend
from sglr_proto.references import Kind, references_of
from sglr_proto.selector import LabelSelector

T = TypeVar("T")

SERVICE_LABEL = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which objects of its namespace one backend depends on."""

    service: str = ""
    pool: str = ""
    selector: LabelSelector | None = None
    objects: frozenset[tuple[Kind, str]] = frozenset()
    """Secrets and ConfigMaps, by kind and name."""


def wanted_by(backend: SGLangBackend) -> Wanted:
    """Return what *backend* depends on."""
    workers = backend.spec.workers
    return Wanted(
        service=workers.service.name if workers.service is not None else "",
        pool=workers.inference_pool_ref.name if workers.inference_pool_ref is not None else "",
        selector=workers.selector,
        objects=frozenset((each.kind, each.name) for each in references_of(backend.spec)),
    )


class Caches:
    """The stores and their indexes; a :class:`~sglr_operator.endpoints.View`."""

    def __init__(
        self, dirty: Callable[[Iterable[Key]], None], status_seen: Callable[[Key], None]
    ) -> None:
        """Hold nothing.

        Args:
            dirty: Called with the backends that a change may concern.
            status_seen: Called with a backend of which only the status changed.
        """
        self._dirty = dirty
        self._status_seen = status_seen
        self.reflectors: list[Reflector[Any]] = []
        """All of them, for health; the caller runs them."""
        self.serves_pools = False
        self._backends: list[Reflector[BackendObject]] = []
        self._services: list[Reflector[Service]] = []
        self._pools: list[Reflector[InferencePool]] = []
        self._secrets: list[Reflector[Secret]] = []
        self._config_maps: list[Reflector[ConfigMap]] = []
        self._slices: dict[Key, dict[str, EndpointSlice]] = defaultdict(dict)
        """By namespace and Service: slices by name."""
        self._pods: dict[str, dict[str, Pod]] = defaultdict(dict)
        """By namespace: pods by name."""
        self._services_of_pod: dict[Key, dict[str, int]] = defaultdict(dict)
        """By pod: Services whose slices name it, with the number of entries."""
        self._wanted: dict[Key, Wanted] = {}
        self._users: dict[Key, set[Key]] = defaultdict(set)
        """By namespace and Service: the backends that name it."""
        self._selectors: dict[str, set[Key]] = defaultdict(set)
        """By namespace: the backends that select pods, themselves or through a pool."""

    def __repr__(self) -> str:
        return f"<Caches {self.reflectors!r}>"

    @property
    def is_synced(self) -> bool:
        """Whether every store was listed once; only then is an absence a fact."""
        return bool(self.reflectors) and all(each.synced for each in self.reflectors)

    # Wiring: the reflectors' callbacks, and the stores behind the views.

    def add_backends(self, reflector: Reflector[BackendObject]) -> None:
        """Read backends from *reflector*."""
        self._backends.append(reflector)
        self.reflectors.append(reflector)

    def add_services(self, reflector: Reflector[Service]) -> None:
        """Read Services from *reflector*."""
        self._services.append(reflector)
        self.reflectors.append(reflector)

    def add_pools(self, reflector: Reflector[InferencePool]) -> None:
        """Read InferencePools from *reflector*."""
        self._pools.append(reflector)
        self.reflectors.append(reflector)
        self.serves_pools = True

    def add_secrets(self, reflector: Reflector[Secret]) -> None:
        """Read Secrets from *reflector*."""
        self._secrets.append(reflector)
        self.reflectors.append(reflector)

    def add_config_maps(self, reflector: Reflector[ConfigMap]) -> None:
        """Read ConfigMaps from *reflector*."""
        self._config_maps.append(reflector)
        self.reflectors.append(reflector)

    def add_indexed(self, reflector: Reflector[Any]) -> None:
        """Watch over a reflector whose store is read through the indexes."""
        self.reflectors.append(reflector)

    def backends_changed(self, changes: tuple[Change[BackendObject], ...]) -> None:
        """Take note of changed backends; our own status writes are no reason to reconcile."""
        for change in changes:
            if _asks_the_same(change.old, change.new):
                self._status_seen(change.key)
            else:
                self._dirty((change.key,))

    def services_changed(self, changes: tuple[Change[Service], ...]) -> None:
        """Take note of changed Services."""
        for change in changes:
            self._dirty(self._users.get(change.key, ()))

    def pools_changed(self, changes: tuple[Change[InferencePool], ...]) -> None:
        """Take note of changed InferencePools."""
        for change in changes:
            namespace, name = change.key
            self._dirty(
                key
                for key, wanted in self._wanted.items()
                if key[0] == namespace and wanted.pool == name
            )

    def secrets_changed(self, changes: tuple[Change[Secret], ...]) -> None:
        """Take note of changed Secrets."""
        for change in changes:
            self._dirty(self._naming("Secret", change.key))

    def config_maps_changed(self, changes: tuple[Change[ConfigMap], ...]) -> None:
        """Take note of changed ConfigMaps."""
        for change in changes:
            self._dirty(self._naming("ConfigMap", change.key))

    def _naming(self, kind: Kind, key: Key) -> list[Key]:
        """Return the backends that name an object."""
        namespace, name = key
        return [
            backend
            for backend, wanted in self._wanted.items()
            if backend[0] == namespace and (kind, name) in wanted.objects
        ]

    def slices_changed(self, changes: tuple[Change[EndpointSlice], ...]) -> None:
        """Take note of changed EndpointSlices."""
        for change in changes:
            for piece, step in ((change.old, -1), (change.new, 1)):
                if piece is None:
                    continue
                service = (change.key[0], labels(piece.metadata).get(SERVICE_LABEL, ""))
                if step < 0:
                    self._slices[service].pop(change.key[1], None)
                else:
                    self._slices[service][change.key[1]] = piece
                self._count_pods(piece, service, step)
                self._dirty(self._users.get(service, ()))

    def pods_changed(self, changes: tuple[Change[Pod], ...]) -> None:
        """Take note of changed pods."""
        for change in changes:
            namespace, name = change.key
            if change.new is None:
                self._pods[namespace].pop(name, None)
            else:
                self._pods[namespace][name] = change.new
            for service in self._services_of_pod.get(change.key, ()):
                self._dirty(self._users.get((namespace, service), ()))
            self._dirty(self._selecting(change))

    def depends(self, key: Key, wanted: Wanted | None) -> None:
        """Note what backend *key* depends on; None when it is gone."""
        before = self._wanted.pop(key, None)
        if before is not None:
            self._users[(key[0], before.service)].discard(key)
            self._selectors[key[0]].discard(key)
        if wanted is not None:
            self._wanted[key] = wanted
            users = self._users[(key[0], wanted.service)] if wanted.service else None
            (self._selectors[key[0]] if users is None else users).add(key)

    # The view.

    def backends(self) -> Iterator[BackendObject]:
        """Yield every backend."""
        for reflector in self._backends:
            yield from reflector.objects.values()

    def backend(self, key: Key) -> BackendObject | None:
        """Return a backend."""
        return _first(self._backends, key)

    def service(self, namespace: str, name: str) -> Service | None:
        """Return a Service."""
        return _first(self._services, (namespace, name))

    def slices(self, namespace: str, service: str) -> Iterable[EndpointSlice]:
        """Return the slices that belong to a Service."""
        return list(self._slices.get((namespace, service), {}).values())

    def pods(self, namespace: str) -> Iterable[Pod]:
        """Return the pods of a namespace."""
        return list(self._pods.get(namespace, {}).values())

    def pod(self, namespace: str, name: str) -> Pod | None:
        """Return a pod."""
        return self._pods.get(namespace, {}).get(name)

    def pool(self, namespace: str, name: str) -> InferencePool | None:
        """Return an InferencePool."""
        return _first(self._pools, (namespace, name))

    def secret(self, namespace: str, name: str) -> Secret | None:
        """Return a labelled Secret."""
        return _first(self._secrets, (namespace, name))

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """Return a labelled ConfigMap."""
        return _first(self._config_maps, (namespace, name))

    def _count_pods(self, piece: EndpointSlice, service: Key, step: int) -> None:
        for item in piece.endpoints or ():
            if item.target_ref is None or item.target_ref.kind != "Pod":
                continue
            counts = self._services_of_pod[(service[0], item.target_ref.name)]
            counts[service[1]] = counts.get(service[1], 0) + step
            if counts[service[1]] <= 0:
                del counts[service[1]]

    def _selecting(self, change: Change[Pod]) -> Iterator[Key]:
        """Yield the backends whose selector, or whose pool's, matched the pod or matches it now."""
        namespace = change.key[0]
        versions = [pod for pod in (change.old, change.new) if pod is not None]
        for key in self._selectors.get(namespace, ()):
            wanted = self._wanted[key]
            selector = wanted.selector or self._pool_selector(namespace, wanted.pool)
            if selector is not None and any(
                selector.matches(labels(pod.metadata)) for pod in versions
            ):
                yield key

    def _pool_selector(self, namespace: str, name: str) -> LabelSelector | None:
        pool = self.pool(namespace, name) if name else None
        wanted: Mapping[str, str] = (pool.spec.selector.match_labels or {}) if pool else {}
        return LabelSelector(match_labels=dict(wanted)) if wanted else None


def _asks_the_same(old: BackendObject | None, new: BackendObject | None) -> bool:
    return (
        old is not None and new is not None and (old.metadata, old.spec) == (new.metadata, new.spec)
    )


def _first(reflectors: Iterable[Reflector[T]], key: Key) -> T | None:
    for reflector in reflectors:
        found = reflector.objects.get(key)
        if found is not None:
            return found
    return None
