"""Values that the operator resolved, as files of one process."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sglr_dataplane.fleet.credentials import credentials_of
from sglr_dataplane.fleet.intake_secrets import SecretFiles
from sglr_proto.resolved import CallerKey, Resolved
from sglr_proto.snapshot import Snapshot
from sglr_proto.spec_refs import CaRef, SecretKeyRef, TlsSecretRef
from sglr_proto.spec_security import Tls, TlsMode, WorkerAuth
from support.fleets import a_backend, a_snapshot

WITH_KEY: dict[str, Any] = {
    "worker_auth": WorkerAuth(api_key_secret_ref=SecretKeyRef(name="s", key="k"))
}
WITH_TLS: dict[str, Any] = {
    "tls": Tls(
        mode=TlsMode.MUTUAL,
        ca_ref=CaRef(name="ca"),
        certificate_secret_ref=TlsSecretRef(name="pair"),
    )
}


def told(resolved: Resolved | None, **sections: Any) -> Snapshot:
    """Return a snapshot of one backend with *resolved* values."""
    snapshot = a_snapshot(backend=a_backend(**sections))
    (only,) = snapshot.backends
    return replace(snapshot, backends=(replace(only, resolved=resolved),))


def test_values_become_files_that_the_owner_alone_reads(tmp_path: Path) -> None:
    """What comes out names files as file mode does, and holds hashes at most."""
    files = SecretFiles(tmp_path / "secrets")
    caller = CallerKey(name="s/a", sha256="0" * 64)
    values = Resolved(ca="CA", certificate="CERT", key="KEY", worker_key="w", callers=(caller,))

    (found,) = files.localised(told(values, **WITH_KEY, **WITH_TLS)).backends
    tls, auth = found.backend.spec.tls, found.backend.spec.worker_auth
    paths = [tls.ca_file, tls.certificate_file, tls.key_file, auth.api_key_file]
    assert [Path(path or "").read_text() for path in paths] == ["CA", "CERT", "KEY", "w"]
    assert {Path(path or "").stat().st_mode & 0o777 for path in paths} == {0o600}
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert (tls.ca_ref, tls.certificate_secret_ref, auth.api_key_secret_ref) == (None, None, None)
    assert found.resolved == Resolved(callers=(caller,))


def test_a_changed_value_is_another_file_and_the_old_one_goes(tmp_path: Path) -> None:
    """Workers get new clients, and nothing lies about that is not in force."""
    files = SecretFiles(tmp_path / "secrets")
    names = []
    for value in ("one", "one", "two"):
        (found,) = files.localised(told(Resolved(worker_key=value), **WITH_KEY)).backends
        names.append(found.backend.spec.worker_auth.api_key_file)

    assert names[0] == names[1] != names[2]
    expected = hashlib.sha256(b"two").hexdigest()
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == [expected]
    files.close()
    assert not (tmp_path / "secrets").exists()


def test_what_is_not_resolved_fails_instead_of_going_on_without(tmp_path: Path) -> None:
    """A list from a ConfigMap holds no secrets: TLS then trusts nobody, and no key is sent."""
    files = SecretFiles(tmp_path / "secrets")
    (found,) = files.localised(told(None, **WITH_KEY, **WITH_TLS)).backends

    credentials = credentials_of(found.backend.spec)
    assert credentials.key is None
    assert credentials.tls is not None
    assert credentials.tls.verify_mode is ssl.CERT_REQUIRED
    assert credentials.tls.get_ca_certs() == []


def test_an_earlier_life_leaves_nothing_behind(tmp_path: Path) -> None:
    """A process that was killed could not clean up; the next one does."""
    folder = tmp_path / "secrets"
    SecretFiles(folder).localised(told(Resolved(worker_key="old"), **WITH_KEY))
    SecretFiles(folder).localised(told(Resolved(worker_key="new"), **WITH_KEY))

    assert [path.read_text() for path in folder.iterdir()] == ["new"]


@pytest.mark.parametrize("resolved", [None, Resolved()])
def test_a_backend_that_names_nothing_needs_no_folder(
    resolved: Resolved | None, tmp_path: Path
) -> None:
    """Most routers never write one."""
    snapshot = told(resolved)

    assert SecretFiles(tmp_path / "secrets").localised(snapshot).backends[0].backend == (
        snapshot.backends[0].backend
    )
    assert not (tmp_path / "secrets").exists()
