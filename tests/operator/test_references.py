"""What a backend names: read where its owner allows it, told to routers, and nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from sglr_operator.compose import Material, Permits, resolve
from sglr_operator.objects import ConfigMap, ObjectMeta, Secret
from sglr_proto.resolved import CallerKey, Resolved
from support.kube_objects import NAMESPACE, a_backend

ALL = Permits(reads=True, sends_secrets=True)


@dataclass
class Shelf:
    """Secrets and ConfigMaps by name."""

    secrets: dict[str, dict[str, bytes]]
    config_maps: dict[str, dict[str, str]]

    def secret(self, namespace: str, name: str) -> Secret | None:
        """Return a Secret of the one namespace."""
        data = self.secrets.get(name) if namespace == NAMESPACE else None
        return Secret(ObjectMeta(name, namespace), data) if data is not None else None

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """Return a ConfigMap of the one namespace."""
        data = self.config_maps.get(name) if namespace == NAMESPACE else None
        return ConfigMap(ObjectMeta(name, namespace), data) if data is not None else None


SHELF = Shelf(
    {
        "worker": {"key": b"w0rker\n", "bad": b"\xff"},
        "pair": {"tls.crt": b"CERT", "tls.key": b"KEY"},
        "half": {"tls.crt": b"CERT"},
        "callers": {"alice": b"a-key\n", "bob": b"b-key"},
        "blank": {"carol": b" \n"},
    },
    {"ca": {"ca.crt": "CA"}, "templates": {"chat": "{{ messages }}", "long": "x" * 65_537}},
)

TEMPLATE = {
    "tokenizer": {"chatTemplate": {"configMapKeyRef": {"name": "templates", "key": "chat"}}}
}
WORKER = {"workerAuth": {"apiKeySecretRef": {"name": "worker", "key": "key"}}}
MUTUAL = {
    "tls": {
        "mode": "Mutual",
        "caRef": {"name": "ca"},
        "certificateSecretRef": {"name": "pair"},
    }
}
CALLERS = {"auth": {"keySecretRefs": [{"name": "callers"}]}}


def digest(text: str) -> str:
    """Return the hash of a key."""
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, None),
        (WORKER, Resolved(worker_key="w0rker")),
        (MUTUAL, Resolved(ca="CA", certificate="CERT", key="KEY")),
        (
            CALLERS,
            Resolved(
                callers=(
                    CallerKey(name="callers/alice", sha256=digest("a-key")),
                    CallerKey(name="callers/bob", sha256=digest("b-key")),
                )
            ),
        ),
        (
            {"auth": {"keySecretRefs": [{"name": "callers", "key": "bob"}]}},
            Resolved(callers=(CallerKey(name="callers/bob", sha256=digest("b-key")),)),
        ),
    ],
)
def test_what_is_named_is_told(spec: dict[str, Any], expected: Resolved | None) -> None:
    """Keys without their line break, certificates as they are, callers as hashes in one order."""
    found = resolve(a_backend(**spec), SHELF, ALL)

    assert isinstance(found, Material)
    assert found.resolved == expected
    assert found.backend == a_backend(**spec)


def test_a_template_of_a_configmap_stands_in_the_spec() -> None:
    """Routers read it as if it had been written there."""
    found = resolve(a_backend(**TEMPLATE), SHELF, Permits(reads=True, sends_secrets=False))

    assert isinstance(found, Material)
    assert found.backend == a_backend(tokenizer={"chatTemplate": {"inline": "{{ messages }}"}})


def worker(name: str, key: str) -> dict[str, Any]:
    """Return a spec that names a worker's key."""
    return {"workerAuth": {"apiKeySecretRef": {"name": name, "key": key}}}


def template(name: str, key: str) -> dict[str, Any]:
    """Return a spec that names a template."""
    return {"tokenizer": {"chatTemplate": {"configMapKeyRef": {"name": name, "key": key}}}}


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        (worker("gone", "key"), "SecretNotFound", "or lacks the label sglr.dev/for-routers=true"),
        (worker("worker", "nope"), "SecretKeyNotFound", "only ['bad', 'key']"),
        (worker("worker", "bad"), "InvalidReference", "no text"),
        (template("gone", "chat"), "ConfigMapNotFound", "ConfigMap 'gone'"),
        (template("templates", "nope"), "ConfigMapKeyNotFound", "only ['chat', 'long']"),
        (template("templates", "long"), "InvalidReference", "65537 characters"),
        (
            {"tls": {"mode": "Mutual", "certificateSecretRef": {"name": "half"}}},
            "SecretKeyNotFound",
            "'tls.key'",
        ),
        (
            {"tls": {"mode": "TLS", "caRef": {"kind": "Secret", "name": "gone"}}},
            "SecretNotFound",
            "Secret 'gone'",
        ),
        ({"auth": {"keySecretRefs": [{"name": "blank"}]}}, "InvalidReference", "empty key"),
    ],
)
def test_what_is_missing_is_named(spec: dict[str, Any], reason: str, words: str) -> None:
    """The reason and a sentence that a person can act on, with no value in it."""
    found = resolve(a_backend(**spec), SHELF, ALL)

    assert not isinstance(found, Material)
    assert found.reason == reason
    assert words in found.message
    assert "w0rker" not in found.message


@pytest.mark.parametrize("spec", [WORKER, MUTUAL, CALLERS])
def test_no_secret_travels_in_the_open(spec: dict[str, Any]) -> None:
    """Without TLS and authentication on the push port nothing of a Secret is told."""
    found = resolve(a_backend(**spec), SHELF, Permits(reads=True, sends_secrets=False))

    assert not isinstance(found, Material)
    assert found.reason == "RefNotPermitted"
    assert "--push-certificate" in found.message


def test_an_operator_that_may_not_read_says_which_flag_is_missing() -> None:
    """The default install reads no Secret; a backend that needs one says what to do."""
    found = resolve(a_backend(**TEMPLATE), SHELF, Permits(reads=False, sends_secrets=True))

    assert not isinstance(found, Material)
    assert found.reason == "RefNotPermitted"
    assert "--references" in found.message
    assert "watch.references=true" in found.message


def test_no_repr_shows_what_a_secret_holds() -> None:
    """A traceback or a log line with these in it gives nothing away."""
    secret = msgspec.json.decode(b'{"metadata":{"name":"s"},"data":{"k":"aHVzaA=="}}', type=Secret)
    resolved = Resolved(worker_key="hush", key="hush", certificate="hush")

    assert secret.data == {"k": b"hush"}
    assert "hush" not in repr(secret) + repr(resolved) + repr(Material(a_backend(), resolved))
