"""A throw-away Kubernetes that runs pods on this machine: a control plane and a node.

    scripts/kube/node.py up DIR              start; DIR/kubeconfig is the administrator's
    scripts/kube/node.py load DIR FILE.tar   give the node an image
    scripts/kube/node.py enter DIR COMMAND   run a command as if on the node
    scripts/kube/node.py down DIR            stop everything that `up` started

Root is needed. Everything runs in a network namespace of its own, joined to this machine by a
veth pair: pods and Services can be reached from here, the machine's own firewall and forwarding
stay as they are, and nothing inside can reach any other network. One such cluster at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from build_image_oci import ImageConfig, write_archive  # found through the line above
from kube.cluster import USERS, Cluster  # same

SERVICES: Final = "10.96.0.0/24"
PODS: Final = "10.244.0.0/24"
NODE: Final = "node1"
PAUSE: Final = "localhost/sglr-e2e/pause:1"
KUBELET_PORT: Final = 10250
RUNTIME_NAMESPACE: Final = "k8s.io"


class NodeCluster(Cluster):
    """A control plane and one node, in one network namespace."""

    users = USERS | {
        "system:kube-scheduler": "",
        "system:kube-proxy": "",
        f"system:node:{NODE}": "system:nodes",
    }
    programs = (
        "kubelet", "kube-proxy", Path(sys.executable).name, "kube-scheduler", "containerd",
        *Cluster.programs,
    )  # fmt: skip

    def __init__(self, root: Path, binaries: Path) -> None:
        """Look at *root*; nothing is started."""
        super().__init__(root, binaries)
        digest = hashlib.sha256(str(self.root).encode()).digest()
        self.namespace = f"sglr-{digest.hex()[:6]}"
        self.link = f"10.{200 + digest[0] % 50}.{digest[1]}"
        self.host = f"{self.link}.2"
        # Not `ip netns exec`, which mounts /sys anew and hides the cgroups from the kubelet.
        self.prefix = ("nsenter", f"--net=/run/netns/{self.namespace}")
        # Short, because a unix socket's path has 107 bytes at most.
        self.run = Path("/run") / self.namespace

    def up(self) -> None:
        """Start everything and wait until the node is ready."""
        # Programs find iptables and the like beside themselves.
        os.environ["PATH"] = f"{self.binaries}:{os.environ['PATH']}"
        self._join_networks()
        super().up()
        config = self._config_of("system:kube-scheduler")
        self._start("kube-scheduler", ["kube-scheduler", f"--kubeconfig={config}",
                                       "--leader-elect=false", "--port=0"])  # fmt: skip
        self._start_runtime()
        self._start_kubelet()
        self._start_proxy()
        resolver = str(Path(__file__).with_name("dns.py"))
        command = [sys.executable, resolver, str(self._config_of("admin")), self.host]
        self._start(Path(sys.executable).name, command)
        self.wait("kubelet", self._is_ready)

    def down(self) -> None:
        """Stop everything, the node's containers included."""
        self._stop("kubelet")
        if (self.root / "pids" / "containerd").exists():
            self._end_containers()
        super().down()
        self._end_leftovers()
        self._part_networks()
        self._unmount()
        shutil.rmtree(self.run, ignore_errors=True)
        for top in self._cgroups():
            for folder, _, _ in os.walk(top, topdown=False):
                Path(folder).rmdir()
        for path in self.root.iterdir():
            if path.name != "logs":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def load(self, archive: Path) -> None:
        """Give the node the image in *archive*."""
        self._ctr("images", "import", str(archive))

    def enter(self, command: list[str]) -> NoReturn:
        """Become *command*, in the node's network and with the programs that a node has."""
        environment = os.environ | {
            "PATH": f"{os.environ['PATH']}:{self.binaries}",
            "CONTAINERD_ADDRESS": f"{self.run}/containerd.sock",
        }
        os.execvpe(self.prefix[0], [*self.prefix, *command], environment)  # noqa: S606  # as typed

    # The control plane, with what a node needs of it.

    def _apiserver(self) -> list[str]:
        keys = self.keys
        return [
            *_without(super()._apiserver(), "--authorization-mode", "--endpoint-reconciler-type"),
            "--authorization-mode=Node,RBAC",
            "--endpoint-reconciler-type=master-count",
            f"--advertise-address={self.host}",
            "--allow-privileged=true",
            f"--kubelet-client-certificate={keys}/server.crt",
            f"--kubelet-client-key={keys}/server.key",
            f"--kubelet-certificate-authority={keys}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _controllers(self) -> list[str]:
        return [
            *_without(super()._controllers(), "--controllers"),
            f"--cluster-cidr={PODS}",
            "--allocate-node-cidrs=false",
        ]

    def _config_of(self, user: str) -> Path:
        return self.root / ("kubeconfig" if user == "admin" else f"{user}.kubeconfig")

    # The node.

    def _start_runtime(self) -> None:
        networks = self.root / "cni"
        networks.mkdir()
        bridge = {
            "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local", "ranges": [[{"subnet": PODS}]],
                "dataDir": str(self.root / "addresses"), "routes": [{"dst": "0.0.0.0/0"}],
            },
        }  # fmt: skip
        chain = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
        (networks / "10-pods.conflist").write_text(json.dumps(chain))
        self.run.mkdir(exist_ok=True)
        settings = f"""\
version = 2
root = "{self.root}/containerd"
state = "{self.run}/containerd"
[grpc]
  address = "{self.run}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{self.binaries}/cni"
  conf_dir = "{networks}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""
        (self.root / "containerd.toml").write_text(settings)
        self._start("containerd", ["containerd", f"--config={self.root}/containerd.toml"])
        self.wait("containerd", lambda: bool(self._ctr("version")))
        self._load_pause()

    def _load_pause(self) -> None:
        """Give the node the image whose one process holds a pod's namespaces."""
        with tempfile.TemporaryDirectory() as name:
            root = Path(name, "root")
            root.mkdir()
            shutil.copy(self.binaries / "pause", root / "pause")
            archive = Path(name, "pause.tar")
            write_archive(archive, PAUSE, root, ImageConfig(command=("/pause",)))
            self.load(archive)

    def _start_kubelet(self) -> None:
        settings: dict[str, Any] = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": self.host, "port": KUBELET_PORT, "healthzPort": 0, "readOnlyPort": 0,
            "tlsCertFile": f"{self.keys}/server.crt", "tlsPrivateKeyFile": f"{self.keys}/server.key",
            "authentication": {
                "anonymous": {"enabled": False}, "webhook": {"enabled": False},
                "x509": {"clientCAFile": f"{self.keys}/ca.crt"},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs", "cgroupRoot": self._make_cgroups(),
            "enforceNodeAllocatable": [], "failSwapOn": False,
            "clusterDNS": [self.host], "clusterDomain": "cluster.local", "resolvConf": "",
            "oomScoreAdj": 0, "maxOpenFiles": 20000, "syncFrequency": "10s",
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%",
                             "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
        }  # fmt: skip
        (self.root / "kubelet.json").write_text(json.dumps(settings))
        self._start(
            "kubelet",
            ["kubelet", f"--config={self.root}/kubelet.json",
             f"--kubeconfig={self._config_of(f'system:node:{NODE}')}",
             f"--root-dir={self.root}/kubelet", f"--hostname-override={NODE}",
             f"--node-ip={self.host}", f"--cert-dir={self.keys}/kubelet",
             "--container-runtime=remote",
             f"--container-runtime-endpoint=unix://{self.run}/containerd.sock"],
        )  # fmt: skip

    def _start_proxy(self) -> None:
        settings = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
            "mode": "iptables", "clusterCIDR": PODS, "hostnameOverride": NODE, "oomScoreAdj": 0,
            "clientConnection": {"kubeconfig": str(self._config_of("system:kube-proxy"))},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s",
                          "tcpCloseWaitTimeout": "0s"},
        }  # fmt: skip
        (self.root / "proxy.json").write_text(json.dumps(settings))
        self._start("kube-proxy", ["kube-proxy", f"--config={self.root}/proxy.json"])

    def _is_ready(self) -> bool:
        node = json.loads(self.get(f"/api/v1/nodes/{NODE}"))
        return any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in node["status"].get("conditions", ())
        )

    def _ctr(self, *arguments: str) -> str:
        command = [str(self.binaries / "ctr"), "-a", f"{self.run}/containerd.sock",
                   "-n", RUNTIME_NAMESPACE, *arguments]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            raise OSError(done.stderr)
        return done.stdout

    def _end_containers(self) -> None:
        """Kill every container; their shims end with them. Then drop the pods' networks."""
        for name in self._ctr("tasks", "list", "-q").split():
            for command in (("kill", "--signal", "SIGKILL", "--all"), ("rm", "--force")):
                try:
                    self._ctr("tasks", *command, name)
                except OSError as error:
                    # It may have ended by itself in between.
                    if "not found" not in str(error):
                        print(f"{name}: {error}")
        for name in self._pod_networks():
            _run("ip", "netns", "del", name)

    def _end_leftovers(self) -> None:
        """Kill what containerd lost sight of: shims that serve its socket, and their containers."""
        doomed = {
            int(pid)
            for top in self._cgroups()
            for path in top.rglob("cgroup.procs")
            for pid in path.read_text().split()
        }
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "containerd-shim" in words[0] and f"{self.run}/containerd.sock" in words:
                doomed.add(int(path.parent.name))
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while any(map(_lives, doomed)) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _pod_networks(self) -> list[str]:
        """Return the network namespaces that were made for this cluster's pods."""
        found = set()
        for name in self._ctr("containers", "list", "-q").split():
            spec = json.loads(self._ctr("containers", "info", "--spec", name))
            for each in spec["linux"]["namespaces"]:
                path = Path(each.get("path", ""))
                if each["type"] == "network" and path.name.startswith("cni-") and path.exists():
                    found.add(path.name)
        return sorted(found)

    # Network namespace, cgroups, mounts.

    def _join_networks(self) -> None:
        """Make the namespace; it gets no default route, so it reaches nothing but this machine."""
        self._part_networks()
        outside = f"v{self.namespace[5:]}"
        inside = ("ip", "-n", self.namespace)
        _run("ip", "netns", "add", self.namespace)
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0",
             "netns", self.namespace)  # fmt: skip
        _run("ip", "addr", "add", f"{self.link}.1/24", "dev", outside)
        _run("ip", "link", "set", outside, "up")
        _run(*inside, "link", "set", "lo", "up")
        _run(*inside, "addr", "add", f"{self.host}/24", "dev", "eth0")
        _run(*inside, "link", "set", "eth0", "up")
        for network in (SERVICES, PODS):
            _run("ip", "route", "replace", network, "via", self.host, "dev", outside)
        _run("ip", "netns", "exec", self.namespace, "sh", "-c",
             "echo 1 >/proc/sys/net/ipv4/ip_forward")  # fmt: skip

    def _part_networks(self) -> None:
        for command in (
            ("link", "del", f"v{self.namespace[5:]}"),
            ("netns", "del", self.namespace),
        ):
            subprocess.run(["ip", *command], capture_output=True, check=False)

    def _cgroups(self) -> list[Path]:
        """Return this cluster's folder in each cgroup v1 hierarchy; none under v2."""
        tops = [p for p in Path("/sys/fs/cgroup").iterdir() if (p / "tasks").exists()]
        return [top / self.namespace for top in tops if (top / self.namespace).exists()]

    def _make_cgroups(self) -> str:
        tops = [p for p in Path("/sys/fs/cgroup").iterdir() if (p / "tasks").exists()]
        for top in tops:
            (top / self.namespace).mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (top / name).exists():
                    (top / self.namespace / name).write_text((top / name).read_text())
        return f"/{self.namespace}" if tops else "/"

    def _unmount(self) -> None:
        """Unmount what kubelet and containerd left mounted."""
        ours = (f"{self.root}/", f"{self.run}/")
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for mount in sorted(filter(lambda each: each.startswith(ours), mounts), reverse=True):
            _run("umount", "--lazy", mount)


def _lives(pid: int) -> bool:
    """Return whether a process has not ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _without(command: list[str], *flags: str) -> list[str]:
    """Return *command* without *flags*; those that take lists would add up, not give way."""
    return [each for each in command if not each.startswith(tuple(f"{f}=" for f in flags))]


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("command", choices=["up", "load", "enter", "down"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    default = Path(os.environ.get("SGLR_KUBE_CACHE") or "~/.cache/sglr-kube").expanduser() / "bin"
    parser.add_argument("--binaries", type=Path, default=default)
    arguments = parser.parse_args()
    cluster = NodeCluster(arguments.directory, arguments.binaries)
    if arguments.command == "load":
        for archive in arguments.arguments:
            cluster.load(Path(archive))
    elif arguments.command == "enter":
        cluster.enter(arguments.arguments)
    else:
        {"up": cluster.up, "down": cluster.down}[arguments.command]()


if __name__ == "__main__":
    main()
