"""From what Kubernetes holds to the endpoints of one backend; pure.

The result depends on the objects alone, never on the order in which they were seen. Identity is
the pod's UID and the port: an address that comes back under another UID is another worker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from sglr_operator.objects import (
    ContainerStatus,
    EndpointSlice,
    InferencePool,
    Pod,
    Service,
    SliceConditions,
    SliceEndpoint,
    labels,
)
from sglr_operator.status import RefProblem
from sglr_proto.backend import LabelSelector, ServiceWorkers, SGLangBackend
from sglr_proto.backend import Protocol as Spoken
from sglr_proto.snapshot import Endpoint, EndpointState, static_endpoint

DEFAULT_PORTS = (30000,)
"""What SGLang listens on unless told otherwise."""

_FAMILIES = {"IPv4": 0, "IPv6": 1, "FQDN": 2}
"""Of a pod with several addresses the first of these is used."""

_ENDED = {"Failed", "Succeeded"}

_LAST_PORT, _PORT_DIGITS = 65535, 5

_ZONE = "topology.kubernetes.io/zone"


class View(Protocol):
    """What the operator's caches hold, as this module reads it."""

    @property
    def serves_pools(self) -> bool:
        """Whether the API server serves InferencePools at all."""
        ...

    def service(self, namespace: str, name: str) -> Service | None:
        """Return a Service."""
        ...

    def slices(self, namespace: str, service: str) -> Iterable[EndpointSlice]:
        """Return the slices that belong to a Service, in any order."""
        ...

    def pods(self, namespace: str) -> Iterable[Pod]:
        """Return the pods of a namespace, in any order."""
        ...

    def pod(self, namespace: str, name: str) -> Pod | None:
        """Return a pod."""
        ...

    def pool(self, namespace: str, name: str) -> InferencePool | None:
        """Return an InferencePool."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """What discovery says about one backend."""

    endpoints: tuple[Endpoint, ...] = ()
    """Sorted by id, each id once."""
    matched: int = 0
    """Pods or listed addresses that are meant, with or without an address yet."""
    obstacles: tuple[str, ...] = ()
    """Why endpoints that are meant take no requests, one sentence each, sorted by pod."""
    problem: RefProblem | None = None

    def count(self, state: EndpointState) -> int:
        """Return how many endpoints are in *state*."""
        return sum(endpoint.state is state for endpoint in self.endpoints)


def find(backend: SGLangBackend, view: View) -> Found:
    """Return the endpoints of *backend* by whichever source its spec names."""
    found = _found(backend, view)
    protocol = backend.spec.workers.protocol
    if protocol is Spoken.GRPC:
        return found
    speaking = (msgspec.structs.replace(each, protocol=protocol) for each in found.endpoints)
    return replace(found, endpoints=tuple(speaking))


def _found(backend: SGLangBackend, view: View) -> Found:
    workers = backend.spec.workers
    namespace = backend.metadata.namespace
    if workers.static is not None:
        listed = tuple(static_endpoint(each) for each in workers.static.endpoints)
        return Found(_sorted(listed), matched=len(listed))
    if workers.service is not None:
        return _of_service(backend, workers.service, view)
    if workers.selector is not None:
        return _of_pods(workers.selector, workers.ports or DEFAULT_PORTS, view.pods(namespace))
    if workers.inference_pool_ref is not None:
        return _of_pool(backend, workers.inference_pool_ref.name, view)
    return Found()


# Services.


def _of_service(backend: SGLangBackend, wanted: ServiceWorkers, view: View) -> Found:
    namespace = backend.metadata.namespace
    service = view.service(namespace, wanted.name)
    if service is None:
        return Found(
            problem=RefProblem(
                "ServiceNotFound",
                f"Service {wanted.name!r} does not exist in namespace {namespace!r}.",
            )
        )
    names = [port.name or "" for port in service.spec.ports or ()]
    problem = _port_problem(backend.metadata.name, wanted, names)
    if problem is not None:
        return Found(problem=problem)
    port_name = wanted.port_name if wanted.port_name is not None else names[0]
    best: dict[str, _Pick] = {}
    for piece in sorted(view.slices(namespace, wanted.name), key=_age, reverse=True):
        for pick in _picks(piece, port_name, namespace, view):
            # Slices come newest first: an older one is heard only about a better family.
            if pick.id not in best or pick.rank < best[pick.id].rank:
                best[pick.id] = pick
    late = {pick.name: pick for pick in best.values() if pick.state is not EndpointState.READY}
    return Found(
        _sorted(pick.endpoint for pick in best.values()),
        matched=len(best),
        obstacles=tuple(
            _obstacle(name, pick.state, pick.pod) for name, pick in sorted(late.items())
        ),
    )


def _port_problem(backend: str, wanted: ServiceWorkers, names: list[str]) -> RefProblem | None:
    """Return why no port can be chosen from the Service's port *names*."""
    if wanted.port_name is not None and wanted.port_name not in names:
        return RefProblem(
            "PortNotFound",
            f"Backend {backend!r} selects port {wanted.port_name!r}, but Service"
            f" {wanted.name!r} has only {names!r}.",
        )
    if wanted.port_name is None and len(names) != 1:
        return RefProblem(
            "PortNotFound",
            f"Backend {backend!r} names no port, and Service {wanted.name!r} has {names!r};"
            " set workers.service.portName.",
        )
    return None


@dataclass(frozen=True, slots=True)
class _Pick:
    """One endpoint as one slice has it."""

    endpoint: Endpoint
    rank: int
    """Of the slice's address family; lower is better."""
    pod: Pod | None

    @property
    def id(self) -> str:
        return self.endpoint.id

    @property
    def name(self) -> str:
        return self.endpoint.pod or self.endpoint.address

    @property
    def state(self) -> EndpointState:
        return self.endpoint.state


def _picks(piece: EndpointSlice, port_name: str, namespace: str, view: View) -> Iterator[_Pick]:
    """Yield what *piece* says about the port *port_name*."""
    port = next((each.port for each in piece.ports or () if (each.name or "") == port_name), None)
    if port is None:
        # Another port's slice; or one of all ports, where which one speaks gRPC is unknown.
        return
    rank = _FAMILIES.get(piece.address_type, len(_FAMILIES))
    for item in piece.endpoints or ():
        pod = _pod_of(item, namespace, view)
        if not item.addresses or pod is _REPLACED:
            continue
        known = pod if isinstance(pod, Pod) else None
        if known is None or known.status.phase not in _ENDED:
            yield _Pick(_slice_endpoint(item, port, known), rank, known)


class _Replaced:
    """The pod a slice still names is gone, and another one has its name."""


_REPLACED = _Replaced()


def _pod_of(item: SliceEndpoint, namespace: str, view: View) -> Pod | _Replaced | None:
    """Return the pod behind *item*; None when it is no pod, or not seen (yet)."""
    target = item.target_ref
    if target is None or target.kind != "Pod":
        return None
    pod = view.pod(namespace, target.name)
    if pod is not None and target.uid and pod.metadata.uid != target.uid:
        return _REPLACED
    return pod


def _slice_endpoint(item: SliceEndpoint, port: int, pod: Pod | None) -> Endpoint:
    target = item.target_ref
    host = item.addresses[0]
    uid = target.uid if target is not None and target.kind == "Pod" else ""
    state = _slice_state(item.conditions)
    if pod is not None and pod.metadata.deletion_timestamp is not None:
        # The pod's own word comes first: its slice follows within a batch of the controller.
        state = _worse(state, EndpointState.DRAINING)
    topology = item.topology or {}
    named = Endpoint(id=f"{uid}:{port}" if uid else "unnamed", host=host, port=port)
    return Endpoint(
        id=named.id if uid else f"static/{named.address}",
        host=host,
        port=port,
        state=state,
        incarnation=_incarnation(pod),
        zone=item.zone or topology.get(_ZONE, ""),
        pod=target.name if target is not None and uid else "",
        bootstrap_port=_bootstrap_port(pod),
    )


def _slice_state(conditions: SliceConditions) -> EndpointState:
    """Return what may be sent to an endpoint with *conditions*.

    discovery.k8s.io: ready null counts as true, serving null like ready, terminating null as
    false. With publishNotReadyAddresses ready is true for terminating endpoints too.
    """
    ready = conditions.ready is not False
    serving = ready if conditions.serving is None else conditions.serving
    if conditions.terminating:
        return EndpointState.DRAINING if serving else EndpointState.UNREADY
    return EndpointState.READY if ready else EndpointState.UNREADY


def _age(piece: EndpointSlice) -> tuple[int, str]:
    version = piece.metadata.resource_version
    return (int(version) if version.isdigit() else 0, piece.metadata.name)


# Pods.


def _of_pool(backend: SGLangBackend, name: str, view: View) -> Found:
    namespace = backend.metadata.namespace
    if not view.serves_pools:
        return Found(
            problem=RefProblem(
                "CRDMissing",
                "This cluster does not serve InferencePools"
                " (inference.networking.k8s.io/v1); install the Gateway API Inference"
                " Extension, or use workers.selector.",
            )
        )
    pool = view.pool(namespace, name)
    if pool is None:
        return Found(
            problem=RefProblem(
                "InferencePoolNotFound",
                f"InferencePool {name!r} does not exist in namespace {namespace!r}.",
            )
        )
    wanted = pool.spec.selector.match_labels
    ports = tuple(port.number for port in pool.spec.target_ports or ())
    if not wanted or not ports:
        return Found(
            problem=RefProblem(
                "InferencePoolNotFound",
                f"InferencePool {name!r} has no selector or no target port.",
            )
        )
    return _of_pods(LabelSelector(match_labels=wanted), ports, view.pods(namespace))


def _of_pods(selector: LabelSelector, ports: tuple[int, ...], pods: Iterable[Pod]) -> Found:
    """Return one endpoint for each port of each pod that *selector* matches."""
    endpoints: list[Endpoint] = []
    obstacles: dict[str, str] = {}
    matched = 0
    for pod in pods:
        if pod.status.phase in _ENDED or not selector.matches(labels(pod.metadata)):
            continue
        matched += 1
        state = _pod_state(pod)
        if state is not EndpointState.READY:
            obstacles[pod.metadata.name] = _obstacle(pod.metadata.name, state, pod)
        if pod.status.pod_ip:
            endpoints += [_pod_endpoint(pod, pod.status.pod_ip, port, state) for port in ports]
    return Found(
        _sorted(endpoints),
        matched=matched,
        obstacles=tuple(sentence for _, sentence in sorted(obstacles.items())),
    )


def _pod_state(pod: Pod) -> EndpointState:
    ready = _condition(pod, "Ready") == "True" and bool(pod.status.pod_ip)
    if pod.metadata.deletion_timestamp is not None:
        return EndpointState.DRAINING if ready else EndpointState.UNREADY
    return EndpointState.READY if ready else EndpointState.UNREADY


def _pod_endpoint(pod: Pod, host: str, port: int, state: EndpointState) -> Endpoint:
    return Endpoint(
        id=f"{pod.metadata.uid}:{port}",
        host=host,
        port=port,
        state=state,
        incarnation=_incarnation(pod),
        # From Kubernetes 1.35 on pods have their node's; nodes are nothing we may read.
        zone=labels(pod.metadata).get(_ZONE, ""),
        pod=pod.metadata.name,
        bootstrap_port=_bootstrap_port(pod),
    )


def _bootstrap_port(pod: Pod | None) -> int:
    """Return the port that *pod* is annotated with; 0 when it is not, or with no port at all."""
    notes = pod.metadata.annotations if pod is not None else None
    text = (notes.bootstrap_port if notes is not None else None) or ""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= _PORT_DIGITS else 0
    return number if number <= _LAST_PORT else 0


def _condition(pod: Pod, kind: str) -> str:
    return next((c.status for c in pod.status.conditions or () if c.type == kind), "Unknown")


def _incarnation(pod: Pod | None) -> str:
    """Return a word that changes when a container of *pod* is another process."""
    statuses = sorted((c.name, c.container_id or "") for c in _containers(pod))
    if not statuses:
        return ""
    return hashlib.sha256(repr(statuses).encode()).hexdigest()[:16]


def _containers(pod: Pod | None) -> Iterable[ContainerStatus]:
    return (pod.status.container_statuses or ()) if pod is not None else ()


def _obstacle(name: str, state: EndpointState, pod: Pod | None) -> str:
    """Return why *name* takes no new requests, as a sentence without its full stop."""
    if pod is None:
        ending = "terminating" if state is EndpointState.DRAINING else "not ready"
        return f"Endpoint {name} is {ending}"
    return f"Pod {name} {_complaint(pod)}"


def _complaint(pod: Pod) -> str:
    """Return what is most likely in the way of *pod*, the earliest step of its life first."""
    waiting = [
        f"container {container.name} is waiting: {container.state.waiting.reason}"
        for container in _containers(pod)
        if container.state.waiting is not None and container.state.waiting.reason
    ]
    starting = [c.name for c in _containers(pod) if c.started is False]
    causes = (
        (pod.metadata.deletion_timestamp is not None, "is terminating"),
        (_condition(pod, "PodScheduled") == "False", "is not scheduled"),
        (bool(waiting), waiting[0] if waiting else ""),
        (not pod.status.pod_ip, "has no address yet"),
        (bool(starting), f"has not started: {', '.join(starting)}"),
        (_condition(pod, "ContainersReady") == "False", "readiness probe failing"),
    )
    return next((sentence for holds, sentence in causes if holds), "is not ready")


def _worse(one: EndpointState, other: EndpointState) -> EndpointState:
    order = (EndpointState.READY, EndpointState.DRAINING, EndpointState.UNREADY)
    return max(one, other, key=order.index)


def _sorted(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return *endpoints* sorted by id, each id once."""
    unique: Mapping[str, Endpoint] = {endpoint.id: endpoint for endpoint in endpoints}
    return tuple(unique[key] for key in sorted(unique))
