"""The definition that is generated, and the offline verdict that follows it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from sglr_operator.cli import main
from sglr_operator.conditions import Facts, RouterView, status_of
from sglr_operator.endpoints import Found
from sglr_operator.schema import RULES, definition, root
from sglr_operator.verdict import holds, judge, schema_findings, with_defaults
from support.kube_objects import a_document

REPO = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((REPO / "examples").glob("backend-*.yaml"))


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema within *schema*, with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from nodes(schema[name], f"{path}.{name}")


def test_the_committed_definition_is_fresh() -> None:
    """crds/ says what the structs say."""
    found = subprocess.run(
        [sys.executable, "scripts/gen_crd.py", "--check"],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )

    assert (found.returncode, found.stderr) == (0, "")


def test_the_schema_is_structural_bounded_and_described() -> None:
    """No references, no int-or-string, every list and string bounded, every field explained."""
    for path, schema in nodes(root()):
        assert schema["type"] in {"object", "array", "string", "integer"}, path
        assert not {"$ref", "anyOf", "oneOf", "x-kubernetes-int-or-string"} & schema.keys(), path
        if schema["type"] == "array":
            assert schema["maxItems"] <= 1000, path
        if schema["type"] == "string" and path.startswith((".spec", ".status")):
            assert "maxLength" in schema or "enum" in schema, path
        if schema["type"] == "integer" and not path.endswith(("Generation", ".items")):
            assert {"minimum", "maximum"} <= schema.keys(), path
        for name, inner in schema.get("properties", {}).items():
            assert inner.get("description") or name == "metadata" or path == ".status", (path, name)


def test_the_definition_is_small_and_names_what_people_type() -> None:
    """Short name, categories, status subresource, and far below what Helm and etcd take."""
    crd = definition()
    text = (REPO / "crds" / "sglr.dev_sglangbackends.yaml").read_text()

    assert len(text) < 100_000
    assert yaml.safe_load(text) == crd
    assert crd["spec"]["names"]["shortNames"] == ["sglb"]
    assert crd["spec"]["names"]["categories"] == ["sglang", "inference"]
    assert crd["spec"]["versions"][0]["subresources"] == {"status": {}}


def test_printer_columns_point_at_fields_of_the_schema() -> None:
    """Every column's path exists, so that kubectl shows no empty column."""
    for column in definition()["spec"]["versions"][0]["additionalPrinterColumns"]:
        schema = root()
        for step in column["jsonPath"].split("[")[0].strip(".").split("."):
            if step == "metadata":
                break
            schema = schema["properties"][step]


def test_static_endpoints_merge_by_host_and_port() -> None:
    """Two appliers can each own an endpoint; the key's default makes it always there."""
    fields = root()["properties"]["spec"]["properties"]["workers"]["properties"]
    endpoints = fields["static"]["properties"]["endpoints"]

    assert endpoints["x-kubernetes-list-map-keys"] == ["host", "port"]
    assert endpoints["items"]["required"] == ["host"]
    assert endpoints["items"]["properties"]["port"]["default"] == 30000


GOOD: dict[str, list[Any]] = {
    "[has(self.path), has(self.huggingFace)": [{}, {"path": "/t"}, {"fromWorker": {}}],
    "[has(self.inline)": [{"inline": "x"}, {"path": "/t"}, {"name": "rag"}],
    "!has(self.caFile) ||": [{}, {"caFile": "a"}, {"caRef": {}}],
    "(has(self.mode) && self.mode != 'Disabled'": [
        {"mode": "Disabled"},
        {"mode": "TLS", "caRef": {}},
    ],
    "(has(self.mode) && self.mode == 'Mutual'": [
        {"mode": "TLS"},
        {"mode": "Mutual", "certificateSecretRef": {}},
        {"mode": "Mutual", "certificateFile": "c", "keyFile": "k"},
    ],
    "has(self.certificateFile) ==": [{}, {"certificateFile": "c", "keyFile": "k"}],
    "!has(self.apiKeyFile)": [{}, {"apiKeyFile": "k"}, {"apiKeySecretRef": {}}],
    "[has(self.service)": [{"service": {}}, {"selector": {}}, {"static": {}}],
    "!has(self.ports) || has": [{"service": {}}, {"selector": {}, "ports": [1]}],
    "!has(self.http)": [{"protocol": "GRPC"}, {"protocol": "HTTP", "http": {}}],
    "self.all(p": [[1], [1, 2]],
    "(has(self.matchLabels)": [{"matchLabels": {"a": "b"}}, {"matchExpressions": [{}]}],
    "(self.operator": [
        {"operator": "In", "values": ["a"]},
        {"operator": "Exists"},
        {"operator": "DoesNotExist", "values": []},
    ],
    "!self.contains": ["gpu-1.lab", "10.0.0.1", "fd00::1"],
    "!has(self.aliases)": [{"name": "a"}, {"name": "a", "aliases": ["b"]}],
    "!has(self.adapters)": [{"name": "a"}, {"name": "a", "adapters": [{"name": "b"}]}],
    "!has(self.policy)": [{"policy": "Random"}, {"policy": "ConsistentHash", "consistentHash": {}}],
    "has(self.header)": [{"header": "a"}, {"bodyField": "user"}, {"header": "a", "bodyField": "b"}],
}
BAD: dict[str, list[Any]] = {
    "[has(self.path), has(self.huggingFace)": [
        {"path": "/t", "fromWorker": {}},
        {"huggingFace": {"repo": "a/b"}, "path": "/t"},
    ],
    "[has(self.inline)": [{}, {"inline": "x", "name": "rag"}],
    "!has(self.caFile) ||": [{"caFile": "a", "caRef": {}}],
    "(has(self.mode) && self.mode != 'Disabled'": [
        {"mode": "Disabled", "caRef": {}},
        {"mode": "Disabled", "caFile": "a"},
    ],
    "(has(self.mode) && self.mode == 'Mutual'": [
        {"mode": "Mutual"},
        {"mode": "TLS", "certificateSecretRef": {}},
        {"mode": "Disabled", "certificateFile": "c", "keyFile": "k"},
        {"mode": "Mutual", "certificateSecretRef": {}, "certificateFile": "c", "keyFile": "k"},
    ],
    "has(self.certificateFile) ==": [{"certificateFile": "c"}, {"keyFile": "k"}],
    "!has(self.apiKeyFile)": [{"apiKeyFile": "k", "apiKeySecretRef": {}}],
    "[has(self.service)": [{}, {"service": {}, "static": {}}, {"ports": [1]}],
    "!has(self.ports) || has": [{"service": {}, "ports": [1]}],
    "!has(self.http)": [{"protocol": "GRPC", "http": {}}],
    "self.all(p": [[1, 1], [1, 2, 1]],
    "(has(self.matchLabels)": [{}, {"matchLabels": {}}, {"matchExpressions": []}],
    "(self.operator": [
        {"operator": "In"},
        {"operator": "NotIn", "values": []},
        {"operator": "Exists", "values": ["a"]},
    ],
    "!self.contains": ["http://a", "a/b", "grpc://10.0.0.1"],
    "!has(self.aliases)": [{"name": "a", "aliases": ["b", "a"]}],
    "!has(self.adapters)": [{"name": "a", "adapters": [{"name": "b"}, {"name": "a"}]}],
    "!has(self.policy)": [{"policy": "ConsistentHash"}],
    "has(self.header)": [{}, {"loadFactorPercent": 125}],
}
ALL_RULES = [rule for rules in RULES.values() for rule, _ in rules]


@pytest.mark.parametrize("rule", ALL_RULES)
def test_every_rule_accepts_and_refuses(rule: str) -> None:
    """Each CEL rule is evaluated on values it must take and values it must not."""
    [good] = [values for start, values in GOOD.items() if rule.startswith(start)]
    [bad] = [values for start, values in BAD.items() if rule.startswith(start)]

    assert [holds(rule, value) for value in good] == [True] * len(good)
    assert [holds(rule, value) for value in bad] == [False] * len(bad)


def test_every_default_satisfies_the_rules_as_it_stands() -> None:
    """The API server checks a default before those within it are filled in, and refuses the CRD."""
    checked = 0
    for path, schema in nodes(root()):
        for rule in schema.get("x-kubernetes-validations", []):
            if "default" in schema:
                checked += 1
                assert holds(rule["rule"], schema["default"]), (path, rule["rule"])

    assert checked >= 5


def test_no_default_is_an_empty_text() -> None:
    """Kubernetes 1.20 reads it as null, and refuses the CRD; leaving it out says the same."""
    assert [path for path, schema in nodes(root()) if schema.get("default") == ""] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_accepted(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What we show people works."""
    assert main(["check", "-f", str(example)]) == 0
    assert "1 SGLangBackend ok" in capsys.readouterr().out


def test_defaults_are_filled_in_as_the_server_does() -> None:
    """Missing fields with defaults are there, nested ones too; nulls are absent."""
    document = a_document({"static": {"endpoints": [{"host": "a"}]}, "service": None})
    stored = with_defaults(document)["spec"]

    assert stored["routing"]["policy"] == "CacheAware"
    assert stored["routing"]["sessionSticky"]["header"] == "x-session-id"
    endpoint = {"host": "a", "port": 30000, "weight": 1, "priority": 0}
    assert stored["workers"] == {"static": {"endpoints": [endpoint]}, "protocol": "GRPC"}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"model": {}}, "spec.model.name: is missing"),
        ({"model": {"name": ""}}, "spec.model.name: has 0 characters; expected 1 to 256"),
        ({"model": {"name": "a b"}}, "spec.model.name: is 'a b'; expected a match of ^\\S+$"),
        ({"model": {"name": 7}}, "spec.model.name: is 7; expected a string"),
        ({"model": {"name": "a", "nmae": "b"}}, "spec.model.nmae: is unknown"),
        ({"model": {"name": "a", "aliases": ["a"]}}, "an alias differs from the model's name"),
        ({"model": {"name": "a", "aliases": ["b", "b"]}}, "spec.model.aliases[1]: is a duplicate"),
        ({"workers": {}}, "exactly one of service, selector, static and inferencePoolRef"),
        ({"workers": {"selector": {}}}, "an empty selector matches every pod"),
        ({"routing": {"policy": "Best"}}, "spec.routing.policy: is 'Best'; expected one of Cache"),
        (
            {"workers": {"static": {"endpoints": [{"host": "a"}, {"host": "a", "port": 30000}]}}},
            "spec.workers.static.endpoints[1]: is a duplicate",
        ),
        (
            {"workers": {"static": {"endpoints": [{"host": "a", "port": 70000}]}}},
            "endpoints[0].port: is 70000; expected 1 to 65535",
        ),
        (
            {"workers": {"static": {"endpoints": [{"host": "http://a"}]}}},
            "a host without scheme and path",
        ),
        # Only the operator sees that these are one worker.
        (
            {"workers": {"static": {"endpoints": [{"host": "A.lab"}, {"host": "a.lab."}]}}},
            "is that worker already",
        ),
    ],
)
def test_a22_an_invalid_spec_is_refused_with_a_readable_message(
    change: dict[str, Any], line: str
) -> None:
    """Each mistake is told with its path and what was expected."""
    verdict = judge(yaml.safe_dump(a_document(**change)))

    assert any(line in str(finding) for finding in verdict.findings), verdict.findings


def test_two_namespaces_conflict_over_a_model_within_a_file() -> None:
    """The later document loses the name; within one namespace it is shared."""
    documents = [a_document(name=name) for name in ("a", "b")]
    documents.append(a_document(name="c", namespace="team"))

    [finding] = judge("\n---\n".join(map(yaml.safe_dump, documents))).findings
    assert "'inference/a' of another namespace is older" in finding.message


def test_other_kinds_are_skipped_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of a whole installation can be checked; what is not ours is named."""
    path = tmp_path / "all.yaml"
    path.write_text(f"kind: Service\n---\n{yaml.safe_dump(a_document())}")

    assert main(["check", "-f", str(path)]) == 0
    captured = capsys.readouterr()
    assert "document 1 (line 1): Service: skipped" in captured.err


@pytest.mark.parametrize(
    ("text", "code"),
    [("a: [", 1), ("kind: SGLangBackend", 1), (None, 2)],
)
def test_the_exit_code_says_whose_fault_it_is(text: str | None, code: int, tmp_path: Path) -> None:
    """1 is a bad manifest, 2 an unreadable file."""
    path = tmp_path / "backends.yaml"
    if text is not None:
        path.write_text(text)

    assert main(["check", "-f", str(path)]) == code


def test_a22_every_field_of_the_status_is_in_the_schema() -> None:
    """What the operator writes is not pruned."""
    facts = Facts(generation=1, found=Found(), routers=RouterView(), epoch=(1, 1), version=1)
    text = msgspec.json.encode(status_of(facts, None, "2026-01-01T00:00:00Z"))
    written = msgspec.json.decode(text)
    document = a_document() | {"status": written}

    assert list(schema_findings(document)) == []
