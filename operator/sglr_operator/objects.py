"""The parts of Kubernetes objects that the operator reads.

Fields that nobody reads are skipped while decoding, so a cache of 5,000 pods stays small. Values
compare by content; ``resourceVersion`` is left out where nobody needs it, because a write that
changes nothing we read is no news. Where Go writes null for an empty list, None is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from sglr_operator.status import BackendStatus

_NOTHING: Mapping[str, str] = MappingProxyType({})


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """An object's name, and what decides whether it is still the same object."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name: unique within one resource."""
        return (self.namespace, self.name)


class SliceMeta(ObjectMeta, frozen=True):
    """A slice's name and age: while an endpoint moves between slices, the newer slice is right."""

    resource_version: str = ""


class PodAnnotations(msgspec.Struct, frozen=True):
    """The one annotation of a pod that is kept: others would fill memory and be news to nobody."""

    bootstrap_port: str | None = msgspec.field(default=None, name="sglang.ai/bootstrap-port")


class PodMeta(ObjectMeta, frozen=True):
    """A pod's name, and what workers that prefill are annotated with."""

    annotations: PodAnnotations | None = None


class BackendObject(msgspec.Struct, frozen=True, rename="camel"):
    """A SGLangBackend before its spec is decoded: a bad spec must not hide the object."""

    metadata: ObjectMeta
    spec: dict[str, Any] = {}
    status: BackendStatus | None = None


class TargetRef(msgspec.Struct, frozen=True, rename="camel"):
    """What an endpoint is: for a pod, its name and UID."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class SliceConditions(msgspec.Struct, frozen=True, rename="camel"):
    """None means what the API documents: ready True, serving like ready, terminating False."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class SliceEndpoint(msgspec.Struct, frozen=True, rename="camel"):
    """One pod or host within a slice."""

    addresses: tuple[str, ...] = ()
    conditions: SliceConditions = SliceConditions()
    target_ref: TargetRef | None = None
    node_name: str | None = None
    zone: str | None = None
    topology: dict[str, str] | None = None
    """discovery.k8s.io/v1beta1 holds node and zone here."""


class SlicePort(msgspec.Struct, frozen=True, rename="camel"):
    """A port of every endpoint in the slice; the name is empty for a Service's only port."""

    name: str | None = None
    port: int | None = None


class EndpointSlice(msgspec.Struct, frozen=True, rename="camel"):
    """Part of a Service's endpoints, all of one address family."""

    metadata: SliceMeta
    address_type: str = "IPv4"
    endpoints: tuple[SliceEndpoint, ...] | None = None
    ports: tuple[SlicePort, ...] | None = None


class ContainerPort(msgspec.Struct, frozen=True, rename="camel"):
    """A port a container declares."""

    container_port: int
    name: str | None = None


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """One container of a pod."""

    name: str = ""
    ports: tuple[ContainerPort, ...] | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where a pod runs and what it declares."""

    node_name: str | None = None
    containers: tuple[Container, ...] = ()


class PodCondition(msgspec.Struct, frozen=True, rename="camel"):
    """One of a pod's own conditions."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None


class Waiting(msgspec.Struct, frozen=True, rename="camel"):
    """Why a container does not run yet."""

    reason: str | None = None


class ContainerState(msgspec.Struct, frozen=True, rename="camel"):
    """What a container does now; only waiting is read."""

    waiting: Waiting | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a container; a new id is a new process behind the same address."""

    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    container_id: str | None = msgspec.field(default=None, name="containerID")
    state: ContainerState = ContainerState()


class PodIP(msgspec.Struct, frozen=True, rename="camel"):
    """One address of a pod."""

    ip: str = ""


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the kubelet says about a pod."""

    phase: str = "Unknown"
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    pod_ips: tuple[PodIP, ...] | None = msgspec.field(default=None, name="podIPs")
    conditions: tuple[PodCondition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ServicePort(msgspec.Struct, frozen=True, rename="camel"):
    """A port of a Service."""

    name: str | None = None
    port: int = 0


class ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a Service selects and names."""

    type: str = "ClusterIP"
    ports: tuple[ServicePort, ...] | None = None
    selector: dict[str, str] | None = None


class Service(msgspec.Struct, frozen=True, rename="camel"):
    """A Service."""

    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()


class Secret(msgspec.Struct, frozen=True, rename="camel"):
    """A Secret; what it holds is in no ``repr``."""

    metadata: ObjectMeta
    data: dict[str, bytes] | None = None

    def __repr__(self) -> str:
        return f"<Secret {self.metadata.namespace}/{self.metadata.name}>"


class ConfigMap(msgspec.Struct, frozen=True, rename="camel"):
    """A ConfigMap's texts; ``binaryData`` is not read."""

    metadata: ObjectMeta
    data: dict[str, str] | None = None


class PoolSelector(msgspec.Struct, frozen=True, rename="camel"):
    """Which pods an InferencePool holds."""

    match_labels: dict[str, str] | None = None


class PoolPort(msgspec.Struct, frozen=True, rename="camel"):
    """A port of every pod in an InferencePool."""

    number: int


class PoolSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What an InferencePool selects."""

    selector: PoolSelector = PoolSelector()
    target_ports: tuple[PoolPort, ...] | None = None


class InferencePool(msgspec.Struct, frozen=True, rename="camel"):
    """An inference.networking.k8s.io/v1 InferencePool."""

    metadata: ObjectMeta
    spec: PoolSpec = PoolSpec()


def labels(meta: ObjectMeta) -> Mapping[str, str]:
    """Return the labels of an object, empty when it has none."""
    return meta.labels or _NOTHING
