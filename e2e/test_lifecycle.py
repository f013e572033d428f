"""From an empty cluster to a chat, through everything a rollout does, and back."""

from __future__ import annotations

import subprocess
import time

import openai
import pytest
from load import Load
from steps import Namespace, Release, ask, eventually, run


def test_install_ends_with_a_chat(settled: Release) -> None:
    """What the notes promise: wait for the backend, list models, chat; and helm's own test."""
    settled.namespace.kubectl(
        "wait", "--for=condition=Ready", f"sglb/{settled.demo}", "--timeout=150s"
    )

    assert "Are you there?" in ask(settled.url(), "demo", "Are you there?")
    assert "Succeeded" in run("helm", "test", settled.name, "--namespace", settled.namespace.name)


def test_one_line_of_kubectl_tells_the_story(settled: Release) -> None:
    """Model, workers, routers and state are columns."""
    line = settled.namespace.kubectl("get", "sglb", settled.demo, "--no-headers").split()

    assert line[:6] == [settled.demo, "demo", "2", "2", "2", "True"]


def test_workers_come_and_go(settled: Release) -> None:
    """0, 3, 1, 0 and 2 workers: the status counts along, and with none the refusal is at once."""
    namespace = settled.namespace
    for replicas in (0, 3, 1, 0):
        namespace.scale(settled.demo, replicas)
        _await_workers(settled, replicas)
        if replicas:
            eventually(lambda: ask(settled.url(), "demo", "Hello?"), 60, "a worker answers")
    began = time.monotonic()
    with pytest.raises(openai.InternalServerError) as refusal:
        ask(settled.url(), "demo", "Hello?")

    assert refusal.value.status_code == 503
    assert time.monotonic() - began < 10
    status, reason, message = namespace.condition(settled.demo, "EndpointsAvailable")
    assert status == "False"
    assert reason in {"NoEndpoints", "NoReadyEndpoints"}
    assert message
    namespace.scale(settled.demo, 2)
    _await_workers(settled, 2)
    eventually(lambda: ask(settled.url(), "demo", "Hello?"), 60, "and they answer")


def _await_workers(release: Release, count: int) -> None:
    """Wait until the backend's status counts that many ready workers."""
    eventually(lambda: release.namespace.ready(release.demo) == count, 90, f"{count} are ready")


@pytest.mark.parametrize("part", ["demo", "router", "operator"])
def test_a_rolling_restart_loses_no_stream(settled: Release, load: Load, part: str) -> None:
    """Workers, routers and operator are replaced under load: no stream fails, none is cut."""
    settled.namespace.restart(f"{settled.name}-{part}")

    load.keep_going()


def test_routers_serve_two_minutes_without_an_operator_and_catch_up(
    settled: Release, load: Load
) -> None:
    """Meanwhile pods come and go, and nobody tells routers; when it is back, they know."""
    namespace = settled.namespace
    namespace.scale(settled.operator, 0)
    eventually(lambda: not namespace.all("pods", _of("operator")), 150, "the operator is gone")
    stays, *_ = namespace.pods("demo")
    until = time.monotonic() + 120
    while time.monotonic() < until:
        (goes, *_) = (pod for pod in namespace.pods("demo") if pod != stays)
        namespace.kubectl("delete", "pod", goes, "--wait=false")
        load.keep_going(30)
        namespace.rolled_out(settled.demo)

    namespace.scale(settled.operator, 1)
    namespace.rolled_out(settled.operator)

    def routers_agree() -> bool:
        status = namespace.get("sglb", settled.demo)["status"]
        return bool(status["routers"]["synced"] == 2 and status["workers"]["healthy"] == 2)

    eventually(routers_agree, 150, "both routers know both workers")


def test_a_router_starts_from_its_last_list_without_an_operator(settled: Release) -> None:
    """A router's container that is restarted while no operator runs serves at once."""
    namespace = settled.namespace
    namespace.scale(settled.operator, 0)
    eventually(lambda: not namespace.all("pods", _of("operator")), 150, "the operator is gone")
    pod = namespace.pods("router")[0]
    before = namespace.restarts(pod)
    _kill(namespace, pod)
    eventually(lambda: namespace.restarts(pod) > before, 150, "its container was restarted")

    namespace.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=150s")
    assert "Hello" in ask(settled.url(), "demo", "Hello?")
    namespace.scale(settled.operator, 1)


def _kill(namespace: Namespace, pod: str) -> None:
    """End a pod's first process; the second signal ends it at once, and this command with it."""
    script = (
        "import os, signal, time; [(os.kill(1, signal.SIGTERM), time.sleep(0.5)) for _ in range(2)]"
    )
    command = ["kubectl", "-n", namespace.name, "exec", pod, "--", "python3", "-c", script]
    subprocess.run(command, check=False, capture_output=True, timeout=60)


def _of(component: str) -> str:
    return f"app.kubernetes.io/component={component}"


def test_a_worker_that_dies_mid_stream_ends_the_stream_at_once(settled: Release) -> None:
    """Both workers are killed without notice: the client hears an error, and does not wait."""
    namespace = settled.namespace
    with openai.OpenAI(
        base_url=f"{settled.url()}/v1", api_key="none", max_retries=0, timeout=60
    ) as client:
        stream = client.chat.completions.create(
            model="demo",
            stream=True,
            messages=[{"role": "user", "content": "word " * 1500}],
            max_tokens=4000,
        )
        next(iter(stream))
        began = time.monotonic()
        pods = namespace.pods("demo")
        namespace.kubectl("delete", "pod", *pods, "--grace-period=0", "--force")
        with pytest.raises(openai.APIError):
            for _ in stream:
                pass

    assert time.monotonic() - began < 30


def test_new_certificates_need_no_restart(settled: Release, load: Load) -> None:
    """All three Secrets are thrown away and made anew: routers dial again and go on."""
    namespace = settled.namespace
    before = {pod: namespace.restarts(pod) for pod in namespace.pods("router")}
    secrets = [f"{settled.name}-push-ca", f"{settled.operator}-push"]
    old = namespace.get("secret", secrets[1])["data"]["tls.crt"]
    namespace.kubectl("delete", "secret", *secrets, f"{settled.router}-push")
    cron = namespace.get("cronjob", f"{settled.name}-certificates")
    # Not `kubectl create job --from`, which knows no beta CronJobs.
    namespace.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "renew-now"},
            "spec": cron["spec"]["jobTemplate"]["spec"],
        }
    )
    namespace.kubectl("wait", "--for=condition=Complete", "job/renew-now", "--timeout=120s")
    namespace.kubectl("delete", "job", "renew-now")

    assert namespace.get("secret", secrets[1])["data"]["tls.crt"] != old
    load.keep_going(30)
    assert before == {pod: namespace.restarts(pod) for pod in namespace.pods("router")}
