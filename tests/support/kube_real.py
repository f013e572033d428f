"""A real control plane, operators as processes, and what tests do to both."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).resolve().parents[2]
RBAC = REPO / "deploy" / "rbac"
NODE = "paper"
SYSTEM = "sglr-system"
"""Where the operator lives."""


def eventually(
    claim: Callable[[], bool], *, what: str, within: float = 30.0, every: float = 0.05
) -> float:
    """Return after how many seconds *claim* held; fail with *what* after *within*."""
    began = time.monotonic()
    while not claim():
        if time.monotonic() - began > within:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(every)
    return time.monotonic() - began


@dataclass
class RealCluster:
    """etcd, kube-apiserver and controllers below one directory."""

    root: Path
    binaries: Path
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 10**6)))

    def kubectl(self, *arguments: str, stdin: str | None = None, code: int | None = 0) -> str:
        """Return what kubectl prints, to either stream; its exit code must be *code*."""
        found = subprocess.run(
            [str(self.binaries / "kubectl"), *arguments],
            input=stdin,
            env=os.environ | {"KUBECONFIG": str(self.root / "kubeconfig")},
            cwd=REPO,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        text = found.stdout + found.stderr
        assert code is None or found.returncode == code, text
        return text

    def apply(self, *documents: dict[str, Any]) -> None:
        """Apply *documents* as a user would."""
        listed = {"apiVersion": "v1", "kind": "List", "items": documents}
        self.kubectl("apply", "--validate=false", "-f", "-", stdin=json.dumps(listed))

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any]:
        """Return an object; empty when it does not exist."""
        text = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        found: dict[str, Any] = json.loads(text) if text.strip() else {}
        return found

    def script(self, command: str) -> None:
        """Run a command of the cluster's own script."""
        subprocess.run(
            [
                *(sys.executable, "scripts/kube/cluster.py", command, str(self.root)),
                *("--binaries", str(self.binaries)),
            ],
            cwd=REPO,
            check=True,
            timeout=180,
        )

    def grant_operator(self) -> None:
        """Create the operator's namespace and account, with exactly the rules of deploy/rbac."""
        watch, lease, wide = (
            yaml.safe_load((RBAC / name).read_text())
            for name in ("watch.yaml", "lease.yaml", "cluster.yaml")
        )
        rbac = "rbac.authorization.k8s.io/v1"
        who = [{"kind": "ServiceAccount", "name": "operator", "namespace": SYSTEM}]
        group = "rbac.authorization.k8s.io"
        self.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}},
            # The EndpointSlice controller looks up each pod's node, though no kubelet runs.
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "operator", "namespace": SYSTEM},
            },
            {
                "apiVersion": rbac,
                "kind": "ClusterRole",
                "metadata": {"name": "sglr-operator"},
                "rules": watch + wide,
            },
            {
                "apiVersion": rbac,
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "sglr-operator"},
                "subjects": who,
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "sglr-operator"},
            },
            {
                "apiVersion": rbac,
                "kind": "Role",
                "metadata": {"name": "sglr-operator", "namespace": SYSTEM},
                "rules": lease,
            },
            {
                "apiVersion": rbac,
                "kind": "RoleBinding",
                "metadata": {"name": "sglr-operator", "namespace": SYSTEM},
                "subjects": who,
                "roleRef": {"apiGroup": group, "kind": "Role", "name": "sglr-operator"},
            },
        )

    def grant_namespaced(self, namespace: str, *files: str) -> str:
        """Create an account with the rules of *files* in *namespace* alone, and return its name."""
        rbac, name = "rbac.authorization.k8s.io/v1", f"operator-of-{namespace}"
        who = [{"kind": "ServiceAccount", "name": name, "namespace": SYSTEM}]
        watch, lease = (
            [rule for file in each for rule in yaml.safe_load((RBAC / file).read_text())]
            for each in (files, ("lease.yaml",))
        )
        account = {"name": name, "namespace": SYSTEM}
        self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        for place, rules in ((namespace, watch), (SYSTEM, lease)):
            meta = {"name": name, "namespace": place}
            ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
            self.apply(
                {"apiVersion": rbac, "kind": "Role", "metadata": meta, "rules": rules},
                {
                    "apiVersion": rbac,
                    "kind": "RoleBinding",
                    "metadata": meta,
                    "subjects": who,
                    "roleRef": ref,
                },
            )
        return name

    def token(self, account: str, namespace: str, audience: str = "") -> str:
        """Return a fresh token of a service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if audience:
            spec["audiences"] = [audience]
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        text = self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
        return str(json.loads(text)["status"]["token"])

    def namespace(self) -> str:
        """Create and return a namespace that no other test uses."""
        name = f"test-{next(self.numbers)}"
        self.kubectl("create", "namespace", name)
        return name

    def workers(self, namespace: str, name: str, *ips: str, port: int = 30000) -> None:
        """Create a Service and ready pods at *ips*; the real controller makes slices of them."""
        labels = {"app": name}
        ports = [{"name": "grpc", "port": port}]
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"clusterIP": "None", "selector": labels, "ports": ports},
            }
        )
        for ip in ips:
            self.pod(namespace, f"{name}-{ip.rpartition('.')[2]}", ip, labels)

    def pod(self, namespace: str, name: str, ip: str, labels: dict[str, str]) -> None:
        """Create a pod and report it ready, as a kubelet would."""
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "spec": {
                    "nodeName": NODE,
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "sglang", "image": "none"}],
                },
            }
        )
        self.report(namespace, name, ip, ready=True)

    def report(self, namespace: str, name: str, ip: str, *, ready: bool) -> None:
        """Write a pod's status, as a kubelet would."""
        word = "True" if ready else "False"
        status = {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [
                {"type": "Ready", "status": word},
                {"type": "ContainersReady", "status": word},
            ],
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        body = json.loads(self.kubectl("get", "--raw", path))
        body["status"] = status
        self.kubectl("replace", "--raw", f"{path}/status", "-f", "-", stdin=json.dumps(body))

    @contextmanager
    def operator(
        self, identity: str, port: int, *flags: str, account: str = "operator"
    ) -> Iterator[OperatorProcess]:
        """Run `sglr-operator run` as *account*, serving routers on *port*."""
        sys.path.insert(0, str(REPO / "scripts" / "kube"))
        try:
            from cluster import Cluster  # type: ignore[import-not-found,unused-ignore]  # a script
        finally:
            sys.path.pop(0)
        config = Cluster(self.root, self.binaries).kubeconfig(self.token(account, SYSTEM))
        folder = Path(tempfile.mkdtemp(dir=self.root, prefix=identity))
        (folder / "kubeconfig").write_text(json.dumps(config))
        log = (folder / "log").open("wb")
        with log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "sglr_operator", "run"),
                    *("--kubeconfig", str(folder / "kubeconfig")),
                    *("--push-address", f"127.0.0.1:{port}", "--http-address", "127.0.0.1:0"),
                    *("--lease-namespace", SYSTEM, "--identity", identity, *flags),
                ],
                stdout=log,
                stderr=log,
                cwd=REPO,
            )
        running = OperatorProcess(process, folder / "log")
        try:
            yield running
        finally:
            running.end()


@dataclass
class OperatorProcess:
    """One `sglr-operator run`."""

    process: subprocess.Popen[bytes]
    log: Path

    def logged(self, words: str) -> bool:
        """Return whether *words* are in its log."""
        return words in self.log.read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Ask it to stop, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(25)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait(5)


@contextmanager
def started(root: Path, binaries: Path) -> Iterator[RealCluster]:
    """Start a control plane below *root*, and stop it at the end."""
    cluster = RealCluster(root, binaries)
    try:
        cluster.script("up")
        yield cluster
    finally:
        cluster.script("down")


def condition(body: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a condition of an object's status; empty when there is none."""
    found = body.get("status", {}).get("conditions", [])
    return next((each for each in found if each["type"] == kind), {})
