"""Secrets and ConfigMaps that a spec names: which ways go together, and that files are for files."""

from __future__ import annotations

import pytest

from sglr_proto.backend import ManifestError, decode_backend
from sglr_proto.references import Reference, references_of
from sglr_proto.snapshot import static_snapshot
from support.manifests import a_document, changed

REFERENCES = [
    ("spec.tokenizer.chatTemplate", {"configMapKeyRef": {"name": "t", "key": "chat.jinja"}}),
    ("spec.tls", {"mode": "TLS", "caRef": {"kind": "Secret", "name": "ca"}}),
    ("spec.tls", {"mode": "Mutual", "certificateSecretRef": {"name": "pair"}}),
    ("spec.workerAuth", {"apiKeySecretRef": {"name": "s", "key": "k"}}),
    ("spec.auth", {"keySecretRefs": [{"name": "s"}, {"name": "t", "key": "k"}]}),
]


@pytest.mark.parametrize(("path", "value"), REFERENCES)
def test_each_way_to_name_an_object_is_taken(path: str, value: object) -> None:
    """The same in a file and from an API server."""
    document = changed(path, value)

    assert decode_backend(document, lenient=False) == decode_backend(document, lenient=True)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("spec.tls", {"caRef": {"name": "ca"}}, "caRef is set with mode Disabled"),
        (
            "spec.tls",
            {"mode": "TLS", "caFile": "/ca", "caRef": {"name": "ca"}},
            "caRef is set beside caFile",
        ),
        (
            "spec.tls",
            {"mode": "TLS", "certificateSecretRef": {"name": "pair"}},
            "certificateSecretRef goes with mode Mutual only",
        ),
        (
            "spec.tls",
            {"mode": "Mutual", "certificateSecretRef": {"name": "p"}, "keyFile": "/k"},
            "keyFile is set beside certificateSecretRef",
        ),
        ("spec.tls", {"mode": "Mutual"}, "Mutual needs it or certificateSecretRef"),
        (
            "spec.workerAuth",
            {"apiKeyFile": "/k", "apiKeySecretRef": {"name": "s", "key": "k"}},
            "apiKeySecretRef is set beside apiKeyFile",
        ),
        ("spec.auth", {"keySecretRefs": [{"name": "Not_A_Name"}]}, "matching regex"),
    ],
)
def test_two_ways_at_once_and_half_ways_are_refused(path: str, value: object, problem: str) -> None:
    """The sentence names the field and the other way."""
    with pytest.raises(ManifestError) as failure:
        decode_backend(changed(path, value), lenient=False)

    assert problem in str(failure.value)


@pytest.mark.parametrize(("path", "value"), REFERENCES)
def test_without_an_operator_nobody_reads_objects(path: str, value: object) -> None:
    """In file mode the field is refused with its path, and a file is asked for."""
    backend = decode_backend(changed(path, value), lenient=False)
    with pytest.raises(ManifestError, match="only the operator reads it") as failure:
        static_snapshot([backend], 1)

    assert failure.value.path is not None
    assert failure.value.path.startswith(path)


def test_everything_that_is_named_is_found() -> None:
    """In the order of the fields, with kind and name."""
    document = a_document()
    for path, value in REFERENCES:
        document = changed(path, value, document)
    found = list(references_of(decode_backend(document, lenient=False).spec))

    # Of the two values for TLS the later one stands.
    assert found == [
        Reference("spec.tokenizer.chatTemplate.configMapKeyRef", "ConfigMap", "t"),
        Reference("spec.tls.certificateSecretRef", "Secret", "pair"),
        Reference("spec.workerAuth.apiKeySecretRef", "Secret", "s"),
        Reference("spec.auth.keySecretRefs[0]", "Secret", "s"),
        Reference("spec.auth.keySecretRefs[1]", "Secret", "t"),
    ]
