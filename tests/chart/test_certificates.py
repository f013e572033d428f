"""The chart's job makes certificates that a TLS handshake accepts, and renews them in time."""

from __future__ import annotations

import base64
import importlib
import json
import ssl
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.charts import CHART, NAMESPACE, one, render
from support.jobs import FakeApi

OPERATOR = f"sglr-operator.{NAMESPACE}.svc"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the job's program, as Python imports it where it is mounted."""
    monkeypatch.syspath_prepend(str(CHART / "files" / "jobs"))
    return importlib.import_module("certificates")


@pytest.fixture
def settings() -> dict[str, Any]:
    """Return the settings that the chart gives the job."""
    config = one(render(), "ConfigMap", "sglr-certificates")
    found: dict[str, Any] = json.loads(config["data"]["settings.json"])
    return found


@pytest.fixture
def api() -> FakeApi:
    """Return an API server that holds the operator's Service."""
    fake = FakeApi()
    path = f"/api/v1/namespaces/{NAMESPACE}/services/sglr-operator"
    fake.objects[path] = {"metadata": {"name": "sglr-operator", "uid": "u-1"}}
    return fake


def renew(job: ModuleType, api: FakeApi, settings: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Run the job once and return all Secrets' values as text."""
    job.Certificates(api, job.Settings(**settings)).renew()
    return {
        path.rsplit("/", 1)[-1]: {
            key: base64.b64decode(value).decode() for key, value in item["data"].items()
        }
        for path, item in api.objects.items()
        if path.startswith(SECRETS)
    }


def handshake(folder: Path, server: dict[str, str], client: dict[str, str], name: str) -> None:
    """Let both sides prove themselves to each other, in memory.

    Raises:
        ssl.SSLError: One does not trust the other.
    """
    sides = []
    for held, purpose in ((server, ssl.PROTOCOL_TLS_SERVER), (client, ssl.PROTOCOL_TLS_CLIENT)):
        for file in ("tls.crt", "tls.key", "ca.crt"):
            (folder / file).write_text(held[file])
        context = ssl.SSLContext(purpose)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        context.load_verify_locations(folder / "ca.crt")
        sides.append(context)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = sides[0].wrap_bio(up, down, server_side=True)
    dialling = sides[1].wrap_bio(down, up, server_hostname=name)
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for side in (dialling, serving):
            if side not in done:
                try:
                    side.do_handshake()
                    done.add(side)
                except ssl.SSLWantReadError:
                    pass
    assert len(done) == 2


def test_operator_and_router_accept_each_other(
    job: ModuleType, api: FakeApi, settings: dict[str, Any], tmp_path: Path
) -> None:
    """A full mutual handshake under the name that routers dial."""
    secrets = renew(job, api, settings)

    handshake(tmp_path, secrets["sglr-operator-push"], secrets["sglr-router-push"], OPERATOR)


def test_another_name_is_not_the_operator_s(
    job: ModuleType, api: FakeApi, settings: dict[str, Any], tmp_path: Path
) -> None:
    """The handshake above can fail: the certificate is for the operator's names alone."""
    secrets = renew(job, api, settings)

    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(tmp_path, secrets["sglr-operator-push"], secrets["sglr-router-push"], "other.svc")


def test_a_router_s_certificate_is_no_server_s(
    job: ModuleType, api: FakeApi, settings: dict[str, Any], tmp_path: Path
) -> None:
    """A router cannot pass itself off as the operator: its certificate is for clients."""
    secrets = renew(job, api, settings)

    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, secrets["sglr-router-push"], secrets["sglr-router-push"], "sglr-router")


def test_a_second_run_changes_nothing(
    job: ModuleType, api: FakeApi, settings: dict[str, Any]
) -> None:
    """An upgrade does not renew what is good: no router must dial again for it."""
    first = renew(job, api, settings)
    api.writes.clear()

    assert renew(job, api, settings) == first
    assert api.writes == []


def test_half_spent_certificates_are_renewed_and_the_authority_stays(
    job: ModuleType, api: FakeApi, settings: dict[str, Any], tmp_path: Path
) -> None:
    """With a life of 90 days, one that has 20 days left is replaced; old and new still meet."""
    old = renew(job, api, settings | {"days": 20})

    new = renew(job, api, settings)

    assert new["sglr-push-ca"] == old["sglr-push-ca"]
    assert new["sglr-operator-push"]["tls.crt"] != old["sglr-operator-push"]["tls.crt"]
    handshake(tmp_path, new["sglr-operator-push"], old["sglr-router-push"], OPERATOR)


def test_a_new_authority_is_trusted_beside_the_old_one(
    job: ModuleType,
    api: FakeApi,
    settings: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever still shows a certificate of the old one is let in until it expires."""
    monkeypatch.setattr(job, "AUTHORITY_DAYS", 100)
    old = renew(job, api, settings)
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(CHART / "files" / "jobs"))

    new = renew(job, api, settings)

    assert new["sglr-push-ca"]["tls.crt"] != old["sglr-push-ca"]["tls.crt"]
    assert new["sglr-operator-push"]["ca.crt"].count("BEGIN CERTIFICATE") == 2
    handshake(tmp_path, new["sglr-operator-push"], new["sglr-router-push"], OPERATOR)
    mixed = old["sglr-router-push"] | {"ca.crt": new["sglr-router-push"]["ca.crt"]}
    handshake(tmp_path, new["sglr-operator-push"], mixed, OPERATOR)


def test_a_changed_name_makes_a_new_certificate(
    job: ModuleType, api: FakeApi, settings: dict[str, Any]
) -> None:
    """A certificate for other names is no use, however long it lasts."""
    old = renew(job, api, settings)

    new = renew(job, api, settings | {"names": ["elsewhere.svc"]})

    assert new["sglr-operator-push"]["tls.crt"] != old["sglr-operator-push"]["tls.crt"]
    assert new["sglr-router-push"] == old["sglr-router-push"]


def test_the_secrets_go_with_the_release(
    job: ModuleType, api: FakeApi, settings: dict[str, Any]
) -> None:
    """They belong to the operator's Service, so that an uninstall leaves none behind."""
    renew(job, api, settings)

    owners = [
        item["metadata"]["ownerReferences"]
        for path, item in api.objects.items()
        if path.startswith(SECRETS)
    ]
    owner = {"apiVersion": "v1", "kind": "Service", "name": "sglr-operator", "uid": "u-1"}
    assert owners == [[owner]] * 3


def test_the_job_may_do_what_it_does_and_nothing_else(
    job: ModuleType, api: FakeApi, settings: dict[str, Any]
) -> None:
    """Each call it makes is granted by its Role, by name where that is possible."""
    renew(job, api, settings)
    renew(job, api, settings | {"names": ["elsewhere.svc"]})
    role = one(render(), "Role", "sglr-certificates")
    verbs = {"GET": "get", "PUT": "update", "POST": "create"}

    def granted(method: str, path: str) -> bool:
        resource, _, name = path.removeprefix(f"/api/v1/namespaces/{NAMESPACE}/").partition("/")
        return any(
            resource in rule["resources"]
            and verbs[method] in rule["verbs"]
            and (method == "POST" or name in rule.get("resourceNames", ()))
            for rule in role["rules"]
        )

    assert {method for method, _ in api.calls} == {"GET", "PUT", "POST"}
    assert all(granted(method, path) for method, path in api.calls)


def test_the_certificate_names_what_the_routers_dial() -> None:
    """The first name is the router's --operator, without its port."""
    objects = render()
    arguments = one(objects, "Deployment", "sglr-router")["spec"]["template"]["spec"]["containers"][
        0
    ]["args"]
    (target,) = (a.removeprefix("--operator=") for a in arguments if a.startswith("--operator="))
    config = one(objects, "ConfigMap", "sglr-certificates")

    assert target == f"{json.loads(config['data']['settings.json'])['names'][0]}:9443"


def test_the_mounted_program_is_the_tested_one() -> None:
    """The ConfigMap holds the files, byte for byte."""
    config = one(render(), "ConfigMap", "sglr-certificates")

    for name in ("api.py", "certificates.py"):
        assert config["data"][name].rstrip() == (CHART / "files/jobs" / name).read_text().rstrip()
