"""The SGLangBackend: one pool of interchangeable workers that serve one model.

These structs are the only source of the spec: the router reads them from a file, the operator
from the API server, and the custom resource definition is made from them (each ``description``
becomes the field's). Bounds stand at the field where a schema can hold them, and in
``__post_init__`` where it takes more than one field or a parser.

Unknown fields are refused by :func:`decode_backend` and not by the structs, because they also
travel from a newer operator to an older router, which must go on working.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, cast

import msgspec
from msgspec import Meta

from sglr_proto.address import canonical_host, is_host, join
from sglr_proto.decoding import decode, short
from sglr_proto.documents import read_documents
from sglr_proto.errors import ManifestError

__all__ = [
    "API_VERSION",
    "KIND",
    "ManifestError",
    "Metadata",
    "Model",
    "PolicyName",
    "Routing",
    "SGLangBackend",
    "Spec",
    "StaticEndpoint",
    "StaticWorkers",
    "Tokenizer",
    "Workers",
    "decode_backend",
    "read_manifests",
]

GROUP: Final = "sglr.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "sglr.dev/v1alpha1"
KIND: Final = "SGLangBackend"

ModelName = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^\S+$")]
"""What a client sends as ``model``; 256 holds the longest repository name with a path in front."""


class PolicyName(enum.StrEnum):
    """How the worker of a request is chosen."""

    ROUND_ROBIN = "RoundRobin"
    """Each worker in turn."""


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
        _refuse_unprintable(name=self.name, namespace=self.namespace)


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which model the workers serve."""

    name: Annotated[
        ModelName,
        Meta(description="What clients send as `model`: 1 to 256 characters, no whitespace."),
    ]
    aliases: Annotated[
        tuple[ModelName, ...],
        Meta(
            max_length=16,
            description="Other names that clients may send. Each differs from the name and from "
            "the others. Default: none; at most 16, which keeps /v1/models readable.",
        ),
    ] = ()

    def __post_init__(self) -> None:
        """Refuse names that are not one word, or that say the same twice."""
        _refuse_unprintable(name=self.name)
        for index, alias in enumerate(self.aliases):
            _refuse_unprintable(**{f"aliases[{index}]": alias})
            if alias == self.name:
                raise ValueError(f"aliases[{index}] is {alias!r}; that is the model's name already")
            if alias in self.aliases[:index]:
                raise ValueError(f"aliases[{index}] is {alias!r}; that alias stands there twice")

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that clients may send, the model's own first."""
        return (self.name, *self.aliases)


class Tokenizer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the model's tokenizer and chat template are."""

    path: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=4096,
            description="A folder, as the router sees it, with tokenizer.json and "
            "tokenizer_config.json, and chat_template.jinja if the template is apart. No default: "
            "a wrong tokenizer answers in nonsense. At most 4096 characters, Linux's own limit.",
        ),
    ]

    def __post_init__(self) -> None:
        """Refuse what no file system takes."""
        if "\0" in self.path:
            raise ValueError(f"path is {self.path!r}; a path has no NUL in it")


class StaticEndpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One worker at a fixed address."""

    host: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=254,
            description="A DNS name, an IPv4 or an IPv6 address, without scheme, port or brackets.",
        ),
    ]
    port: Annotated[
        int,
        Meta(
            ge=1,
            le=65535,
            description="The worker's gRPC port. Default: 30000, as SGLang has it.",
        ),
    ] = 30000

    def __post_init__(self) -> None:
        """Refuse URLs and the like."""
        if not is_host(self.host):
            raise ValueError(
                f"host is {self.host!r}; expected a DNS name or an IP address, "
                "without scheme, port or brackets"
            )

    @property
    def address(self) -> str:
        """What to dial, such as ``10.0.0.1:30000`` or ``[fd00::1]:30000``."""
        return join(self.host, self.port)

    @property
    def key(self) -> tuple[str, int]:
        """What makes it the same worker, however its host is spelled."""
        return canonical_host(self.host), self.port


class StaticWorkers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Workers that are listed one by one."""

    endpoints: Annotated[
        tuple[StaticEndpoint, ...],
        Meta(
            min_length=1,
            max_length=1000,
            description="The workers, unique by host and port. No default; at most 1000, so that "
            "the object stays far below the 1.5 MiB an API server stores.",
        ),
    ]

    def __post_init__(self) -> None:
        """Refuse one worker listed twice: it would get twice its share."""
        first: dict[tuple[str, int], int] = {}
        for index, endpoint in enumerate(self.endpoints):
            if (earlier := first.setdefault(endpoint.key, index)) != index:
                raise ValueError(
                    f"endpoints[{index}] is {endpoint.address}; endpoints[{earlier}] is that "
                    "worker already"
                )


class Workers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the workers are found."""

    static: Annotated[StaticWorkers, Meta(description="A fixed list of addresses.")]


class Routing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How requests are spread over the workers."""

    policy: Annotated[
        PolicyName,
        Meta(
            description="How the worker of a request is chosen. Default: RoundRobin, which needs "
            "to know nothing about the workers."
        ),
    ] = PolicyName.ROUND_ROBIN


class Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the user asks for."""

    model: Annotated[Model, Meta(description="Which model the workers serve.")]
    tokenizer: Annotated[Tokenizer, Meta(description="Where the model's tokenizer is.")]
    workers: Annotated[Workers, Meta(description="Where the workers are found.")]
    routing: Annotated[
        Routing, Meta(description="How requests are spread over the workers. Default: in turn.")
    ] = Routing()


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
            have the same name, or answer to the same model.
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
        models.update(dict.fromkeys(backend.spec.model.names, backend.key))
    return tuple(backends.values())


def _refuse_twins(
    backend: SGLangBackend, backends: dict[str, SGLangBackend], models: dict[str, str]
) -> None:
    """Raise if *backend* has a name, or answers to a model, that an earlier one has."""
    owner = f"{KIND} {backend.key!r}"
    if backend.key in backends:
        problem = f"metadata.name is {backend.metadata.name!r}; an earlier document is {owner}."
        raise ManifestError(problem, path="metadata.name", owner=owner)
    for index, name in enumerate(backend.spec.model.names):
        if name in models:
            path = f"spec.model.aliases[{index - 1}]" if index else "spec.model.name"
            problem = f"{path} is {name!r}; {KIND} {models[name]!r} answers to it already."
            raise ManifestError(problem, path=path, owner=owner)


def _refuse_unprintable(**named: str) -> None:
    """Raise if one of the words holds whitespace or what cannot be shown."""
    for path, word in named.items():
        if not word.isprintable() or any(letter.isspace() for letter in word):
            raise ValueError(f"{path} is {word!r}; expected one word of printable characters")
