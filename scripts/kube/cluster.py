#!/usr/bin/env python3
"""A throw-away Kubernetes control plane for tests: etcd, kube-apiserver and controllers.

    scripts/kube/cluster.py up DIR               start; DIR/kubeconfig is the administrator's
    scripts/kube/cluster.py restart-apiserver DIR
    scripts/kube/cluster.py compact DIR          let etcd forget every version but the newest
    scripts/kube/cluster.py down DIR             stop everything that `up` started

The binaries come from scripts/kube/build.sh; a server of custom resources that scripts/kube/crdserver.sh
built beside them is put behind the API server. There is no node: pods exist and have the status that
tests give them, and the real EndpointSlice controller makes slices of them. Everything listens on
127.0.0.1, on ports that were free; logs, keys and data are below DIR.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ports import reserved_port  # found through the line above

from kube import crd_server  # same

CONTROLLERS = (
    "endpoint,endpointslice,garbagecollector,namespace,serviceaccount,serviceaccount-token,"
    "root-ca-cert-publisher"
)
"""Those that a cluster without nodes can run; the node controllers would evict every pod."""

USERS = {
    "admin": "system:masters",
    "system:kube-controller-manager": "",
}
"""With their groups."""


@dataclass(frozen=True)
class Ports:
    """Where the processes listen."""

    etcd: int
    etcd_peer: int
    api: int
    controllers: int
    crd: int


class Cluster:
    """The processes, files and ports below one directory."""

    host = "127.0.0.1"
    """Where the API server listens."""
    prefix: tuple[str, ...] = ()
    """What every process is started through."""
    users = USERS
    programs: tuple[str, ...] = (
        "kube-controller-manager", crd_server.NAME, "kube-apiserver", "etcd",
    )  # fmt: skip
    """In the order in which they are stopped."""

    def __init__(self, root: Path, binaries: Path) -> None:
        """Look at *root*; nothing is started."""
        self.root = root.resolve()
        self.binaries = binaries
        self.keys = self.root / "keys"

    @property
    def ports(self) -> Ports:
        """The ports that `up` chose."""
        return Ports(**json.loads((self.root / "ports.json").read_text()))

    def up(self) -> None:
        """Start everything and wait until it works."""
        for folder in (self.keys, self.root / "logs", self.root / "pids"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.root / "ports.json").write_text(
            json.dumps(vars(Ports(*(reserved_port() for _ in range(5)))))
        )
        self._make_keys()
        self._make_tokens()
        for user in self.users:
            self._kubeconfig(user)
        self._start("etcd", self._etcd())
        self._start("kube-apiserver", self._apiserver())
        self.wait("kube-apiserver", lambda: self.get("/readyz") == "ok")
        if self.has_crd_server:
            self._start(crd_server.NAME, crd_server.command(self, self.crd_program))
            crd_server.attach(self)
        self._start("kube-controller-manager", self._controllers())
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        self.wait("kube-controller-manager", lambda: bool(self.get(path)))

    @property
    def crd_program(self) -> Path:
        """Where scripts/kube/crdserver.sh puts what it builds."""
        return self.binaries.parent / "crd" / crd_server.NAME

    @property
    def has_crd_server(self) -> bool:
        """Whether custom resources are served by a current server."""
        return self.host == "127.0.0.1" and self.crd_program.exists()

    def down(self) -> None:
        """Stop everything, controllers first."""
        for name in self.programs:
            self._stop(name)

    def restart_apiserver(self) -> None:
        """Stop the API server and start it again on the same port."""
        self._stop("kube-apiserver")
        self._start("kube-apiserver", self._apiserver())
        self.wait("kube-apiserver", lambda: self.get("/readyz") == "ok")

    def compact(self) -> None:
        """Let etcd forget history: watches from older versions are answered with 410."""
        url = f"http://127.0.0.1:{self.ports.etcd}/v3/kv"
        status = json.loads(_post(f"{url}/range", {"key": base64.b64encode(b"x").decode()}))
        _post(f"{url}/compaction", {"revision": status["header"]["revision"], "physical": True})

    def get(self, path: str) -> str:
        """Return the body of a GET as administrator."""
        return self._ask(path, None, "GET", "")

    def ask(self, path: str, body: dict[str, Any]) -> str:
        """Return the answer to a POST of *body* as administrator."""
        return self._ask(path, body, "POST", "application/json")

    def patch(self, path: str, body: dict[str, Any]) -> str:
        """Return the answer to a merge patch as administrator."""
        return self._ask(path, body, "PATCH", "application/merge-patch+json")

    def _ask(self, path: str, body: dict[str, Any] | None, method: str, content: str) -> str:
        headers = {"Authorization": f"Bearer {self._token('admin')}"}
        request = urllib.request.Request(  # our own https URL
            f"https://{self.host}:{self.ports.api}{path}",
            data=json.dumps(body).encode() if body is not None else None,
            headers=headers | ({"Content-Type": content} if content else {}),
            method=method,
        )
        context = ssl.create_default_context(cafile=str(self.keys / "ca.crt"))
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        with urllib.request.build_opener(*handlers).open(request, timeout=5) as answer:
            return str(answer.read().decode())

    # Commands.

    def _etcd(self) -> list[str]:
        ports = self.ports
        client, peer = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.etcd_peer}"
        return [
            "etcd",
            "--name=test",
            f"--data-dir={self.root}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=test={peer}",
            "--log-level=warn",
        ]

    def _apiserver(self) -> list[str]:
        keys = self.keys
        return [
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.ports.etcd}",
            f"--bind-address={self.host}",
            f"--secure-port={self.ports.api}",
            f"--cert-dir={keys}",
            f"--tls-cert-file={keys}/server.crt",
            f"--tls-private-key-file={keys}/server.key",
            f"--client-ca-file={keys}/ca.crt",
            f"--token-auth-file={keys}/tokens.csv",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={keys}/accounts.pub",
            f"--service-account-signing-key-file={keys}/accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/24",
            # How it proves itself to a server that answers for a group.
            f"--requestheader-client-ca-file={keys}/ca.crt",
            "--requestheader-allowed-names=aggregator",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={keys}/aggregator.crt",
            f"--proxy-client-key-file={keys}/aggregator.key",
            # No kubelet registers, and nothing may publish this address as a Service.
            "--endpoint-reconciler-type=none",
        ]

    def _controllers(self) -> list[str]:
        config = self.root / "system:kube-controller-manager.kubeconfig"
        return [
            "kube-controller-manager",
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            f"--controllers={CONTROLLERS}",
            f"--service-account-private-key-file={self.keys}/accounts.key",
            f"--root-ca-file={self.keys}/ca.crt",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.ports.controllers}",
            f"--cert-dir={self.keys}/controllers",
            "--port=0",
        ]

    # Processes.

    def _start(self, name: str, command: list[str]) -> None:
        log = (self.root / "logs" / f"{name}.log").open("ab")
        with log:
            process = subprocess.Popen(
                [*self.prefix, str(self.binaries / command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.root,
            )
        (self.root / "pids" / name).write_text(str(process.pid))

    def _stop(self, name: str) -> None:
        """End the process that was started as *name*, if it is still the same one."""
        path = self.root / "pids" / name
        if not path.exists():
            return
        pid = int(path.read_text())
        path.unlink()
        if not _is_ours(pid, name):
            return
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while _is_ours(pid, name):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                deadline = time.monotonic() + 10
            time.sleep(0.05)

    def wait(self, name: str, claim: Callable[[], bool]) -> None:
        """Return as soon as *claim* holds; end everything when the program *name* does not answer."""
        deadline = time.monotonic() + 120
        while True:
            try:
                if claim():
                    return
            except (urllib.error.URLError, OSError):
                pass
            if time.monotonic() > deadline or not (self.root / "pids" / name).exists():
                sys.exit(f"{name} does not answer; see {self.root / 'logs'}")
            time.sleep(0.1)

    # Files.

    def _make_keys(self) -> None:
        keys = self.keys
        elliptic = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        names = (
            "DNS:localhost,DNS:kubernetes.default.svc,DNS:crd-server.kube-system.svc,"
            f"IP:127.0.0.1,IP:{self.host},IP:10.96.0.1"
        )
        (keys / "server.ext").write_text(f"subjectAltName={names}\n")
        _openssl(
            *("req", "-x509", *elliptic, "-days", "30", "-subj", "/CN=test-ca"),
            *("-keyout", f"{keys}/ca.key", "-out", f"{keys}/ca.crt"),
        )
        for name, subject in (("server", "kube-apiserver"), ("aggregator", "aggregator")):
            _openssl(
                *("req", "-new", *elliptic, "-subj", f"/CN={subject}"),
                *("-keyout", f"{keys}/{name}.key", "-out", f"{keys}/{name}.csr"),
            )
            _openssl(
                *("x509", "-req", "-in", f"{keys}/{name}.csr", "-days", "30"),
                *("-CA", f"{keys}/ca.crt", "-CAkey", f"{keys}/ca.key", "-CAcreateserial"),
                *("-extfile", f"{keys}/server.ext", "-out", f"{keys}/{name}.crt"),
            )
        _openssl("genrsa", "-out", f"{keys}/accounts.key", "2048")
        _openssl("rsa", "-in", f"{keys}/accounts.key", "-pubout", "-out", f"{keys}/accounts.pub")

    def _make_tokens(self) -> None:
        lines = [
            f'{secrets.token_hex(16)},{user},{user},"{groups}"'
            for user, groups in self.users.items()
        ]
        path = self.keys / "tokens.csv"
        path.touch(mode=0o600)
        path.write_text("\n".join(lines) + "\n")

    def _token(self, user: str) -> str:
        for line in (self.keys / "tokens.csv").read_text().splitlines():
            token, name, *_ = line.split(",")
            if name == user:
                return token
        raise KeyError(user)

    def _kubeconfig(self, user: str) -> None:
        name = "kubeconfig" if user == "admin" else f"{user}.kubeconfig"
        path = self.root / name
        path.touch(mode=0o600)
        path.write_text(json.dumps(self.kubeconfig(self._token(user))))

    def kubeconfig(self, token: str) -> dict[str, Any]:
        """Return a kubeconfig for the bearer of *token*."""
        ca = base64.b64encode((self.keys / "ca.crt").read_bytes()).decode()
        server = f"https://{self.host}:{self.ports.api}"
        cluster = {"server": server, "certificate-authority-data": ca}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }


def _is_ours(pid: int, name: str) -> bool:
    """Return whether *pid* still runs the program *name*; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return False
    return state != "Z" and command.endswith(name)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def _post(url: str, body: dict[str, Any]) -> str:
    request = urllib.request.Request(url, json.dumps(body).encode())  # noqa: S310  # loopback
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as answer:
        return str(answer.read().decode())


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("command", choices=["up", "down", "restart-apiserver", "compact"])
    parser.add_argument("directory", type=Path)
    default = Path(os.environ.get("SGLR_KUBE_CACHE", "~/.cache/sglr-kube")).expanduser() / "bin"
    parser.add_argument("--binaries", type=Path, default=default)
    arguments = parser.parse_args()
    cluster = Cluster(arguments.directory, arguments.binaries)
    {
        "up": cluster.up,
        "down": cluster.down,
        "restart-apiserver": cluster.restart_apiserver,
        "compact": cluster.compact,
    }[arguments.command]()


if __name__ == "__main__":
    main()
