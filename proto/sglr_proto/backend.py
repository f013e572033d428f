"""The SGLangBackend: one pool of interchangeable workers that serve one model, and how it is read.

The same document is a custom resource in a cluster and a file without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, cast

import msgspec
from msgspec import Meta

from sglr_proto.decoding import decode, short
from sglr_proto.documents import read_documents
from sglr_proto.errors import ManifestError
from sglr_proto.selector import LabelRequirement, LabelSelector, SelectorOperator
from sglr_proto.spec import (
    PoolRef,
    ServiceWorkers,
    Spec,
    StaticEndpoint,
    StaticWorkers,
    Workers,
)
from sglr_proto.spec_admission import Admission, RateLimit, RateScope
from sglr_proto.spec_http import HttpWorkers, Protocol
from sglr_proto.spec_model import (
    Adapter,
    AdapterDiscovery,
    HeaderMatch,
    Model,
    Traffic,
    refuse_unprintable,
)
from sglr_proto.spec_parsers import Parsers, ReasoningWhitespace, UnknownTools
from sglr_proto.spec_resilience import HealthCheck, LastResort, OutlierDetection, Retry, Timeouts
from sglr_proto.spec_routing import (
    BodyField,
    CacheAware,
    ConsistentHash,
    PolicyName,
    PrefixHash,
    Routing,
    SessionSticky,
)
from sglr_proto.spec_security import Tls, TlsMode, WorkerAuth
from sglr_proto.spec_tokenizer import (
    ChatTemplate,
    ControlTokens,
    FromWorker,
    HuggingFace,
    Tokenizer,
)

__all__ = [
    "API_VERSION",
    "KIND",
    "Adapter",
    "AdapterDiscovery",
    "Admission",
    "BodyField",
    "CacheAware",
    "ChatTemplate",
    "ConsistentHash",
    "ControlTokens",
    "FromWorker",
    "HeaderMatch",
    "HealthCheck",
    "HttpWorkers",
    "HuggingFace",
    "LabelRequirement",
    "LabelSelector",
    "LastResort",
    "ManifestError",
    "Metadata",
    "Model",
    "OutlierDetection",
    "Parsers",
    "PolicyName",
    "PoolRef",
    "PrefixHash",
    "Protocol",
    "RateLimit",
    "RateScope",
    "ReasoningWhitespace",
    "Retry",
    "Routing",
    "SGLangBackend",
    "SelectorOperator",
    "ServiceWorkers",
    "SessionSticky",
    "Spec",
    "StaticEndpoint",
    "StaticWorkers",
    "Timeouts",
    "Tls",
    "TlsMode",
    "Tokenizer",
    "Traffic",
    "UnknownTools",
    "WorkerAuth",
    "Workers",
    "decode_backend",
    "read_manifests",
]

GROUP: Final = "sglr.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "sglr.dev/v1alpha1"
KIND: Final = "SGLangBackend"


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What Kubernetes knows the object by.

    The rest of Kubernetes's own metadata is let through unread: it does not change what is served.
    """

    tolerated: ClassVar[frozenset[str]] = frozenset(
        {
            "annotations",
            "creationTimestamp",
            "deletionGracePeriodSeconds",
            "deletionTimestamp",
            "finalizers",
            "generateName",
            "generation",
            "labels",
            "managedFields",
            "ownerReferences",
            "resourceVersion",
            "selfLink",
            "uid",
        }
    )

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            description="Name of the backend, unique in its namespace.",
        ),
    ]
    namespace: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=63,
            pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            description="Namespace of the backend. Default: default, as kubectl has it.",
        ),
    ] = "default"

    def __post_init__(self) -> None:
        """Refuse a line break at the end, which ``$`` lets through."""
        refuse_unprintable(name=self.name, namespace=self.namespace)


class SGLangBackend(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pool of interchangeable workers that serve one model."""

    tolerated: ClassVar[frozenset[str]] = frozenset({"status"})

    api_version: Literal["sglr.dev/v1alpha1"] = API_VERSION
    kind: Literal["SGLangBackend"] = KIND
    metadata: Metadata
    spec: Spec

    @property
    def key(self) -> str:
        """The backend's name over all namespaces: ``namespace/name``."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


def decode_backend(obj: object, *, lenient: bool) -> SGLangBackend:
    """Return the backend that *obj* describes.

    Args:
        obj: A decoded document: mappings, lists and scalars.
        lenient: Whether unknown fields are ignored, as for objects from an API server, which may
            be newer; else they are errors, as in files, where they are typing mistakes.

    Raises:
        ManifestError: It is no SGLangBackend, or one with a mistake; the path is named.
    """
    if not isinstance(obj, Mapping):
        raise ManifestError("expected a mapping with apiVersion, kind, metadata and spec.")
    document = cast("Mapping[object, object]", obj)  # its keys are whatever the author wrote
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if (found := document.get(field)) != expected:
            there = "is missing" if found is None else f"is {short(found)}"
            raise ManifestError(f"{field} {there}; expected {expected!r}.", path=field)
    owner = _owner(document.get("metadata"))
    return decode(document, SGLangBackend, owner=owner, lenient=lenient)


def _owner(metadata: object) -> str:
    """Return what an error calls the object, as far as its metadata says."""
    if not isinstance(metadata, Mapping):
        return KIND
    known = cast("Mapping[object, object]", metadata)
    name, namespace = known.get("name"), known.get("namespace") or "default"
    return f"{KIND} {f'{namespace}/{name}'!r}" if name else KIND


def read_manifests(text: str) -> tuple[SGLangBackend, ...]:
    """Return the backends of a YAML *text*, in its order; ``()`` when it holds none.

    Args:
        text: Documents divided by ``---``; empty ones are skipped. At most 1 MiB.

    Raises:
        ManifestError: A document is not YAML, no SGLangBackend or a wrong one, or two backends
            have the same name, or answer to the same model from different namespaces.
    """
    backends: dict[str, SGLangBackend] = {}
    models: dict[str, str] = {}
    for place, obj in read_documents(text):
        try:
            backend = decode_backend(obj, lenient=False)
            _refuse_twins(backend, backends, models)
        except ManifestError as error:
            raise error.within(place) from error
        backends[backend.key] = backend
        for name in backend.spec.model.every_name:
            models.setdefault(name, backend.key)
    return tuple(backends.values())


def _refuse_twins(
    backend: SGLangBackend, backends: dict[str, SGLangBackend], models: dict[str, str]
) -> None:
    """Raise if *backend* has an earlier one's name, or a model's of another namespace."""
    owner = f"{KIND} {backend.key!r}"
    if backend.key in backends:
        problem = f"metadata.name is {backend.metadata.name!r}; an earlier document is {owner}."
        raise ManifestError(problem, path="metadata.name", owner=owner)
    model = backend.spec.model
    paths = ["spec.model.name"]
    paths += [f"spec.model.aliases[{index}]" for index in range(len(model.aliases))]
    paths += [f"spec.model.adapters[{index}].name" for index in range(len(model.adapters))]
    for path, name in zip(paths, model.every_name, strict=True):
        # Backends of one namespace share a name; nobody takes another team's requests.
        if name in models and backends[models[name]].metadata.namespace != (
            backend.metadata.namespace
        ):
            problem = (
                f"{path} is {name!r}; {KIND} {models[name]!r} of another namespace answers to it."
            )
            raise ManifestError(problem, path=path, owner=owner)
