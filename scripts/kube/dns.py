"""Just enough cluster DNS: Services, headless Services and their pods, as A records.

The API server is asked at each query, so nothing is ever stale. Debian packages no DNS server
that knows Kubernetes.

Usage: dns.py KUBECONFIG ADDRESS
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from base64 import b64decode
from pathlib import Path
from typing import Any, Final

ZONE: Final = ("svc", "cluster", "local")
_HEADER, _TYPE_A = 12, 1
_SECONDS = 5


class Names:
    """The names of one cluster."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Look names up as the user of *config*, a kubeconfig."""
        cluster = config["clusters"][0]["cluster"]
        self._server = cluster["server"]
        self._token = config["users"][0]["user"]["token"]
        with tempfile.NamedTemporaryFile(suffix=".crt") as authority:
            authority.write(b64decode(cluster["certificate-authority-data"]))
            authority.flush()
            context = ssl.create_default_context(cafile=authority.name)
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def addresses(self, name: str) -> list[str] | None:
        """Return the IPv4 addresses of *name*; None when there is no such name."""
        parts = name.lower().rstrip(".").split(".")
        if tuple(parts[-3:]) != ZONE or len(parts) not in {5, 6}:
            return None
        service, namespace = parts[-5:-3]
        host = parts[0] if len(parts) == 6 else None  # noqa: PLR2004  # POD.SERVICE.NAMESPACE + zone
        try:
            spec = self._get(namespace, "services", service)["spec"]
            if spec.get("clusterIP") not in {None, "", "None"}:
                return None if host else [spec["clusterIP"]]
            endpoints = self._get(namespace, "endpoints", service)
        except urllib.error.HTTPError:
            return None
        unready = bool(spec.get("publishNotReadyAddresses"))
        found = [
            address["ip"]
            for subset in endpoints.get("subsets") or []
            for address in [
                *(subset.get("addresses") or []),
                *((subset.get("notReadyAddresses") or []) if unready else []),
            ]
            if host in {None, address.get("hostname"), address["ip"].replace(".", "-")}
        ]
        return found if found or not host else None

    def answer(self, query: bytes) -> bytes:
        """Return the DNS answer to *query*."""
        end = query.index(0, _HEADER) + 5
        labels, position = [], _HEADER
        while length := query[position]:
            labels.append(query[position + 1 : position + 1 + length].decode("ascii", "replace"))
            position += 1 + length
        found = self.addresses(".".join(labels))
        wanted = int.from_bytes(query[position + 1 : position + 3], "big")
        ours = (found or []) if wanted == _TYPE_A else []
        records = b"".join(
            b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4" + socket.inet_aton(address) for address in ours
        )
        flags = b"\x85\x80" if found is not None else b"\x85\x83"
        counts = b"\0\1" + len(ours).to_bytes(2, "big") + b"\0\0\0\0"
        return query[:2] + flags + counts + query[_HEADER:end] + records

    def _get(self, namespace: str, kind: str, name: str) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310  # the API server's own address
            f"{self._server}/api/v1/namespaces/{namespace}/{kind}/{name}",
            headers={"Authorization": f"Bearer {self._token}"},
        )
        with self._opener.open(request, timeout=_SECONDS) as answer:
            read: dict[str, Any] = json.load(answer)
            return read


def main() -> None:
    """Answer for ever."""
    names = Names(json.loads(Path(sys.argv[1]).read_text()))
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind((sys.argv[2], 53))

    def reply(query: bytes, peer: tuple[str, int]) -> None:
        try:
            listener.sendto(names.answer(query), peer)
        except (OSError, ValueError, IndexError) as error:
            print(f"dns: {error}", flush=True)  # the process's log

    while True:
        query, peer = listener.recvfrom(1500)
        threading.Thread(target=reply, args=(query, peer), daemon=True).start()


if __name__ == "__main__":
    main()
