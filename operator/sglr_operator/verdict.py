"""What the API server and the operator would say about a manifest, without a cluster; pure.

In the API server's own order: the schema (with unknown fields as errors, as kubectl has them),
defaults, CEL rules; then what only the operator checks.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import celpy
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError

from sglr_operator.compose import conflicts
from sglr_operator.objects import ObjectMeta
from sglr_operator.schema import Schema, root
from sglr_proto.backend import KIND, ManifestError, SGLangBackend, decode_backend
from sglr_proto.documents import read_documents

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: where in the text, which field, and what was expected."""

    place: str
    path: str
    message: str

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.path}: {self.message}"
            if self.path
            else (f"{self.place}: {self.message}")
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Everything that is wrong, and how many backends were looked at."""

    backends: int
    findings: tuple[Finding, ...]
    skipped: tuple[str, ...]
    """Documents of other kinds, which are none of our business."""


def judge(text: str) -> Verdict:
    """Return the verdict on a YAML *text* of any number of documents.

    Raises:
        ManifestError: It is no YAML at all.
    """
    findings: list[Finding] = []
    skipped: list[str] = []
    accepted: list[tuple[str, ObjectMeta, SGLangBackend]] = []
    count = 0
    for place, document in read_documents(text):
        kind = cast("dict[str, Any]", document).get("kind") if isinstance(document, dict) else None
        if kind != KIND:
            skipped.append(f"{place}: {kind or 'no kind'}")
            continue
        count += 1
        found, backend = _judge_one(place, cast("dict[str, Any]", document))
        findings += found
        if backend is not None:
            # The text's order stands for the order of creation.
            meta = ObjectMeta(
                name=backend.metadata.name,
                namespace=backend.metadata.namespace,
                creation_timestamp=f"{count:06d}",
            )
            accepted.append((place, meta, backend))
    lost = conflicts((meta, backend) for _, meta, backend in accepted)
    findings += [
        Finding(place, "spec.model", lost[backend.key])
        for place, _, backend in accepted
        if backend.key in lost
    ]
    return Verdict(count, tuple(findings), tuple(skipped))


def with_defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return *document* as the API server would store it: defaults filled in."""
    filled: dict[str, Any] = copy.deepcopy(dict(document))
    _fill(filled, root())
    return filled


def schema_findings(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield path and message of everything the schema refuses."""
    return _check(document, root(), "")


def rule_findings(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield path and message of every CEL rule that refuses; *document* has its defaults."""
    return _apply_rules(document, root(), "")


def _judge_one(place: str, document: dict[str, Any]) -> tuple[list[Finding], SGLangBackend | None]:
    found = [Finding(place, path, message) for path, message in schema_findings(document)]
    if found:
        # CEL rules expect what the schema promises; the API server stops here as well.
        return found, None
    stored = with_defaults(document)
    found = [Finding(place, path, message) for path, message in rule_findings(stored)]
    if found:
        return found, None
    try:
        return [], decode_backend(stored, lenient=False)
    except ManifestError as error:
        return [Finding(place, "", error.problem)], None


# The schema.


def _check(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    kind = schema["type"]
    if not isinstance(value, _TYPES[kind]) or isinstance(value, bool):
        yield path, f"is {_short(value)}; expected {_article(kind)}"
    elif kind == "object":
        yield from _check_object(value, schema, path)
    elif kind == "array":
        yield from _check_array(value, schema, path)
    elif kind == "string":
        yield from _check_string(str(value), schema, path)
    else:
        low, high = schema.get("minimum"), schema.get("maximum")
        if (low is not None and value < low) or (high is not None and value > high):
            yield path, f"is {value}; expected {low} to {high}"


def _check_object(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    fields = schema.get("properties")
    every = schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if value.get(name) is None:
            yield _join(path, name), "is missing"
    if len(value) > schema.get("maxProperties", len(value)):
        yield path, f"has {len(value)} entries; expected at most {schema['maxProperties']}"
    for name, inner in value.items():
        where = _join(path, str(name))
        if every is not None:
            yield from _check(inner, every, where)
        elif fields is not None and name not in fields:
            yield where, f"is unknown; the fields here are {', '.join(fields)}"
        elif fields is not None and inner is not None:
            yield from _check(inner, fields[name], where)


def _check_array(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    low, high = schema.get("minItems", 0), schema.get("maxItems", len(value))
    if not low <= len(value) <= high:
        yield path, f"has {len(value)} items; expected {low} to {high}"
        return
    for index, item in enumerate(value):
        yield from _check(item, schema["items"], f"{path}[{index}]")
    if "x-kubernetes-list-map-keys" in schema or schema.get("x-kubernetes-list-type") == "set":
        yield from _check_unique(value, schema, path)


def _check_unique(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    keys = schema.get("x-kubernetes-list-map-keys", ())
    seen: set[str] = set()
    for index, item in enumerate(value):
        identity: Any = item
        if keys and isinstance(item, dict):
            fields = schema["items"]["properties"]
            named = cast("dict[str, Any]", item)
            identity = {key: named.get(key, fields[key].get("default")) for key in keys}
        word = json.dumps(identity, sort_keys=True, default=str)
        if word in seen:
            yield f"{path}[{index}]", f"is a duplicate of {word}"
        seen.add(word)


def _check_string(value: str, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    low, high = schema.get("minLength", 0), schema.get("maxLength", len(value))
    if not low <= len(value) <= high:
        yield path, f"has {len(value)} characters; expected {low} to {high}"
    elif "enum" in schema and value not in schema["enum"]:
        yield path, f"is {value!r}; expected one of {', '.join(schema['enum'])}"
    elif "pattern" in schema and not re.search(schema["pattern"], value):
        yield path, f"is {value!r}; expected a match of {schema['pattern']}"


def _fill(value: Any, schema: Schema) -> None:
    """Fill in defaults from the outside to the inside, as the API server does."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for name, inner in schema.get("properties", {}).items():
            if fields.get(name) is None and "default" in inner:
                fields[name] = copy.deepcopy(inner["default"])
            if fields.get(name) is None:
                fields.pop(name, None)
            else:
                _fill(fields[name], inner)
    for item in _items(value):
        _fill(item, schema["items"])


# The rules.


def _apply_rules(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    if value is None:
        return
    for rule in schema.get("x-kubernetes-validations", ()):
        if not holds(rule["rule"], value):
            yield path, f"is refused by a rule; expected: {rule['message']}"
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for name, inner in schema.get("properties", {}).items():
            yield from _apply_rules(fields.get(name), inner, _join(path, name))
    for index, item in enumerate(_items(value)):
        yield from _apply_rules(item, schema["items"], f"{path}[{index}]")


def holds(rule: str, value: Any) -> bool:
    """Return whether the CEL *rule* accepts *value* as ``self``; one that fails does not."""
    try:
        return bool(_program(rule).evaluate({"self": json_to_cel(value)}))
    except CELEvalError:
        return False


@cache
def _program(rule: str) -> celpy.Runner:
    environment: Any = celpy.Environment()  # its parse trees are untyped
    return cast("celpy.Runner", environment.program(environment.compile(rule)))


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()  # pyright: ignore[reportUnknownVariableType]  # each item is checked by itself


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _short(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)


def _article(kind: str) -> str:
    words = {"object": "a mapping", "array": "a list", "integer": "an integer"}
    return words.get(kind, "a string")
