"""One model behind gRPC and HTTP workers at once: one split, whichever walk answers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import yaml

from sglr_client.testing import MockServer, Say
from sglr_dataplane.sim.script import Play
from support.http_workers import MODEL, a_chat, an_http_backend
from support.router import RunningRouter, a_worker, eventually, manifest, running_router

PATH = "/v1/chat/completions"
HTTP = Say().text
"""What the HTTP worker says."""


async def are_ready(router: RunningRouter) -> bool:
    """Return whether every backend can take a request."""
    backends = (await router.http.get("/readyz")).json()["backends"]
    return len(backends) == 2 and all(each["ready"] for each in backends.values())


async def said(router: RunningRouter) -> str:
    """Return what the model says to a streamed or whole request."""
    answer = await router.http.post(PATH, json=a_chat())
    return str(answer.json()["choices"][0]["message"]["content"])


def with_traffic(document: str, **traffic: int) -> str:
    """Return the manifest with *traffic* in its spec."""
    fields = yaml.safe_load(document)
    fields["spec"]["traffic"] = traffic
    return yaml.safe_dump(fields)


async def test_a_name_of_both_protocols_is_split_between_them(tmp_path: Path) -> None:
    """Every request has an answer, some by each; nobody draws a backend that it cannot ask."""
    with MockServer([MODEL]) as http:
        async with a_worker(Play(text="by grpc")) as grpc:
            documents = manifest(grpc.address), an_http_backend(http)
            async with running_router(tmp_path, "---\n".join(documents)) as router:
                await eventually(lambda: are_ready(router))
                found = Counter([await said(router) for _ in range(60)])

    # Thirty of sixty are expected; fewer than ten happen once in twenty million runs.
    assert found.keys() == {HTTP, "by grpc"}
    assert min(found.values()) >= 10


async def test_a_fallback_may_speak_the_other_protocol(tmp_path: Path) -> None:
    """As long as the gRPC worker is up it answers, and the HTTP worker when it is not."""
    with MockServer([MODEL]) as http:
        async with a_worker(Play(text="by grpc")) as grpc:
            spare = with_traffic(an_http_backend(http), priority=1)
            documents = manifest(grpc.address), spare
            async with running_router(tmp_path, "---\n".join(documents)) as router:
                await eventually(lambda: are_ready(router))
                before = {await said(router) for _ in range(5)}
                await grpc.stop()

                async def is_down() -> bool:
                    backends = (await router.http.get("/readyz")).json()["backends"]
                    return not backends["default/backend"]["ready_workers"]

                await eventually(is_down)
                after = {await said(router) for _ in range(5)}

    assert (before, after) == ({"by grpc"}, {HTTP})
