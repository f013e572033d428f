"""SGLangBackend documents: what is read, and how each mistake is told."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglr_proto.backend import (
    ManifestError,
    PolicyName,
    SGLangBackend,
    StaticEndpoint,
    decode_backend,
    read_manifests,
)
from support.manifests import EXAMPLE, GONE, a_document, changed

HOST = "spec.workers.static.endpoints[1].host"
PORT = "spec.workers.static.endpoints[1].port"
ENDPOINTS = "spec.workers.static.endpoints"
HOST_RULE = "expected a DNS name or an IP address, without scheme, port or brackets"


def refusal(document: object, *, lenient: bool = False) -> ManifestError:
    """Return the error that *document* is refused with."""
    with pytest.raises(ManifestError) as caught:
        decode_backend(document, lenient=lenient)
    return caught.value


def outcome(document: object, *, lenient: bool) -> SGLangBackend | ManifestError:
    """Return what becomes of *document*."""
    try:
        return decode_backend(document, lenient=lenient)
    except ManifestError as error:
        return error


def test_the_documented_example_is_read() -> None:
    """The manifest that the README shows becomes the backend it describes."""
    [backend] = read_manifests(EXAMPLE)

    assert backend.key == "default/qwen"
    assert backend.spec.model.name == "qwen"
    assert backend.spec.model.aliases == ()
    assert backend.spec.tokenizer.path == "DIR"
    assert backend.spec.workers.static is not None
    assert backend.spec.workers.static.endpoints == (StaticEndpoint(host="127.0.0.1", port=30000),)
    assert backend.spec.routing.policy is PolicyName.ROUND_ROBIN


def test_defaults_are_those_of_the_documentation() -> None:
    """Namespace default, no aliases, port 30000, round robin; null means the default too."""
    document = changed("spec.workers.static.endpoints", [{"host": "gpu-1", "port": None}])
    document = changed("metadata", {"name": "qwen"}, document)
    document = changed("spec.routing", None, document)
    document = changed("spec.tokenizer", GONE, document)
    document = changed("spec.model", {"name": "qwen"}, document)

    backend = decode_backend(document, lenient=False)

    assert backend.metadata.namespace == "default"
    assert backend.spec.model.names == ("qwen",)
    assert backend.spec.workers.static is not None
    assert [each.address for each in backend.spec.workers.static.endpoints] == ["gpu-1:30000"]
    assert backend.spec.routing.policy == "CacheAware"
    assert backend.spec.tokenizer.is_from_worker
    assert backend.spec.tokenizer.chat_template is None
    assert backend.spec.tokenizer.control_tokens == "AsText"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "a" * 253),
        ("metadata.name", "qwen3-8b.v2"),
        ("metadata.namespace", "a" * 63),
        ("spec.model.name", "m"),
        ("spec.model.name", "m" * 256),
        ("spec.model.name", "/models/Qwen/Qwen3-8B:latest"),
        ("spec.model.name", "通义"),
        ("spec.model.aliases", [f"alias-{n}" for n in range(16)]),
        ("spec.model.servedName", "/models/qwen"),
        ("spec.model.adapters", [{"name": f"adapter-{n}"} for n in range(64)]),
        ("spec.model.adapterDiscovery", "Worker"),
        ("spec.traffic", {}),
        ("spec.traffic", {"weight": 0, "priority": 15, "header": {"name": "X-Canary"}}),
        ("spec.traffic.weight", 1_000_000),
        ("spec.traffic.header", {"name": "x-canary", "value": "v" * 256}),
        ("spec.tokenizer.path", "p" * 4096),
        ("spec.tokenizer", {}),
        ("spec.tokenizer", {"fromWorker": {}}),
        ("spec.tokenizer", {"huggingFace": {"repo": "Qwen/Qwen3-8B", "revision": "refs/pr/1"}}),
        ("spec.tokenizer.chatTemplate", {"inline": "x" * 65_536}),
        ("spec.tokenizer.chatTemplate", {"name": "tool_use"}),
        ("spec.tokenizer.controlTokens", "AsTokens"),
        (PORT, 1),
        (PORT, 65535),
        (HOST, "fd00::1"),
        (ENDPOINTS, [{"host": f"gpu-{n}"} for n in range(1000)]),
        (ENDPOINTS, [{"host": "gpu", "port": 1}, {"host": "gpu", "port": 2}]),
    ],
)
def test_what_is_just_within_the_bounds_is_taken(path: str, value: object) -> None:
    """Each bound includes its limit."""
    backend = decode_backend(changed(path, value), lenient=False)

    again = changed(path, value, msgspec.to_builtins(backend))
    assert decode_backend(again, lenient=False) == backend


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("metadata.name", "", "metadata.name is ''; expected a string of length >= 1."),
        ("metadata.name", "a" * 254, "expected a string of length <= 253."),
        ("metadata.name", "Qwen", "metadata.name is 'Qwen'; expected a string matching regex"),
        ("metadata.name", "a..b", "metadata.name is 'a..b'; expected a string matching regex"),
        ("metadata.name", "qwen\n", "metadata.name is 'qwen\\n'; expected one word of printable"),
        ("metadata.name", GONE, "metadata.name is missing."),
        ("metadata.name", 7, "metadata.name is 7; expected a string."),
        ("metadata.namespace", "a" * 64, "expected a string of length <= 63."),
        ("metadata.namespace", "a.b", "metadata.namespace is 'a.b'; expected a string matching"),
        ("metadata", GONE, "metadata is missing."),
        ("metadata", [], "metadata is a list of 0; expected a mapping."),
        ("spec", GONE, "spec is missing."),
        ("spec", None, "spec is missing."),
        ("spec.model", GONE, "spec.model is missing."),
        ("spec.model.name", GONE, "spec.model.name is missing."),
        ("spec.model.name", "", "spec.model.name is ''; expected a string of length >= 1."),
        ("spec.model.name", "m" * 257, "expected a string of length <= 256."),
        ("spec.model.name", "a b", "spec.model.name is 'a b'; expected a string matching regex"),
        ("spec.model.name", "a\n", "spec.model.name is 'a\\n'; expected one word of printable"),
        ("spec.model.name", "a\0", "spec.model.name is 'a\\x00'; expected one word of printable"),
        ("spec.model.name", True, "spec.model.name is True; expected a string."),
        ("spec.model.aliases", "a", "spec.model.aliases is 'a'; expected a list."),
        (
            "spec.model.aliases",
            [f"alias-{n}" for n in range(17)],
            "spec.model.aliases is a list of 17; expected a list of length <= 16.",
        ),
        (
            "spec.model.aliases[1]",
            "qwen",
            "spec.model.aliases[1] is 'qwen'; that is the model's name already.",
        ),
        (
            "spec.model.aliases[1]",
            "qwen-latest",
            "spec.model.aliases[1] is 'qwen-latest'; that alias stands there twice.",
        ),
        ("spec.model.aliases[0]", "a b", "spec.model.aliases[0] is 'a b'; expected a string"),
        ("spec.model.servedName", "a\0", "spec.model.servedName is 'a\\x00'; expected one word"),
        (
            "spec.model.adapters",
            [{"name": f"a-{n}"} for n in range(65)],
            "spec.model.adapters is a list of 65; expected a list of length <= 64.",
        ),
        (
            "spec.model.adapters[0].name",
            "qwen-small",
            "spec.model.adapters[0].name is 'qwen-small'; that name stands here twice.",
        ),
        (
            "spec.model.adapters",
            [{"name": "sql"}, {"name": "sql", "servedName": "other"}],
            "spec.model.adapters[1].name is 'sql'; that name stands here twice.",
        ),
        (
            "spec.model.adapters[0].servedName",
            "a\0",
            "spec.model.adapters[0].servedName is 'a\\x00'; expected one word",
        ),
        ("spec.model.adapterDiscovery", "On", "expected one of Disabled, Worker."),
        ("spec.traffic.weight", -1, "spec.traffic.weight is -1; expected an integer >= 0."),
        ("spec.traffic.weight", 1_000_001, "expected an integer <= 1000000."),
        ("spec.traffic.priority", 16, "spec.traffic.priority is 16; expected an integer <= 15."),
        ("spec.traffic.header.name", "a b", "spec.traffic.header.name is 'a b'; expected a string"),
        ("spec.traffic.header.value", "a\n", "spec.traffic.header.value is 'a\\n'; expected print"),
        ("spec.traffic.header.value", "é", "spec.traffic.header.value is 'é'; expected printable"),
        ("spec.traffic.header", {}, "spec.traffic.header.name is missing."),
        (
            "spec.tokenizer.fromWorker",
            {},
            (
                "spec.tokenizer.fromWorker is set beside path; expected at most one of path, "
                "huggingFace and fromWorker."
            ),
        ),
        ("spec.tokenizer.controlTokens", "Yes", "'Yes'; expected one of AsText, AsTokens."),
        (
            "spec.tokenizer.chatTemplate",
            {},
            (
                "spec.tokenizer.chatTemplate.inline is missing; expected exactly one of inline, path, "
                "name and configMapKeyRef."
            ),
        ),
        (
            "spec.tokenizer.chatTemplate",
            {"inline": "x", "name": "rag"},
            (
                "spec.tokenizer.chatTemplate.name is one of several; expected exactly one of inline, "
                "path, name and configMapKeyRef."
            ),
        ),
        ("spec.tokenizer.chatTemplate", {"inline": "x" * 65_537}, "of length <= 65536."),
        ("spec.tokenizer.chatTemplate", {"path": "a\nb"}, "path is 'a\\nb'; expected printable"),
        ("spec.tokenizer", {"huggingFace": {}}, "spec.tokenizer.huggingFace.repo is missing."),
        ("spec.tokenizer", {"huggingFace": {"repo": "a/b/c"}}, "matching regex"),
        ("spec.tokenizer", {"huggingFace": {"repo": "../up"}}, "matching regex"),
        ("spec.tokenizer", {"huggingFace": {"repo": "a/b..c"}}, "without '..' or line break"),
        ("spec.tokenizer", {"huggingFace": {"repo": "a/b\n"}}, "without '..' or line break"),
        (
            "spec.tokenizer",
            {"huggingFace": {"repo": "a/b", "revision": "../main"}},
            "spec.tokenizer.huggingFace.revision is '../main'; expected a string matching regex",
        ),
        ("spec.tokenizer.path", "", "spec.tokenizer.path is ''; expected a string of length >= 1."),
        ("spec.tokenizer.path", "p" * 4097, "expected a string of length <= 4096."),
        ("spec.tokenizer.path", "a\0b", "spec.tokenizer.path is 'a\\x00b'; expected printable"),
        ("spec.workers", {}, "spec.workers.static is missing; expected exactly one of service,"),
        (ENDPOINTS, [], f"{ENDPOINTS} is a list of 0; expected a list of length >= 1."),
        (
            ENDPOINTS,
            [{"host": f"gpu-{n}"} for n in range(1001)],
            f"{ENDPOINTS} is a list of 1001; expected a list of length <= 1000.",
        ),
        (
            ENDPOINTS,
            [{"host": "FD00::1"}, {"host": "fd00:0::1", "port": 30000}],
            f"{ENDPOINTS}[1] is [fd00:0::1]:30000; {'endpoints[0]'} is that worker already.",
        ),
        (PORT, 0, f"{PORT} is 0; expected an integer >= 1."),
        (PORT, 65536, f"{PORT} is 65536; expected an integer <= 65535."),
        (PORT, "30000", f"{PORT} is '30000'; expected an integer."),
        (PORT, 30000.5, f"{PORT} is 30000.5; expected an integer."),
        (HOST, "http://gpu", f"{HOST} is 'http://gpu'; {HOST_RULE}."),
        (HOST, "[::1]", f"{HOST} is '[::1]'; {HOST_RULE}."),
        (HOST, "", f"{HOST} is ''; expected a string of length >= 1."),
        (HOST, GONE, f"{HOST} is missing."),
        ("spec.routing.policy", "Fastest", "'Fastest'; expected one of CacheAware, "),
        ("spec.routing.policy", "roundrobin", "'roundrobin'; expected one of CacheAware, "),
    ],
)
def test_what_is_out_of_bounds_is_refused_with_its_path(
    path: str, value: object, problem: str
) -> None:
    """The sentence names the path, what stands there and what was expected; leniency or not."""
    for lenient in (False, True):
        error = refusal(changed(path, value), lenient=lenient)

        assert problem in str(error)
        assert error.path
        assert error.path in str(error)
        assert path.startswith(error.path) or error.path.startswith(path)


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("status2", "apiVersion, kind, metadata, spec"),
        ("metadata.namspace", "name, namespace"),
        ("spec.modle", ", ".join(a_document()["spec"])),
        ("spec.model.nmae", "name, aliases, servedName, adapters, adapterDiscovery"),
        ("spec.model.adapters[0].nmae", "name, servedName"),
        ("spec.traffic.wieght", "weight, priority, header"),
        ("spec.tokenizer.dir", "path, huggingFace, fromWorker, chatTemplate, controlTokens"),
        (
            "spec.workers.sttic",
            "service, selector, static, inferencePoolRef, ports, protocol, grpc, http",
        ),
        ("spec.workers.static.endpoint", "endpoints"),
        ("spec.workers.static.endpoints[1].prot", "host, port, zone, weight, priority"),
        (
            "spec.routing.polcy",
            (
                "policy, loadInterval, warmUp, zonePreference, cacheAware, prefixHash, "
                "consistentHash, sessionSticky"
            ),
        ),
    ],
)
def test_an_unknown_field_is_refused_in_files_and_ignored_from_a_server(
    path: str, known: str
) -> None:
    """A typing mistake is told with the fields that are there; a newer server is put up with."""
    document = changed(path, "x")

    error = refusal(document)

    assert str(error).startswith(f"SGLangBackend 'inference/qwen': {path} is unknown; ")
    assert str(error).endswith(f"fields here are {known}.")
    assert error.path == path
    assert decode_backend(document, lenient=True) == decode_backend(a_document(), lenient=False)


def test_the_likeliest_field_is_suggested() -> None:
    """A slip of two letters is answered with the word that was meant."""
    assert "did you mean name?" in str(refusal(changed("spec.model.nmae", "x")))


def test_what_kubectl_prints_can_be_read_back() -> None:
    """Kubernetes's own metadata and the status are no mistakes, and change nothing."""
    document = changed("status", {"conditions": []})
    document = changed("metadata.labels", {"a": "b"}, document)
    document = changed("metadata.annotations", {"c": "d"}, document)
    document = changed("metadata.resourceVersion", "42", document)
    document = changed("metadata.uid", "5c1e", document)
    document = changed("metadata.generation", 3, document)
    document = changed("metadata.creationTimestamp", "2026-01-01T00:00:00Z", document)
    document = changed("metadata.managedFields", [{"manager": "kubectl"}], document)

    assert decode_backend(document, lenient=False) == decode_backend(a_document(), lenient=False)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("kind", "Service", "kind is 'Service'; expected 'SGLangBackend'."),
        ("kind", GONE, "kind is missing; expected 'SGLangBackend'."),
        ("kind", ["SGLangBackend"], "kind is a list of 1; expected 'SGLangBackend'."),
        ("apiVersion", "v1", "apiVersion is 'v1'; expected 'sglr.dev/v1alpha1'."),
        ("apiVersion", None, "apiVersion is missing; expected 'sglr.dev/v1alpha1'."),
    ],
)
def test_other_kinds_are_told_by_kind_not_by_their_fields(
    path: str, value: object, problem: str
) -> None:
    """Someone else's object is not picked apart field by field."""
    document = changed("spec", {"ports": []}, changed(path, value))

    assert str(refusal(document)) == problem
    assert str(refusal(document, lenient=True)) == problem


@pytest.mark.parametrize("value", [None, [], "text", 7, b"\0"])
def test_what_is_no_mapping_is_no_backend(value: object) -> None:
    """Scalars and lists are told what a document looks like."""
    assert str(refusal(value)) == "expected a mapping with apiVersion, kind, metadata and spec."


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
PLACES = st.sampled_from(
    [
        "metadata",
        "metadata.name",
        "spec",
        "spec.model",
        "spec.model.name",
        "spec.model.aliases",
        "spec.model.aliases[0]",
        "spec.model.adapters",
        "spec.model.adapters[0]",
        "spec.traffic",
        "spec.traffic.header",
        "spec.tokenizer",
        "spec.tokenizer.path",
        "spec.tokenizer.huggingFace",
        "spec.tokenizer.chatTemplate",
        "spec.workers.static.endpoints",
        "spec.workers.static.endpoints[0]",
        HOST,
        PORT,
        "spec.routing",
        "spec.routing.policy",
        "kind",
    ]
)


@settings(deadline=None)  # a loaded machine is no failure
@given(PLACES, JSON)
def test_any_value_anywhere_is_taken_or_refused_with_a_path(path: str, value: object) -> None:
    """No value ends in another exception; a refusal names its place; leniency only forgives."""
    document = changed(path, value)

    outcomes = [outcome(document, lenient=lenient) for lenient in (False, True)]

    strict, lenient = outcomes
    for each in outcomes:
        assert not isinstance(each, ManifestError) or (each.path and each.path in str(each))
    assert isinstance(strict, ManifestError) or lenient == strict
