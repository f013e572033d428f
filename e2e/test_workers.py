"""Workers that are missing, not ready, of another model, or killed: each is said, none is waited for."""

from __future__ import annotations

import os
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from steps import Json, Release, ask, eventually, run


def a_backend(release: Release, name: str, workers: Json) -> Json:
    """Return a backend of the model *name* with the demo's tokenizer."""
    tokenizer = release.namespace.get("sglb", release.demo)["spec"]["tokenizer"]
    return {
        "apiVersion": "sglr.dev/v1alpha1",
        "kind": "SGLangBackend",
        "metadata": {"name": name},
        "spec": {"model": {"name": name}, "tokenizer": tokenizer, "workers": workers},
    }


def a_service(name: str, selector: dict[str, str]) -> Json:
    """Return a headless Service with one port, named as the demo's."""
    ports = [{"name": "grpc", "port": 30000, "targetPort": 30000}]
    spec = {"clusterIP": "None", "selector": selector, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def a_worker(release: Release, name: str, probe: Json) -> Json:
    """Return a pod with one of the demo's workers and a readiness probe of its own."""
    template = release.namespace.get("deployment", release.demo)["spec"]["template"]["spec"]
    container: dict[str, Any] = template["containers"][0] | {"readinessProbe": probe}
    spec = template | {"containers": [container], "terminationGracePeriodSeconds": 5}
    metadata = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def refused(release: Release, model: str) -> None:
    """Assert that a chat with *model* is answered 503 at once."""
    began = time.monotonic()
    with pytest.raises(openai.InternalServerError) as refusal:
        ask(release.url(), model, "Hello?")
    assert refusal.value.status_code == 503
    assert refusal.value.code == "no_available_workers"
    assert time.monotonic() - began < 10


def condition_is(release: Release, backend: str, kind: str, *wanted: str) -> None:
    """Wait until a condition has *wanted* status and reason."""
    eventually(
        lambda: release.namespace.condition(backend, kind)[:2] == wanted,
        150, f"{backend}: {kind} is {wanted}",
    )  # fmt: skip


def test_a_service_that_is_missing_and_then_empty_is_said(settled: Release) -> None:
    """ServiceNotFound, then NoEndpoints as soon as it exists, then workers as soon as it selects."""
    backend = a_backend(settled, "empty", {"service": {"name": "empty", "portName": "grpc"}})
    with settled.applied(backend):
        condition_is(settled, "empty", "ResolvedRefs", "False", "ServiceNotFound")
        with settled.applied(a_service("empty", {"app": "nobody"})):
            condition_is(settled, "empty", "EndpointsAvailable", "False", "NoEndpoints")
            condition_is(settled, "empty", "ResolvedRefs", "True", "ResolvedRefs")
            refused(settled, "empty")


def test_a_worker_that_never_gets_ready_is_named_and_not_used(settled: Release) -> None:
    """The condition names the pod, no request goes there, and the demo goes on."""
    nobody_listens = 1
    never = {"tcpSocket": {"port": nobody_listens}, "periodSeconds": 2}
    with settled.applied(
        a_worker(settled, "never", never),
        a_service("never", {"app": "never"}),
        a_backend(settled, "never", {"service": {"name": "never", "portName": "grpc"}}),
    ):
        condition_is(settled, "never", "EndpointsAvailable", "False", "NoReadyEndpoints")
        eventually(
            lambda: "never" in settled.namespace.condition("never", "EndpointsAvailable")[2],
            150, "the message names the pod",
        )  # fmt: skip

        refused(settled, "never")
        assert "Hello" in ask(settled.url(), "demo", "Hello?")


def test_workers_of_another_model_are_counted_as_unhealthy_and_not_used(settled: Release) -> None:
    """Kubernetes calls them ready; routers see that they serve 'demo', and send nothing."""
    demo = {"service": {"name": settled.demo, "portName": "grpc"}}
    with settled.applied(a_backend(settled, "llama", demo)):
        eventually(lambda: settled.namespace.ready("llama") == 2, 150, "two are ready")
        eventually(
            lambda: settled.namespace.get("sglb", "llama")["status"]["workers"].get("unhealthy") == 2,
            150, "routers call both unhealthy",
        )  # fmt: skip

        condition_is(settled, "llama", "EndpointsAvailable", "False", "NoUsableEndpoints")
        assert "serves 'demo'" in settled.namespace.condition("llama", "EndpointsAvailable")[2]

        refused(settled, "llama")
        assert "Hello" in ask(settled.url(), "demo", "Hello?")


def test_a_request_waits_for_the_first_worker_where_it_may(settled: Release) -> None:
    """Scaled to zero with noEndpointWait: the request is held, and answered by the first worker."""
    namespace = settled.namespace
    with settled.changed({"admission": {"noEndpointWait": "2m"}}):
        namespace.scale(settled.demo, 0)
        eventually(lambda: namespace.ready(settled.demo) == 0, 90, "no worker is left")
        eventually(lambda: not namespace.pods("demo"), 90, "no pod is left")
        with ThreadPoolExecutor(1) as threads:
            held = threads.submit(ask, settled.url(), "demo", "Are you awake?", seconds=150)
            eventually(lambda: settled.metric("sglr_queue_waiting") == 1, 90, "it waits")
            namespace.scale(settled.demo, 1)

            assert "Are you awake?" in held.result(timeout=150)


def test_a_worker_that_its_node_kills_ends_its_stream_at_once(settled: Release) -> None:
    """SIGKILL from the node, unseen by the API server: an error frame, no wait, no made-up end."""
    namespace = settled.namespace
    namespace.scale(settled.demo, 1)
    eventually(lambda: len(namespace.pods("demo")) == 1, 150, "one worker is left")
    eventually(lambda: namespace.ready(settled.demo) == 1, 150, "and it is ready")
    (pod,) = namespace.pods("demo")
    status = namespace.get("pod", pod)["status"]["containerStatuses"][0]
    container = status["containerID"].removeprefix("containerd://")
    with openai.OpenAI(
        base_url=f"{settled.url()}/v1", api_key="none", max_retries=0, timeout=60
    ) as client:
        stream = client.chat.completions.create(
            model="demo", stream=True, max_tokens=4000,
            messages=[{"role": "user", "content": "word " * 1500}],
        )  # fmt: skip
        next(iter(stream))
        began = time.monotonic()
        node = shlex.split(os.environ["SGLR_E2E_NODE"])
        run(*node, "ctr", "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", container)
        with pytest.raises(openai.APIError):
            for _ in stream:
                pass

    assert time.monotonic() - began < 10
