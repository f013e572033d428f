"""What a person would type: kubectl, helm, and a client of the OpenAI API."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import openai

ROOT: Final = Path(__file__).resolve().parent.parent
CHART: Final = ROOT / "deploy" / "helm" / "sglr"
APPLY: Final = (
    "kubectl",
    "apply",
    *os.environ.get("SGLR_E2E_APPLY_FLAGS", "--server-side").split(),
)
"""How definitions are applied; a very old API server must not be asked to do it by itself."""
CRD: Final = "crd/sglangbackends.sglr.dev"
SMALL: Final = {"router__service__type": "NodePort", "router__resources__requests__cpu": "50m"}
"""Reachable from outside, and of a size of which a test machine holds several."""
Json = dict[str, Any]


class StepFailedError(AssertionError):
    """A command failed, or something did not become true in time."""


def run(*command: str, given: str | None = None, seconds: float = 180) -> str:
    """Return what *command* prints.

    Raises:
        StepFailedError: It failed; both its outputs are in the message.
    """
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, timeout=seconds
    )
    if done.returncode != 0:
        raise StepFailedError(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def surroundings() -> str:
    """Return what kubectl tells of every release, with the last words of its pods."""
    asked = [
        "get pods,sglb,endpointslices,lease -A -o wide",
        "get sglb -A -o yaml",
    ]
    pods = subprocess.run(
        ["kubectl", "get", "pods", "-A", "-l", "app.kubernetes.io/part-of=sglr", "--no-headers"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    ).stdout
    for line in pods.splitlines():
        namespace, pod, *_ = line.split()
        asked.append(f"-n {namespace} logs {pod} --all-containers --tail=5000")
    said = []
    for question in asked:
        done = subprocess.run(
            ["kubectl", *question.split()], capture_output=True, text=True, check=False, timeout=60
        )
        # Lines of requests say nothing that the load has not said, and there are hundreds.
        lines = [line for line in done.stdout.splitlines() if '"sglr_dataplane.access"' not in line]
        said.append("\n".join([f"== kubectl {question}", *lines, done.stderr]))
    return "\n".join(said)


def eventually(claim: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until *claim* is true; a failed assertion or answer in it counts as not yet.

    Raises:
        StepFailedError: It is not, after *seconds*.
    """
    deadline = time.monotonic() + seconds
    while True:
        problem = ""
        try:
            if claim():
                return
        except (AssertionError, openai.APIError) as error:
            problem = str(error)
        if time.monotonic() > deadline:
            raise StepFailedError(f"not within {seconds} s: {what}\n{problem}")
        time.sleep(0.3)


def apply_definition(*what: str) -> None:
    """Apply what holds the definition, and wait until the API server serves it."""
    run(*APPLY, *what)
    run("kubectl", "wait", "--for=condition=Established", CRD, "--timeout=60s")


@dataclass(frozen=True)
class Namespace:
    """One namespace of the cluster, by kubectl."""

    name: str

    def kubectl(self, *arguments: str, given: str | None = None, seconds: float = 180) -> str:
        """Return what kubectl prints about this namespace."""
        return run("kubectl", "-n", self.name, *arguments, given=given, seconds=seconds)

    def get(self, kind: str, name: str) -> Json:
        """Return one object."""
        found: Json = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def all(self, kind: str, selector: str = "") -> list[Json]:
        """Return all objects of a kind; none when the kind is unknown."""
        text = self.kubectl("get", kind, "-o", "json", *(["-l", selector] if selector else []))
        found: list[Json] = json.loads(text)["items"]
        return found

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply *objects*."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "-f", "-", given=text)

    def replace(self, thing: Mapping[str, Any]) -> None:
        """Put *thing* in the place of the object of its name, fields that it lacks included."""
        self.kubectl("replace", "-f", "-", given=json.dumps(thing))

    def restarts(self, pod: str) -> int:
        """Return how often the first container of a pod was started again."""
        found: int = self.get("pod", pod)["status"]["containerStatuses"][0]["restartCount"]
        return found

    def condition(self, backend: str, kind: str) -> tuple[str, str, str]:
        """Return status, reason and message of a backend's condition."""
        conditions = self.get("sglb", backend).get("status", {}).get("conditions", [])
        for each in conditions:
            if each["type"] == kind:
                return each["status"], each["reason"], each.get("message", "")
        return "", "", ""

    def ready(self, backend: str) -> int:
        """Return how many endpoints of a backend are ready, as its status says."""
        endpoints: Json = self.get("sglb", backend).get("status", {}).get("endpoints", {})
        return int(endpoints.get("ready", 0))

    def pods(self, component: str) -> list[str]:
        """Return the names of the pods of one part of a release that are not leaving."""
        return [
            pod["metadata"]["name"]
            for pod in self.all("pods", f"app.kubernetes.io/component={component}")
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def scale(self, deployment: str, replicas: int) -> None:
        """Say how many pods a Deployment shall have."""
        self.kubectl("scale", f"deployment/{deployment}", f"--replicas={replicas}")

    def rolled_out(self, deployment: str, seconds: float = 180) -> None:
        """Wait until a Deployment runs what it shall."""
        self.kubectl(
            "rollout", "status", f"deployment/{deployment}", f"--timeout={seconds:.0f}s",
            seconds=seconds + 10,
        )  # fmt: skip

    def restart(self, deployment: str) -> None:
        """Replace all pods of a Deployment, and wait for it."""
        self.kubectl("rollout", "restart", f"deployment/{deployment}")
        self.rolled_out(deployment)


@dataclass(frozen=True)
class Release:
    """One release of the chart."""

    name: str
    namespace: Namespace

    @property
    def router(self) -> str:
        """The name of the router's Deployment and Service."""
        return f"{self.name}-router"

    @property
    def operator(self) -> str:
        """The name of the operator's Deployment and Service."""
        return f"{self.name}-operator"

    @property
    def demo(self) -> str:
        """The name of the demo's Deployment, Service and backend."""
        return f"{self.name}-demo"

    def upgrade(self, *flags: str, chart: Path = CHART) -> None:
        """Install or upgrade, with more flags of helm."""
        where = ["--namespace", self.namespace.name, "--create-namespace"]
        # Helm's own server-side apply refuses what a very old API server does not know.
        run(
            "helm", "upgrade", "--install", self.name, str(chart), *where, *flags,
            *os.environ.get("SGLR_E2E_HELM_FLAGS", "").split(),
        )  # fmt: skip

    def uninstall(self) -> None:
        """Uninstall, and wait until no object of the release is left, there or cluster-wide."""
        run("helm", "uninstall", self.name, "--namespace", self.namespace.name)
        # The garbage collector looks for new kinds every 30 s.
        eventually(self._is_gone, 90, "everything is gone")
        wide = run("kubectl", "get", "clusterroles,clusterrolebindings", "-o", "name")
        assert f"{self.namespace.name}-{self.name}" not in wide

    def _is_gone(self) -> bool:
        kinds = (
            "pods,services,deployments,replicasets,jobs,cronjobs,secrets,configmaps,serviceaccounts,"
            "roles,rolebindings,poddisruptionbudgets,sglb,endpoints"
        )
        left = self.namespace.all(kinds, f"app.kubernetes.io/instance={self.name}")
        assert not left, [f"{o['kind']}/{o['metadata']['name']}" for o in left]
        return True

    def rolled_out(self) -> None:
        """Wait until operator, routers and demo workers are what they shall be."""
        for deployment in (self.operator, self.router, self.demo):
            self.namespace.rolled_out(deployment)

    @contextmanager
    def applied(self, *objects: Json) -> Iterator[None]:
        """Have *objects* in the release's namespace for the time of a block."""
        self.namespace.apply(*objects)
        try:
            yield
        finally:
            for each in objects:
                self.namespace.kubectl(
                    "delete", each["kind"].lower(), each["metadata"]["name"], "--timeout=170s"
                )

    @contextmanager
    def changed(self, spec: Json) -> Iterator[None]:
        """Have the demo's backend changed by *spec* for the time of a block."""
        self.patch_backend(spec)
        try:
            yield
        finally:
            self.patch_backend(dict.fromkeys(spec))

    def patch_backend(self, spec: Mapping[str, Any]) -> None:
        """Change the spec of the demo's backend; None takes a field away."""
        text = json.dumps({"spec": spec})
        self.namespace.kubectl("patch", "sglb", self.demo, "--type=merge", "-p", text)

    def synced(self) -> int:
        """Return how many routers have acknowledged the demo's backend, as its status says."""
        status: Json = self.namespace.get("sglb", self.demo).get("status", {})
        return int(status.get("routers", {}).get("synced", 0))

    def metric(self, name: str) -> float:
        """Return the sum of a metric over routers and labels."""
        ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8080/metrics').read().decode())"
        total = 0.0
        for pod in self.namespace.pods("router"):
            text = self.namespace.kubectl("exec", pod, "--", "python3", "-c", ask)
            total += sum(
                float(line.rsplit(" ", 1)[1])
                for line in text.splitlines()
                if line.startswith((f"{name} ", f"{name}{{"))
            )
        return total

    def url(self) -> str:
        """Return the router Service's address as this machine reaches it: node and node port."""
        service = self.namespace.get("service", self.router)
        nodes = json.loads(run("kubectl", "get", "nodes", "-o", "json"))["items"]
        (address,) = [
            each["address"]
            for each in nodes[0]["status"]["addresses"]
            if each["type"] == "InternalIP"
        ]
        return f"http://{address}:{service['spec']['ports'][0]['nodePort']}"


def ask(url: str, model: str, question: str, *, key: str = "none", seconds: float = 30) -> str:
    """Return a whole answer."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=seconds) as client:
        answer = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": question}]
        )
    return answer.choices[0].message.content or ""


def values(**given: object) -> Sequence[str]:
    """Return helm's flags for *given*, with ``__`` for a dot."""
    flags = []
    for key, value in given.items():
        flags += ["--set", f"{key.replace('__', '.')}={value}"]
    return flags
