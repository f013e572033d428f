"""Make and renew the certificates of the push stream: an authority, the operator's and the routers'.

Three Secrets: the authority's (only this job reads it), the operator's and the routers'. Each leaf
is renewed when less than half of its life is left, so a weekly run never comes too late. A new
authority is trusted beside the old one until that one expires. The Secrets belong to the
operator's Service: what an uninstall removes, garbage collection follows.

Usage: certificates.py SETTINGS.json
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api import Api

DAY = 86400
AUTHORITY_DAYS = 3650


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, PEM."""

    certificate: str
    key: str


@dataclass(frozen=True)
class Settings:
    """What the chart asks for."""

    namespace: str
    owner: str
    authority: str
    server: str
    client: str
    names: list[str]
    days: int
    labels: dict[str, str]


class Certificates:
    """The three Secrets of one release."""

    def __init__(self, api: Api, settings: Settings) -> None:
        """Work for *settings* through *api*."""
        self._api = api
        self._settings = settings
        self._secrets = f"/api/v1/namespaces/{settings.namespace}/secrets"

    def renew(self) -> None:
        """Make what is missing, foreign or half spent."""
        authority, trusted = self._authority()
        for secret, names, usage in (
            (self._settings.server, self._settings.names, "serverAuth"),
            (self._settings.client, ["sglr-router"], "clientAuth"),
        ):
            pair = self._read(secret)
            if pair is None or not self._serves(pair, authority, names):
                pair = signed(authority, names, usage, self._settings.days)
            self._write(secret, pair, trusted)

    def _authority(self) -> tuple[Pair, str]:
        """Return the authority to sign with, and the bundle of those to trust."""
        name = self._settings.authority
        old = self._read(name)
        half = AUTHORITY_DAYS // 2 * DAY
        if old is not None and lasts(old.certificate, half):
            present = self._api.get(f"{self._secrets}/{name}") or {}
            return old, decoded(present.get("data", {}).get("ca.crt", "")) or old.certificate
        new = self_signed(name)
        keep = old is not None and lasts(old.certificate, 0)
        trusted = new.certificate + (old.certificate if old is not None and keep else "")
        self._write(name, new, trusted)
        return new, trusted

    def _serves(self, pair: Pair, authority: Pair, names: list[str]) -> bool:
        """Return whether *pair* can stay: ours, for the same names, and not half spent."""
        return (
            lasts(pair.certificate, self._settings.days * DAY // 2)
            and is_signed_by(pair, authority)
            and named(pair.certificate) == {f"DNS:{name}" for name in names}
        )

    def _read(self, name: str) -> Pair | None:
        secret = self._api.get(f"{self._secrets}/{name}")
        held = (secret or {}).get("data") or {}
        if not held.get("tls.crt") or not held.get("tls.key"):
            return None
        return Pair(decoded(held["tls.crt"]), decoded(held["tls.key"]))

    def _write(self, name: str, pair: Pair, trusted: str) -> None:
        settings = self._settings
        path = f"/api/v1/namespaces/{settings.namespace}/services/{settings.owner}"
        owner = self._api.get(path)
        if owner is None:
            raise SystemExit(f"{path} is not there yet")
        held = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": trusted}
        secret: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {
                "name": name,
                "namespace": settings.namespace,
                "labels": settings.labels,
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "Service",
                        "name": settings.owner,
                        "uid": owner["metadata"]["uid"],
                    }
                ],
            },
            "data": {key: base64.b64encode(text.encode()).decode() for key, text in held.items()},
        }
        print(f"{name}: {self._api.put(self._secrets, secret)}")  # noqa: T201  # the job's log


def run(*arguments: str, given: str) -> subprocess.CompletedProcess[str]:
    """Return how ``openssl`` ended."""
    return subprocess.run(  # noqa: S603  # the image's own program, no shell
        ["openssl", *arguments],  # noqa: S607  # found on the image's PATH
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


def openssl(*arguments: str, given: str = "") -> str:
    """Return what ``openssl`` prints."""
    result = run(*arguments, given=given)
    if result.returncode != 0:
        raise SystemExit(f"openssl {arguments[0]}: {result.stderr.strip()}")
    return result.stdout


def lasts(certificate: str, seconds: int) -> bool:
    """Return whether *certificate* is still valid in *seconds*."""
    checked = run("x509", "-noout", "-checkend", str(seconds), given=certificate)
    return checked.returncode == 0


def is_signed_by(pair: Pair, authority: Pair) -> bool:
    """Return whether *authority* signed the certificate of *pair*."""
    with tempfile.NamedTemporaryFile("w", suffix=".crt") as trusted:
        trusted.write(authority.certificate)
        trusted.flush()
        checked = run("verify", "-CAfile", trusted.name, given=pair.certificate)
    return checked.returncode == 0


def named(certificate: str) -> set[str]:
    """Return the names that *certificate* is for, as openssl writes them."""
    text = openssl("x509", "-noout", "-ext", "subjectAltName", given=certificate)
    return {name.strip() for line in text.splitlines()[1:] for name in line.split(",")}


def new_key() -> str:
    """Return a new key on P-256, which every TLS library speaks."""
    return openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


def self_signed(name: str) -> Pair:
    """Return a new authority."""
    key = new_key()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "key")
        path.write_text(key)
        certificate = openssl(
            "req", "-x509", "-new", "-sha256", "-key", str(path), "-days", str(AUTHORITY_DAYS),
            # The time tells a new authority from the old one, which it may stand beside.
            "-subj", f"/CN={name[:40]}-{int(time.time())}",
            "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip
    return Pair(certificate, key)


def signed(authority: Pair, names: list[str], usage: str, days: int) -> Pair:
    """Return a new certificate of *authority* for *names*; *usage* is serverAuth or clientAuth."""
    key = new_key()
    extensions = (
        f"subjectAltName={','.join(f'DNS:{name}' for name in names)}\n"
        f"extendedKeyUsage={usage}\nbasicConstraints=CA:FALSE\n"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in (
            ("key", key), ("ca.crt", authority.certificate), ("ca.key", authority.key),
            ("extensions", extensions),
        ):  # fmt: skip
            (folder / file).write_text(text)
        # A common name has 64 characters at most; nobody reads it, the names above count.
        subject = f"/CN={names[0][:64]}"
        request = openssl("req", "-new", "-key", str(folder / "key"), "-subj", subject)
        certificate = openssl(
            "x509", "-req", "-sha256", "-days", str(days), "-CAcreateserial",
            "-CA", str(folder / "ca.crt"), "-CAkey", str(folder / "ca.key"),
            "-extfile", str(folder / "extensions"), given=request,
        )  # fmt: skip
    return Pair(certificate, key)


def decoded(text: str) -> str:
    """Return a Secret's value as text."""
    return base64.b64decode(text).decode()


def main() -> None:
    """Renew what the settings file names."""
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text()))
    Certificates(Api.in_cluster(), settings).renew()


if __name__ == "__main__":
    main()
