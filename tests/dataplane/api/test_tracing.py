"""Traces from client through worker: sent to a real receiver, and costing nothing when they are off."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from sglr_dataplane.api.faults import CLIENT_GONE
from sglr_dataplane.api.traces import TracingMissingError, new_tracing
from sglr_dataplane.api.tracing import Tracing
from sglr_dataplane.cli.serve import add_arguments, tracing_of
from sglr_dataplane.config import TracingConfig
from sglr_dataplane.engine.lean import LeanEngine, lean_engine
from sglr_dataplane.engine.sglang import SGLangEngine
from sglr_dataplane.fleet.tracing import carrying, fields_of
from sglr_dataplane.job import Forward
from sglr_dataplane.sim.script import Incident, Play, Status
from sglr_dataplane.sim.worker import SimWorker
from sglr_proto.sglang.scheduler_pb2 import EmbedResponse
from support.collector import Collector, attributes, collecting
from support.exchanges import an_exchange
from support.fleets import a_job
from support.router import RunningRouter, a_worker, manifest, running_router

PATH = "/v1/chat/completions"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
WORDS = {"role": "user", "content": "SECRET-WORDS"}
REQUEST: dict[str, Any] = {"model": "m", "messages": [WORDS]}
BROKEN = Play(text="no", incidents=(Incident(after=0, status=Status(code="INTERNAL")),))
CUT = Play(text="one two three", incidents=(Incident(after=2, status=Status(code="INTERNAL")),))
SERVER = f"POST {PATH}"


def trace_of(worker: SimWorker) -> list[str]:
    """Return the traceparent of each call that *worker* got, as the wire had it."""
    return [dict(received.metadata).get("traceparent", "") for received in worker.received]


async def ask(router: RunningRouter, **headers: str) -> str:
    """Return a streamed answer to a request in the client's trace."""
    body = {**REQUEST, "stream": True}
    answer = await router.http.post(
        PATH, json=body, headers={"traceparent": PARENT, "tracestate": "a=1", **headers}
    )
    return answer.text


async def traced(folder: Path, collector: Collector, *plays: Play, **fields: Any) -> SimWorker:
    """Serve one request over a worker that plays *plays*, and return the worker it was asked of."""
    config = TracingConfig(collector.url)
    async with (
        a_worker(*plays) as worker,
        running_router(folder, manifest(worker.address), tracing=config, **fields) as router,
    ):
        await ask(router)
    return worker


async def test_a_request_is_one_trace_from_the_client_to_the_worker(tmp_path: Path) -> None:
    """The client's span, ours, the attempt's, and what the worker is told, each in the one before."""
    with collecting() as collector:
        worker = await traced(tmp_path, collector, Play(text="Hi there."))
    [server] = collector.named(SERVER)
    [attempt] = collector.named("generate")
    said, did = attributes(server), attributes(attempt)

    assert collector.paths[0] == "/v1/traces"
    assert server.trace_id.hex() == attempt.trace_id.hex() == TRACE
    assert server.parent_span_id.hex() == "b7ad6b7169203331"
    assert attempt.parent_span_id == server.span_id
    assert trace_of(worker) == [f"00-{TRACE}-{attempt.span_id.hex()}-01"]
    assert dict(worker.received[0].metadata)["tracestate"] == "a=1"
    assert (server.kind, attempt.kind) == (server.SPAN_KIND_SERVER, attempt.SPAN_KIND_CLIENT)
    assert (said["http.route"], said["http.response.status_code"]) == (PATH, 200)
    assert (said["gen_ai.request.model"], said["sglr.stream"]) == ("m", True)
    assert int(str(said["gen_ai.usage.output_tokens"])) >= 2
    assert int(str(said["gen_ai.usage.input_tokens"])) >= 2
    assert did["sglr.outcome"] == "succeeded"
    assert did["sglr.job"] == said["sglr.job"]
    assert [event.name for event in attempt.events] == ["first chunk"]
    assert server.end_time_unix_nano >= attempt.end_time_unix_nano


async def test_every_attempt_is_a_span_of_its_own(tmp_path: Path) -> None:
    """One worker fails, the other answers: the request is well, and both are told apart."""
    with collecting() as collector:
        config = TracingConfig(collector.url)
        async with (
            a_worker(BROKEN) as one,
            a_worker(Play(text="Hi.")) as two,
            running_router(tmp_path, manifest(one.address, two.address), tracing=config) as router,
        ):
            for _ in range(2):
                await ask(router)
    attempts = collector.named("generate")
    outcomes = sorted(str(attributes(span)["sglr.outcome"]) for span in attempts)
    told = {header.split("-")[2] for header in trace_of(one) + trace_of(two)}

    assert one.requests
    assert len(two.requests) == 2
    assert outcomes == ["failed"] * len(one.requests) + ["succeeded"] * 2
    assert told == {span.span_id.hex() for span in attempts}
    assert [span.status.code for span in collector.named(SERVER)] == [0, 0]


async def test_a_stream_that_fails_is_an_error_although_its_status_was_200(tmp_path: Path) -> None:
    """What it failed with is said; the attempt failed, too."""
    with collecting() as collector:
        await traced(tmp_path, collector, CUT)
    [server] = collector.named(SERVER)
    [attempt] = collector.named("generate")

    assert attributes(server)["http.response.status_code"] == 200
    assert attributes(server)["error.type"] == "worker_error"
    assert (server.status.code, attempt.status.code) == (2, 2)


async def test_spans_hold_no_words_no_keys_and_no_addresses(tmp_path: Path) -> None:
    """Searched for in every byte that was sent; probes and scrapes make no spans."""
    keys = tmp_path / "keys.yaml"
    keys.write_text("keys: [{name: a, key: sk-SECRET-KEY}]")
    with collecting() as collector:
        config = TracingConfig(collector.url)
        async with (
            a_worker(Play(text="SECRET-ANSWER")) as worker,
            running_router(
                tmp_path, manifest(worker.address), tracing=config, keys=str(keys)
            ) as router,
        ):
            await ask(router, authorization="Bearer sk-SECRET-KEY")
            await ask(router, authorization="Bearer sk-SECRET-WRONG")
            await router.http.get("/metrics")
            address = worker.address
    sent = b"".join(collector.bodies)

    assert len(collector.named(SERVER)) == 2
    assert {span.name for span in collector.spans} == {SERVER, "generate"}
    assert b"SECRET" not in sent
    assert address.encode() not in sent
    assert b"127.0.0.1" not in sent


async def test_who_we_are_is_said_and_the_environment_may_say_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """service.name is sglr, or what OTEL_SERVICE_NAME says; a URL with a path is taken as it is."""
    names: list[str] = []
    for given in (None, "front"):
        if given is not None:
            monkeypatch.setenv("OTEL_SERVICE_NAME", given)
        with collecting() as collector:
            tracing = Tracing(TracingConfig(f"{collector.url}/own/path"))
            tracing.request(an_exchange()).end()
            await tracing.aclose()
        [request] = collector.requests
        said = {e.key: e.value.string_value for e in request.resource_spans[0].resource.attributes}
        names.append(said["service.name"])
        assert collector.paths == ["/own/path"]

    assert names == ["sglr", "front"]


async def test_a_client_that_leaves_is_no_error_of_ours() -> None:
    """Its span says so, and has no status; the trace's id is on the log line."""
    exporter = InMemorySpanExporter()
    tracing = Tracing(TracingConfig(), exporter)
    exchange = an_exchange()
    trace = tracing.request(exchange)
    exchange.failure = CLIENT_GONE
    trace.end()
    await tracing.aclose()
    [span] = exporter.get_finished_spans()

    assert dict(span.attributes or {})["error.type"] == "client_closed_request"
    assert span.status.status_code is StatusCode.UNSET
    assert exchange.facts["trace"] == f"{span.context.trace_id:032x}"


async def test_off_the_clients_trace_is_passed_on_as_it_came(tmp_path: Path) -> None:
    """Workers that trace keep the client's; what is no trace context is dropped."""
    async with (
        a_worker(Play(text="Hi.")) as worker,
        running_router(tmp_path, manifest(worker.address)) as router,
    ):
        await ask(router)
        await ask(router, traceparent="not a trace")

    assert trace_of(worker) == [PARENT, ""]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, ()),
        ({"tracestate": "a=1"}, ()),
        ({"traceparent": PARENT}, (("traceparent", PARENT),)),
        ({"traceparent": PARENT.upper()}, ()),
        ({"traceparent": PARENT + "\n"}, ()),
        ({"traceparent": PARENT + "-more"}, (("traceparent", PARENT + "-more"),)),
        ({"traceparent": PARENT, "tracestate": "é"}, (("traceparent", PARENT),)),
        ({"traceparent": PARENT, "tracestate": "a" * 513}, (("traceparent", PARENT),)),
    ],
)
def test_only_valid_trace_context_is_passed_on(
    headers: dict[str, str], expected: tuple[tuple[str, str], ...]
) -> None:
    """What a worker gets as metadata is of the form that W3C gives it."""
    assert fields_of(headers) == expected


@pytest.mark.parametrize("engine_for", [lean_engine, SGLangEngine])
async def test_an_embedding_carries_its_trace_too(
    engine_for: Callable[[str], LeanEngine | SGLangEngine],
) -> None:
    """By both clients, with what else a call has."""
    seen: list[dict[str, str | bytes]] = []

    async def embed(_: bytes, call: Any) -> bytes:
        seen.append(dict(call.invocation_metadata()))
        return EmbedResponse(embedding=[1.0], embedding_dim=1).SerializeToString()

    server = grpc.aio.server()
    methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Embed": grpc.unary_unary_rpc_method_handler(embed)
    }
    name = "sglang.grpc.scheduler.SglangScheduler"
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(name, methods)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    job = replace(a_job(), task="embed", trace=(("traceparent", PARENT), ("tracestate", "a=1")))
    try:
        async with (
            asyncio.timeout(10),
            aclosing(engine_for(f"127.0.0.1:{port}")) as engine,
            aclosing(engine.embed(job)) as stream,
        ):
            chunks = [chunk async for chunk in stream]
    finally:
        await server.stop(None)

    assert len(chunks) == 1
    assert [(fields["traceparent"], fields["tracestate"]) for fields in seen] == [(PARENT, "a=1")]


def test_an_http_worker_gets_the_attempts_trace_in_place_of_the_clients() -> None:
    """One header of the name, whatever the client sent."""
    forward = Forward("/p", b"{}", headers=((b"traceparent", b"old"), (b"x", b"1")))
    job = carrying(replace(a_job(), forward=forward), (("traceparent", PARENT),))

    assert job.forward is not None
    assert job.forward.headers == ((b"x", b"1"), (b"traceparent", PARENT.encode()))


def test_without_tracing_nothing_of_it_is_loaded() -> None:
    """No import of the SDK, its API or its exporter by the router and its command line."""
    program = (
        "import sys, sglr_dataplane.cli, sglr_dataplane.app;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=15, check=True
    )

    assert found.stdout.strip() == "[]"


def test_without_the_extra_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a traceback, and not in silence without traces."""
    monkeypatch.setitem(sys.modules, "sglr_dataplane.api.tracing", None)

    with pytest.raises(TracingMissingError, match=r"sglang-k8s-router\[tracing\]"):
        new_tracing(TracingConfig())


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ([], {}, None),
        (["--otlp-endpoint", "http://c:4318"], {}, TracingConfig("http://c:4318")),
        ([], {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, TracingConfig()),
        ([], {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, TracingConfig()),
        ([], {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
        (["--otlp-endpoint", "http://c"], {"OTEL_SDK_DISABLED": "true"}, None),
    ],
)
def test_tracing_is_on_with_an_endpoint_and_without_a_veto(
    monkeypatch: pytest.MonkeyPatch,
    given: list[str],
    environment: dict[str, str],
    expected: TracingConfig | None,
) -> None:
    """By the option or by OpenTelemetry's own variables."""
    for name in (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_SDK_DISABLED",
    ):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    parser = argparse.ArgumentParser()
    add_arguments(parser)

    assert tracing_of(parser.parse_args(["-f", "x.yaml", *given])) == expected
