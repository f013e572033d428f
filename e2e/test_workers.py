"""Workers that are missing, not ready, of another model, or killed: each is said, none is waited for."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from steps import Json, Release, ask, eventually, run


@contextmanager
def applied(release: Release, *objects: Json) -> Iterator[None]:
    """Have *objects* in the release's namespace for the time of a block."""
    release.namespace.apply(*objects)
    try:
        yield
    finally:
        for each in objects:
            release.namespace.kubectl(
                "delete", each["kind"].lower(), each["metadata"]["name"], "--timeout=60s"
            )


@contextmanager
def changed(release: Release, spec: Json) -> Iterator[None]:
    """Have the demo's backend changed by *spec* for the time of a block."""
    release.patch_backend(spec)
    try:
        yield
    finally:
        release.patch_backend(dict.fromkeys(spec))


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
        60, f"{backend}: {kind} is {wanted}",
    )  # fmt: skip


def test_a_service_that_is_missing_and_then_empty_is_said(settled: Release) -> None:
    """ServiceNotFound, then NoEndpoints as soon as it exists, then workers as soon as it selects."""
    backend = a_backend(settled, "empty", {"service": {"name": "empty", "portName": "grpc"}})
    with applied(settled, backend):
        condition_is(settled, "empty", "ResolvedRefs", "False", "ServiceNotFound")
        with applied(settled, a_service("empty", {"app": "nobody"})):
            condition_is(settled, "empty", "EndpointsAvailable", "False", "NoEndpoints")
            condition_is(settled, "empty", "ResolvedRefs", "True", "ResolvedRefs")
            refused(settled, "empty")


def test_a_worker_that_never_gets_ready_is_named_and_not_used(settled: Release) -> None:
    """The condition names the pod, no request goes there, and the demo goes on."""
    never = {"exec": {"command": ["python3", "-c", "raise SystemExit(1)"]}, "periodSeconds": 2}
    with applied(
        settled,
        a_worker(settled, "never", never),
        a_service("never", {"app": "never"}),
        a_backend(settled, "never", {"service": {"name": "never", "portName": "grpc"}}),
    ):
        condition_is(settled, "never", "EndpointsAvailable", "False", "NoReadyEndpoints")
        eventually(
            lambda: "never" in settled.namespace.condition("never", "EndpointsAvailable")[2],
            60, "the message names the pod",
        )  # fmt: skip

        refused(settled, "never")
        assert "Hello" in ask(settled.url(), "demo", "Hello?")


def test_workers_of_another_model_are_counted_as_unhealthy_and_not_used(settled: Release) -> None:
    """Kubernetes calls them ready; routers see that they serve 'demo', and send nothing."""
    demo = {"service": {"name": settled.demo, "portName": "grpc"}}
    with applied(settled, a_backend(settled, "llama", demo)):
        eventually(lambda: settled.namespace.ready("llama") == 2, 60, "two are ready")
        eventually(
            lambda: settled.namespace.get("sglb", "llama")["status"]["workers"].get("unhealthy") == 2,
            60, "routers call both unhealthy",
        )  # fmt: skip

        refused(settled, "llama")
        assert "Hello" in ask(settled.url(), "demo", "Hello?")


def test_a_request_waits_for_the_first_worker_where_it_may(settled: Release) -> None:
    """Scaled to zero with noEndpointWait: the request is held, and answered by the first worker."""
    namespace = settled.namespace
    with changed(settled, {"admission": {"noEndpointWait": "2m"}}):
        namespace.scale(settled.demo, 0)
        eventually(lambda: namespace.ready(settled.demo) == 0, 90, "no worker is left")
        eventually(lambda: not namespace.pods("demo"), 90, "no pod is left")
        with ThreadPoolExecutor(1) as threads:
            held = threads.submit(ask, settled.url(), "demo", "Are you awake?", seconds=150)
            eventually(lambda: settled.metric("sglr_queue_waiting") == 1, 30, "it waits")
            namespace.scale(settled.demo, 1)

            assert "Are you awake?" in held.result(timeout=150)


def test_callers_keys_of_a_backend_are_rotated_without_a_restart(settled: Release) -> None:
    """Old, both, new: each change of the Secret holds at once, in routers that go on running."""
    url, namespace = settled.url(), settled.namespace
    before = {pod: namespace.restarts(pod) for pod in namespace.pods("router")}

    def admits(key: str) -> bool:
        try:
            return "Hello" in ask(url, "demo", "Hello?", key=key)
        except openai.NotFoundError:
            # Who has no key for a backend is not told that there is one.
            return False

    def secret(**keys: str) -> Json:
        metadata = {"name": "callers", "labels": {"sglr.dev/for-routers": "true"}}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": keys}

    with (
        applied(settled, secret(old="sk-old")),
        changed(settled, {"auth": {"keySecretRefs": [{"name": "callers"}]}}),
    ):
        eventually(lambda: not admits("none"), 60, "a key is needed")
        assert admits("sk-old")
        assert not admits("sk-new")
        namespace.apply(secret(old="sk-old", new="sk-new"))
        eventually(lambda: admits("sk-new"), 60, "the new key is good")
        assert admits("sk-old")
        namespace.replace(secret(new="sk-new"))
        eventually(lambda: not admits("sk-old"), 60, "the old key is refused")
        assert admits("sk-new")

    eventually(lambda: admits("none"), 60, "no key is needed")
    assert before == {pod: namespace.restarts(pod) for pod in namespace.pods("router")}


def test_a_worker_that_its_node_kills_ends_its_stream_at_once(settled: Release) -> None:
    """SIGKILL from the node, unseen by the API server: an error frame, no wait, no made-up end."""
    namespace = settled.namespace
    namespace.scale(settled.demo, 1)
    eventually(lambda: len(namespace.pods("demo")) == 1, 60, "one worker is left")
    eventually(lambda: namespace.ready(settled.demo) == 1, 60, "and it is ready")
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
