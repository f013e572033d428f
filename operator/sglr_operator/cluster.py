"""How to reach the API server, what it serves, and the caches that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import Configuration

from sglr_operator.caches import SERVICE_LABEL, Caches
from sglr_operator.compose import LABEL
from sglr_operator.config import OperatorConfig
from sglr_operator.errors import ConfigError, NotFoundError
from sglr_operator.kube import Kube, KubeSource
from sglr_operator.metrics import Metrics
from sglr_operator.objects import (
    BackendObject,
    ConfigMap,
    EndpointSlice,
    InferencePool,
    Pod,
    Secret,
    Service,
)
from sglr_operator.reflector import Change, Reflector, Timing
from sglr_operator.resources import (
    BACKENDS,
    CONFIGMAPS,
    PODS,
    POOLS,
    SECRETS,
    SERVICES,
    SLICES,
    Resource,
)
from sglr_operator.schema import missing_fields
from sglr_proto.backend import KIND

_SHOWN: Final = 5
"""Fields named in one sentence."""
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

T = TypeVar("T")


async def credentials(kubeconfig: str | None) -> Configuration:
    """Return how to reach the API server: a kubeconfig, else the pod's own service account.

    Raises:
        ConfigError: Neither can be used.
    """
    configuration = Configuration()
    loader: Any = kube_config  # its functions are untyped
    try:
        if kubeconfig is None and _SERVICE_ACCOUNT.exists():
            loader.load_incluster_config(client_configuration=configuration)
        else:
            await loader.load_kube_config(
                config_file=kubeconfig, client_configuration=configuration
            )
    except (loader.ConfigException, OSError) as error:
        raise ConfigError(f"The API server cannot be found: {error}") from error
    return configuration


async def slices_of(kube: Kube) -> Resource:
    """Return the newest EndpointSlice API that is served.

    Raises:
        KubeError: The API server did not answer, or serves none.
    """
    for resource in SLICES[:-1]:
        if await kube.serves(resource):
            return resource
    return SLICES[-1]


async def crd_problem(kube: Kube) -> str:
    """Return what the served definition lacks, as a sentence; ``""`` when nothing, or not known.

    Read from the API's description, which needs no permission on definitions.

    Raises:
        KubeError: The API server did not answer.
    """
    try:
        body = await kube.get(f"/openapi/v3/apis/{BACKENDS.group}/{BACKENDS.version}")
    except NotFoundError:
        return ""  # older than 1.24, or without the definition, which other sentences tell
    schemas = msgspec.json.decode(body, type=_OpenApi).components.schemas
    served = next((each for name, each in schemas.items() if name.endswith(f".{KIND}")), None)
    missing = missing_fields(served) if served is not None else ()
    if not missing:
        return ""
    shown = ", ".join(missing[:_SHOWN]) + (", …" if len(missing) > _SHOWN else "")
    return (
        f"The CRD in this cluster is older than the operator and drops {shown}: apply the current"
        " one (kubectl apply --server-side -f crds/)."
    )


class _Components(msgspec.Struct, frozen=True):
    schemas: dict[str, dict[str, Any]] = {}


class _OpenApi(msgspec.Struct, frozen=True):
    components: _Components = _Components()


class CacheBuilder:
    """Makes the reflectors of one operator, one per resource and namespace."""

    def __init__(
        self,
        kube: Kube,
        config: OperatorConfig,
        caches: Caches,
        *,
        timing: Timing,
        metrics: Metrics,
    ) -> None:
        """Fill *caches* with reflectors that read through *kube*."""
        self._kube = kube
        self._config = config
        self._caches = caches
        self._timing = timing
        self._metrics = metrics

    def build(self, slices: Resource) -> None:
        """Add what every operator follows."""
        caches = self._caches
        for namespace in self._namespaces():
            caches.add_backends(
                self._reflector(BACKENDS, BackendObject, caches.backends_changed, namespace)
            )
            caches.add_services(
                self._reflector(SERVICES, Service, caches.services_changed, namespace)
            )
            caches.add_indexed(
                self._reflector(
                    slices, EndpointSlice, caches.slices_changed, namespace, SERVICE_LABEL
                )
            )
            caches.add_indexed(self._reflector(PODS, Pod, caches.pods_changed, namespace))
            if self._config.references:
                caches.add_secrets(
                    self._reflector(SECRETS, Secret, caches.secrets_changed, namespace, LABEL)
                )
                caches.add_config_maps(
                    self._reflector(
                        CONFIGMAPS, ConfigMap, caches.config_maps_changed, namespace, LABEL
                    )
                )

    def build_pools(self) -> list[Reflector[InferencePool]]:
        """Add and return the reflectors of InferencePools, which the caller runs."""
        found: list[Reflector[InferencePool]] = []
        for namespace in self._namespaces():
            reflector = self._reflector(POOLS, InferencePool, self._caches.pools_changed, namespace)
            self._caches.add_pools(reflector)
            found.append(reflector)
        return found

    def _namespaces(self) -> Iterable[str]:
        return self._config.namespaces or ("",)

    def _reflector(
        self,
        resource: Resource,
        kind: type[T],
        changed: Callable[[tuple[Change[T], ...]], None],
        namespace: str,
        selector: str = "",
    ) -> Reflector[T]:
        source = KubeSource(
            self._kube,
            resource,
            kind,
            self._config.watch,
            self._timing.chance,
            namespace=namespace,
            selector=selector,
        )
        return Reflector(
            resource.plural,
            source,
            changed,
            config=self._config.watch,
            timing=self._timing,
            metrics=self._metrics,
        )
