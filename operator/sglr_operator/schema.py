"""The custom resource definition of SGLangBackend, made from the structs; pure.

The structs hold types, bounds, defaults and descriptions. What a schema can say beyond them (how
lists merge, and rules over several fields) stands here, next to each other in two tables.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import inspect

from sglr_operator import status
from sglr_proto import spec as structs
from sglr_proto import spec_model, spec_routing
from sglr_proto.backend import API_VERSION, GROUP, KIND, VERSION
from sglr_proto.selector import LabelRequirement, LabelSelector
from sglr_proto.spec_security import Tls, WorkerAuth
from sglr_proto.spec_tokenizer import ChatTemplate, Tokenizer

Schema = dict[str, Any]

PLURAL: Final = "sglangbackends"

LISTS: Final[dict[tuple[type, str], Schema]] = {
    (structs.StaticWorkers, "endpoints"): {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["host", "port"],
    },
    (spec_model.Model, "aliases"): {"x-kubernetes-list-type": "set"},
    (spec_model.Model, "adapters"): {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    },
    (structs.Workers, "ports"): {"x-kubernetes-list-type": "set"},
}
"""How server-side apply merges a list; every other list is replaced as one."""

RULES: Final[dict[tuple[type, str], tuple[tuple[str, str], ...]]] = {
    (structs.Workers, ""): (
        (
            (
                "[has(self.service), has(self.selector), has(self.static),"
                " has(self.inferencePoolRef)].filter(x, x).size() == 1"
            ),
            "exactly one of service, selector, static and inferencePoolRef",
        ),
        ("!has(self.ports) || has(self.selector)", "ports goes with selector only"),
        ("!has(self.http) || self.protocol == 'HTTP'", "http goes with protocol HTTP only"),
    ),
    (Tokenizer, ""): (
        (
            (
                "[has(self.path), has(self.huggingFace), has(self.fromWorker)]"
                ".filter(x, x).size() <= 1"
            ),
            "at most one of path, huggingFace and fromWorker",
        ),
    ),
    (ChatTemplate, ""): (
        (
            (
                "[has(self.inline), has(self.path), has(self.name), has(self.configMapKeyRef)]"
                ".filter(x, x).size() == 1"
            ),
            "exactly one of inline, path, name and configMapKeyRef",
        ),
    ),
    (Tls, ""): (
        ("!has(self.caFile) || !has(self.caRef)", "at most one of caFile and caRef"),
        (
            (
                "(has(self.mode) && self.mode != 'Disabled') ||"
                " (!has(self.caFile) && !has(self.caRef))"
            ),
            "a CA goes with mode TLS or Mutual",
        ),
        (
            (
                "(has(self.mode) && self.mode == 'Mutual') == (has(self.certificateSecretRef) !="
                " (has(self.certificateFile) && has(self.keyFile)))"
            ),
            "mode Mutual, and no other, takes certificateSecretRef, or certificateFile and keyFile",
        ),
        (
            "has(self.certificateFile) == has(self.keyFile)",
            "certificateFile and keyFile come together",
        ),
    ),
    (WorkerAuth, ""): (
        (
            "!has(self.apiKeyFile) || !has(self.apiKeySecretRef)",
            "at most one of apiKeyFile and apiKeySecretRef",
        ),
    ),
    (structs.Workers, "ports"): (("self.all(p, self.exists_one(q, q == p))", "each port once"),),
    (LabelSelector, ""): (
        (
            (
                "(has(self.matchLabels) && self.matchLabels.size() > 0) ||"
                " (has(self.matchExpressions) && self.matchExpressions.size() > 0)"
            ),
            "an empty selector matches every pod; set matchLabels or matchExpressions",
        ),
    ),
    (LabelRequirement, ""): (
        (
            (
                "(self.operator == 'In' || self.operator == 'NotIn') =="
                " (has(self.values) && self.values.size() > 0)"
            ),
            "In and NotIn take values, Exists and DoesNotExist take none",
        ),
    ),
    (structs.StaticEndpoint, "host"): (
        (
            "!self.contains('://') && !self.contains('/')",
            "a host without scheme and path, not a URL",
        ),
    ),
    (spec_routing.Routing, ""): (
        (
            ("!has(self.policy) || self.policy != 'ConsistentHash' || has(self.consistentHash)"),
            "policy ConsistentHash needs consistentHash",
        ),
    ),
    (spec_routing.ConsistentHash, ""): (
        ("has(self.header) || has(self.bodyField)", "header, bodyField or both"),
    ),
    (spec_model.Model, ""): (
        (
            "!has(self.aliases) || !self.aliases.exists(a, a == self.name)",
            "an alias differs from the model's name",
        ),
        (
            "!has(self.adapters) || !self.adapters.exists(a, a.name == self.name)",
            "an adapter's name differs from the model's",
        ),
    ),
}
"""CEL rules by struct and field ('' is the struct itself): the rule and what is expected.

Every list and string a rule walks is bounded, or the API server refuses the rule for its cost. A
field with a default is asked for with `has` all the same: the API server evaluates rules on a
struct's own default as it stands, and refuses the definition when a rule finds nothing there.
"""

WRITTEN: Final[frozenset[tuple[type, str]]] = frozenset({(status.Condition, "message")})
"""Fields that the schema requires although reading does without: we always write them."""

_COLUMNS: Final[tuple[tuple[str, str, str, int, str], ...]] = (
    ("Model", "string", ".spec.model.name", 0, "What clients send as model."),
    ("Ready", "integer", ".status.endpoints.ready", 0, "Endpoints that take requests."),
    ("Total", "integer", ".status.endpoints.total", 0, "Endpoints of any state."),
    ("Routers", "integer", ".status.routers.synced", 0, "Routers with the newest version."),
    ("Status", "string", '.status.conditions[?(@.type=="Ready")].status', 0, "Condition Ready."),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0, "Why."),
    ("Policy", "string", ".spec.routing.policy", 1, "How workers are chosen."),
    ("Version", "integer", ".status.snapshot.version", 1, "What routers were last told."),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Since the object was made."),
)


def definition() -> Schema:
    """Return the whole CustomResourceDefinition, ready to be written as YAML."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["sglb"],
                "categories": ["sglang", "inference"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*column) for column in _COLUMNS],
                    "schema": {"openAPIV3Schema": root()},
                }
            ],
        },
    }


def root() -> Schema:
    """Return the schema of a whole object."""
    return {
        "type": "object",
        "description": f"{KIND} ({API_VERSION}): one pool of interchangeable workers that serve"
        " one model.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"Always {API_VERSION}."},
            "kind": {"type": "string", "description": f"Always {KIND}."},
            "metadata": {"type": "object"},
            "spec": of(structs.Spec) | {"description": "What the user asks for."},
            "status": of(status.BackendStatus)
            | {"description": "What the operator says; written by nobody else."},
        },
    }


def missing_fields(served: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of our fields that the *served* schema of an object lacks, sorted.

    The API server drops them from what people apply and from what we write.
    """
    return tuple(sorted(_missing(root(), served, "")))


def _missing(ours: Schema, served: Mapping[str, Any], path: str) -> Iterator[str]:
    if served.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, inner in ours.get("properties", {}).items():
        place = f"{path}.{name}".lstrip(".")
        found = served.get("properties", {}).get(name)
        if found is None:
            yield place
        elif place != "metadata":
            yield from _missing(inner, found, place)
    if "items" in ours and "items" in served:
        yield from _missing(ours["items"], served["items"], f"{path}[]")


def of(struct: type[msgspec.Struct]) -> Schema:
    """Return the structural schema of *struct*, everything below it written out."""
    return _schema(inspect.type_info(struct), struct, "")


def _column(name: str, kind: str, path: str, priority: int, description: str) -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return column | ({"priority": priority} if priority else {})


def _schema(shape: inspect.Type, owner: type, field: str) -> Schema:
    """Return the schema of one type; *owner* and *field* say where it stands, for the tables."""
    if isinstance(shape, inspect.Metadata):
        extra = cast("Schema", shape.extra_json_schema or {})  # pyright: ignore[reportUnknownMemberType]  # a bare dict in msgspec's stubs
        return _schema(shape.type, owner, field) | extra
    if isinstance(shape, inspect.UnionType):
        (inner,) = (part for part in shape.types if not isinstance(part, inspect.NoneType))
        return _schema(inner, owner, field)
    if isinstance(shape, inspect.StructType):
        return _object(shape)
    if isinstance(shape, inspect.VarTupleType):
        found = {"type": "array", "items": _schema(shape.item_type, owner, "")}
        bounds = _bounds(shape, "minItems", "maxItems")
        return found | bounds | LISTS.get((owner, field), {"x-kubernetes-list-type": "atomic"})
    if isinstance(shape, inspect.DictType):
        values = _schema(shape.value_type, owner, "")
        found = {"type": "object", "additionalProperties": values}
        return found | _bounds(shape, "minProperties", "maxProperties")
    return _scalar(shape)


def _scalar(shape: inspect.Type) -> Schema:
    if isinstance(shape, inspect.StrType):
        found: Schema = {"type": "string"} | _bounds(shape, "minLength", "maxLength")
        return found | ({"pattern": shape.pattern} if shape.pattern is not None else {})
    if isinstance(shape, inspect.IntType):
        wide = shape.le is None or shape.le > 2**31 - 1
        found = {"type": "integer", "format": "int64" if wide else "int32"}
        found |= {"minimum": shape.ge} if shape.ge is not None else {}
        return found | ({"maximum": shape.le} if shape.le is not None else {})
    if isinstance(shape, inspect.EnumType):
        return {"type": "string", "enum": [str(member.value) for member in shape.cls]}
    if isinstance(shape, inspect.LiteralType):
        return {"type": "string", "enum": list(shape.values)}
    raise TypeError(f"{shape!r} has no schema; expected a struct, list, map, string or integer.")


def _object(shape: inspect.StructType) -> Schema:
    fields = {field.encode_name: _field(field, shape.cls) for field in shape.fields}
    required = [
        field.encode_name
        for field in shape.fields
        if field.required or (shape.cls, field.name) in WRITTEN
    ]
    found: Schema = {"type": "object"}
    if required:
        found["required"] = required
    found["properties"] = fields
    return found | _rules(shape.cls, "")


def _field(field: inspect.Field, owner: type) -> Schema:
    found = _schema(field.type, owner, field.encode_name)
    # Only objects may lack what their default says; the API server fills it in from the inside.
    in_spec = owner.__module__ != status.__name__
    if isinstance(field.default, msgspec.Struct) and in_spec:
        found["default"] = {}
    elif isinstance(field.default, enum.Enum):
        found["default"] = field.default.value
    elif isinstance(field.default, int | str) and field.default != "" and in_spec:
        # Kubernetes 1.20 refuses a definition with "" for a default; absent it says the same.
        found["default"] = field.default
    return found | _rules(owner, field.encode_name)


def _rules(owner: type, field: str) -> Schema:
    rules = RULES.get((owner, field), ())
    if not rules:
        return {}
    return {"x-kubernetes-validations": [{"rule": r, "message": m} for r, m in rules]}


def _bounds(shape: Any, least: str, most: str) -> Schema:
    low, high = (cast("int | None", getattr(shape, name)) for name in ("min_length", "max_length"))
    found: Schema = {least: low} if low is not None else {}
    return found | ({most: high} if high is not None else {})
