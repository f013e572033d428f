"""The spec of a SGLangBackend, field by field.

These structs are its only source: the router reads them from a file, the operator from the API
server, and the custom resource definition is made from them (each ``description`` becomes the
field's). Bounds stand at the field where a schema can hold them, and in ``__post_init__`` where it
takes more than one field or a parser; what is raised there starts with the field's own path.

Unknown fields are refused by :mod:`sglr_proto.backend` and not by the structs, because they also
travel from a newer operator to an older router, which must go on working.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from sglr_proto.address import canonical_host, is_host, join
from sglr_proto.selector import LabelSelector
from sglr_proto.spec_admission import Admission, RateLimit
from sglr_proto.spec_grpc import GrpcWorkers
from sglr_proto.spec_http import HttpWorkers, Protocol
from sglr_proto.spec_model import Model, Traffic
from sglr_proto.spec_parsers import Parsers
from sglr_proto.spec_refs import Auth
from sglr_proto.spec_resilience import Drain, HealthCheck, OutlierDetection, Retry, Timeouts
from sglr_proto.spec_routing import Routing
from sglr_proto.spec_security import Tls, WorkerAuth
from sglr_proto.spec_tokenizer import Tokenizer


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
            description="The worker's port. Default: 30000, as SGLang has it.",
        ),
    ] = 30000
    zone: Annotated[
        str,
        Meta(
            max_length=63,
            description="Where the worker is, for routing.zonePreference. Default: nowhere named.",
        ),
    ] = ""
    weight: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="How much of the work it is to have, against the other workers: 2 is twice "
            "as much as 1. Default: 1.",
        ),
    ] = 1
    priority: Annotated[
        int,
        Meta(
            ge=0,
            le=15,
            description="Its tier: workers of a higher number are used when none of a lower one is "
            "well and has room. Default: 0.",
        ),
    ] = 0

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


class ServiceWorkers(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Workers that a Service selects; its EndpointSlices are followed."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=63,
            pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            description="Name of a Service in the backend's namespace.",
        ),
    ]
    port_name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=63)] | None,
        Meta(description="Name of the Service's port that speaks gRPC. Default: its only port."),
    ] = None


class PoolRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The workers of an ``inference.networking.k8s.io/v1`` InferencePool."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            description="Name of an InferencePool in the backend's namespace; its selector and "
            "target ports say where the workers are.",
        ),
    ]


class Workers(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where the workers are found, by exactly one of the four ways, and what they speak."""

    service: Annotated[
        ServiceWorkers | None,
        Meta(description="The endpoints of a Service. Needs the operator."),
    ] = None
    selector: Annotated[
        LabelSelector | None,
        Meta(description="Pods of the backend's namespace, by label. Needs the operator."),
    ] = None
    static: Annotated[StaticWorkers | None, Meta(description="A fixed list of addresses.")] = None
    inference_pool_ref: Annotated[
        PoolRef | None, Meta(description="The pods of an InferencePool. Needs the operator.")
    ] = None
    ports: Annotated[
        Annotated[
            tuple[Annotated[int, Meta(ge=1, le=65535)], ...], Meta(min_length=1, max_length=8)
        ]
        | None,
        Meta(
            description="Ports of each selected pod, one worker each; only with `selector`. "
            "Default: 30000 alone, as SGLang has it; at most 8, one per data-parallel rank.",
        ),
    ] = None
    protocol: Annotated[
        Protocol,
        Meta(
            description="What the workers speak. GRPC: SGLang's scheduler; the router makes the "
            "prompt and reads the answer. HTTP: OpenAI's API (SGLang's own server, vLLM); requests "
            "and answers are passed on. Default: GRPC."
        ),
    ] = Protocol.GRPC
    grpc: Annotated[
        GrpcWorkers | None,
        Meta(
            description="How workers of GRPC are connected to; only with `protocol: GRPC`. "
            "Default: see there."
        ),
    ] = None
    http: Annotated[
        HttpWorkers | None,
        Meta(
            description="How workers of HTTP are connected to; only with `protocol: HTTP`. "
            "Default: see there."
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse no source, several sources, and ports that nobody uses or that repeat."""
        named = {
            "service": self.service,
            "selector": self.selector,
            "static": self.static,
            "inferencePoolRef": self.inference_pool_ref,
        }
        sources = [name for name, value in named.items() if value is not None]
        if len(sources) != 1:
            raise ValueError(
                f"{sources[0] if sources else 'static'} is "
                f"{'one of several sources' if sources else 'missing'}; expected exactly one of "
                "service, selector, static and inferencePoolRef"
            )
        if self.ports is not None and self.selector is None:
            raise ValueError(f"ports is set with {sources[0]}; expected it with selector only")
        if self.ports is not None and len(set(self.ports)) < len(self.ports):
            raise ValueError(f"ports is {list(self.ports)!r}; expected each port once")
        if self.grpc is not None and self.protocol is not Protocol.GRPC:
            raise ValueError("grpc is set with protocol HTTP; expected it with GRPC only")
        if self.http is not None and self.protocol is not Protocol.HTTP:
            raise ValueError("http is set with protocol GRPC; expected it with HTTP only")


class Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the user asks for."""

    model: Annotated[Model, Meta(description="Which model the workers serve.")]
    traffic: Annotated[
        Traffic,
        Meta(
            description="The backend's share of the requests for a name that several backends "
            "serve. Default: as much as each other one."
        ),
    ] = Traffic()
    tokenizer: Annotated[
        Tokenizer,
        Meta(description="Where the model's tokenizer is. Default: the workers send theirs."),
    ] = Tokenizer()
    parsers: Annotated[
        Parsers,
        Meta(description="How answers are read. Default: told by the chat template."),
    ] = Parsers()
    workers: Annotated[Workers, Meta(description="Where the workers are found.")]
    routing: Annotated[
        Routing, Meta(description="How requests are spread over the workers. Default: see there.")
    ] = Routing()
    admission: Annotated[
        Admission, Meta(description="How many requests run and wait. Default: see there.")
    ] = Admission()
    rate_limit: Annotated[
        RateLimit, Meta(description="What may be used in a minute. Default: unlimited.")
    ] = RateLimit()
    timeouts: Annotated[
        Timeouts, Meta(description="How long what may take. Default: see there.")
    ] = Timeouts()
    retry: Annotated[
        Retry, Meta(description="What is tried again, and how often. Default: see there.")
    ] = Retry()
    health_check: Annotated[
        HealthCheck,
        Meta(description="How workers are asked for their health. Default: see there."),
    ] = HealthCheck()
    drain: Annotated[
        Drain,
        Meta(description="What becomes of requests on workers that leave. Default: see there."),
    ] = Drain()
    tls: Annotated[
        Tls, Meta(description="TLS from the router to the workers. Default: plain text.")
    ] = Tls()
    worker_auth: Annotated[
        WorkerAuth,
        Meta(description="How the router proves itself to workers. Default: it does not."),
    ] = WorkerAuth()
    auth: Annotated[
        Auth, Meta(description="Which callers are answered. Default: as the router says.")
    ] = Auth()
    outlier_detection: Annotated[
        OutlierDetection,
        Meta(description="When a worker that fails requests is left alone. Default: see there."),
    ] = OutlierDetection()
