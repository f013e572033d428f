"""Every resource of the API server that the operator asks for; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sglr_operator.schema import PLURAL
from sglr_proto.backend import GROUP, VERSION


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object, as a path of the API."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str

    @property
    def root(self) -> str:
        """The path of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of the collection or object; all namespaces when *namespace* is ''."""
        parts = [self.root]
        if namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


BACKENDS: Final = Resource(GROUP, VERSION, PLURAL)
PODS: Final = Resource("", "v1", "pods")
SERVICES: Final = Resource("", "v1", "services")
SECRETS: Final = Resource("", "v1", "secrets")
CONFIGMAPS: Final = Resource("", "v1", "configmaps")
EVENTS: Final = Resource("", "v1", "events")
SLICES: Final = (
    Resource("discovery.k8s.io", "v1", "endpointslices"),
    Resource("discovery.k8s.io", "v1beta1", "endpointslices"),
)
"""Newest first: the first one that is served is followed."""
POOLS: Final = Resource("inference.networking.k8s.io", "v1", "inferencepools")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")
REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews")
