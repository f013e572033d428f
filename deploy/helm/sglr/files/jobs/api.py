"""The few calls that the chart's jobs make to the API server; the standard library is enough."""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SECONDS = 30
_NOT_FOUND, _CONFLICT = 404, 409


class Api:
    """The API server, as the job's service account."""

    def __init__(self, url: str, token: str, authority: Path | None) -> None:
        """Ask *url*; *authority* is the PEM file that its certificate must chain to."""
        self._url = url
        self._token = token
        self._context = ssl.create_default_context(cafile=authority) if authority else None

    @classmethod
    def in_cluster(cls) -> Api:
        """Return the API server of the cluster this pod runs in."""
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        host = f"[{host}]" if ":" in host else host
        token = (ACCOUNT / "token").read_text().strip()
        return cls(f"https://{host}:{port}", token, ACCOUNT / "ca.crt")

    def get(self, path: str) -> dict[str, Any] | None:
        """Return the object at *path*; None when there is none."""
        try:
            return self._call("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    def put(self, collection: str, wanted: dict[str, Any]) -> str:
        """Create or replace an object; return what was done: created, replaced or unchanged.

        Labels and annotations that others set stay. A write by somebody else in between is no
        failure: the object is read again.
        """
        path = f"{collection}/{wanted['metadata']['name']}"
        for _ in range(5):
            present = self.get(path)
            try:
                if present is None:
                    self._call("POST", collection, wanted)
                    return "created"
                merged = _merged(present, wanted)
                if merged == present:
                    return "unchanged"
                self._call("PUT", path, merged)
            except urllib.error.HTTPError as error:
                if error.code != _CONFLICT:
                    raise SystemExit(f"{path}: {error.code} {error.read().decode()}") from error
            else:
                return "replaced"
        raise SystemExit(f"{path}: somebody else writes it all the time")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310  # the API server's own address
            self._url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_SECONDS, context=self._context) as answer:  # noqa: S310  # same
            read: dict[str, Any] = json.load(answer)
            return read


def _merged(present: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Return *present* with everything that *wanted* says; its status stays."""
    merged = {**present, **wanted}
    if "status" in present:
        merged["status"] = present["status"]
    metadata = dict(present["metadata"])
    for key, value in wanted["metadata"].items():
        both = isinstance(value, dict) and isinstance(metadata.get(key), dict)
        metadata[key] = {**metadata[key], **value} if both else value
    return {**merged, "metadata": metadata}
