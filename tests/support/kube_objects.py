"""Small factories of Kubernetes objects, and a view over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sglr_operator.objects import (
    ContainerState,
    ContainerStatus,
    EndpointSlice,
    InferencePool,
    ObjectMeta,
    Pod,
    PodAnnotations,
    PodCondition,
    PodMeta,
    PodStatus,
    Service,
    ServicePort,
    ServiceSpec,
    SliceConditions,
    SliceEndpoint,
    SliceMeta,
    SlicePort,
    TargetRef,
    Waiting,
)
from sglr_proto.backend import SGLangBackend, decode_backend

NAMESPACE = "inference"


def a_document(workers: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return a backend's document; *changes* replace parts of its spec, name and namespace too."""
    spec = {
        "model": {"name": "qwen"},
        "tokenizer": {"path": "/models/qwen"},
        "workers": {"service": {"name": "qwen"}} if workers is None else workers,
    }
    return {
        "apiVersion": "sglr.dev/v1alpha1",
        "kind": "SGLangBackend",
        "metadata": {
            "name": changes.pop("name", "chat"),
            "namespace": changes.pop("namespace", NAMESPACE),
        },
        "spec": spec | changes,
    }


def a_backend(workers: dict[str, Any] | None = None, **changes: Any) -> SGLangBackend:
    """Return the backend of :func:`a_document`."""
    return decode_backend(a_document(workers, **changes), lenient=False)


def a_pod(  # a table of what tests vary
    name: str,
    *,
    ip: str | None = "10.0.0.1",
    ready: bool = True,
    phase: str = "Running",
    leaving: bool = False,
    labels: dict[str, str] | None = None,
    uid: str = "",
    container: str = "containerd://1",
    waiting: str = "",
    annotations: PodAnnotations | None = None,
) -> Pod:
    """Return a pod; by default one that is ready."""
    word = "True" if ready else "False"
    return Pod(
        metadata=PodMeta(
            name=name,
            namespace=NAMESPACE,
            uid=uid or f"uid-{name}",
            labels=labels if labels is not None else {"app": "qwen"},
            annotations=annotations,
            deletion_timestamp="2026-01-01T00:00:00Z" if leaving else None,
        ),
        status=PodStatus(
            phase=phase,
            pod_ip=ip,
            conditions=(
                PodCondition(type="Ready", status=word),
                PodCondition(type="ContainersReady", status=word),
            ),
            container_statuses=(
                ContainerStatus(
                    name="sglang",
                    ready=ready,
                    container_id=container,
                    state=ContainerState(waiting=Waiting(reason=waiting) if waiting else None),
                ),
            ),
        ),
    )


def a_service(*ports: str, name: str = "qwen") -> Service:
    """Return a Service with ports of these names."""
    return Service(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=ServiceSpec(ports=tuple(ServicePort(name=port or None) for port in ports or ("",))),
    )


def an_entry(  # a table of what tests vary
    pod: str,
    address: str,
    *,
    ready: bool | None = True,
    serving: bool | None = None,
    terminating: bool | None = None,
    uid: str = "",
) -> SliceEndpoint:
    """Return a slice's entry for a pod; an empty *pod* makes one of a host outside."""
    target = TargetRef(kind="Pod", name=pod, uid=uid or f"uid-{pod}") if pod else None
    return SliceEndpoint(
        addresses=(address,),
        conditions=SliceConditions(ready=ready, serving=serving, terminating=terminating),
        target_ref=target,
    )


def a_slice(
    name: str,
    *entries: SliceEndpoint,
    version: int = 1,
    family: str = "IPv4",
    ports: dict[str, int] | None = None,
) -> EndpointSlice:
    """Return a slice of the Service ``qwen``."""
    return EndpointSlice(
        metadata=SliceMeta(
            name=name,
            namespace=NAMESPACE,
            labels={"kubernetes.io/service-name": "qwen"},
            resource_version=str(version),
        ),
        address_type=family,
        endpoints=entries,
        ports=tuple(
            SlicePort(name=each or None, port=port) for each, port in (ports or {"": 30000}).items()
        ),
    )


@dataclass
class World:
    """A :class:`sglr_operator.endpoints.View` over plain lists."""

    services: tuple[Service, ...] = ()
    slice_list: tuple[EndpointSlice, ...] = ()
    pod_list: tuple[Pod, ...] = ()
    pools: tuple[InferencePool, ...] = ()
    serves_pools: bool = True

    def service(self, namespace: str, name: str) -> Service | None:
        """Return a Service."""
        return next((s for s in self.services if s.metadata.key == (namespace, name)), None)

    def slices(self, namespace: str, service: str) -> Iterable[EndpointSlice]:
        """Return the slices of a Service."""
        wanted = {"kubernetes.io/service-name": service}
        return [
            s
            for s in self.slice_list
            if s.metadata.namespace == namespace and s.metadata.labels == wanted
        ]

    def pods(self, namespace: str) -> Iterable[Pod]:
        """Return the pods of a namespace."""
        return [p for p in self.pod_list if p.metadata.namespace == namespace]

    def pod(self, namespace: str, name: str) -> Pod | None:
        """Return a pod."""
        return next((p for p in self.pod_list if p.metadata.key == (namespace, name)), None)

    def pool(self, namespace: str, name: str) -> InferencePool | None:
        """Return an InferencePool."""
        return next((p for p in self.pools if p.metadata.key == (namespace, name)), None)
