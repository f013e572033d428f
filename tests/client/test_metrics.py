"""What a client tells of its calls."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from sglr_client import DictSink
from sglr_client.metrics import CallReport
from sglr_client.prometheus import PrometheusSink
from sglr_client.testing import Drop, Fail, MockServer, Raw, Say
from support.client_doors import failure_of


async def test_calls_are_counted(open_door: Any, mock_server: MockServer) -> None:
    """Requests, successes, errors by kind, retries, tokens."""
    sink = DictSink()
    door = open_door(metrics=sink)
    mock_server.play(Fail(503), Drop(), Say("one two three"), Fail(400))

    await door.chat()
    await failure_of(door)
    await door.stream(stop_after=1)

    told = sink.snapshot()
    assert (told["requests"], told["successes"], told["abandoned"]) == (3, 1, 1)
    assert told["errors"] == {"invalid_request": 1}
    assert told["retries"] == 2
    assert told["completion_tokens"] == 3
    assert told["ttft"] is not None
    assert told["pool"] == {mock_server.url.removeprefix("http://"): {"in_use": 0, "limit": 100}}


async def test_a_streams_times_are_taken(open_door: Any, mock_server: MockServer) -> None:
    """First content after the wait, then a gap for each further token."""
    sink = DictSink()
    mock_server.play(Say("a b c", wait=0.1, gap=0.1))

    await open_door(metrics=sink).stream(stream_options={"include_usage": True})

    told = sink.snapshot()
    # Head after 0.1 s, the role at once, words each 0.1 s later, the finish 0.1 s after the last.
    assert 0.19 <= told["ttft"] < 1.0
    # From "a" to the finish: three gaps for two tokens after the first.
    assert 0.1 <= told["tpot"] < 0.5
    assert told["latency"] > told["ttft"]


async def test_health_checks_are_no_requests(open_door: Any) -> None:
    """They would hide how the calls fare."""
    sink = DictSink()
    door = open_door(metrics=sink)

    await door.ask("health")
    await door.ask("is_model_ready", "mock-model")

    assert sink.snapshot()["requests"] == 0


async def test_a_broken_stream_is_an_error_with_its_kind(
    open_door: Any, mock_server: MockServer
) -> None:
    """Though the caller had content."""
    sink = DictSink()
    mock_server.play(Raw([b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n']))

    await open_door(metrics=sink).stream()

    assert sink.snapshot()["errors"] == {"truncated": 1}


def test_prometheus_has_the_same_numbers() -> None:
    """Under names that begin with sglr_client_."""
    registry = CollectorRegistry()
    sink = PrometheusSink(registry)
    sink.begin("chat", "m")
    sink.retry("chat", "server")
    sink.end(CallReport("chat", "m", "ok", 1, 2.0, 0.4, 0.04, 7, 5))
    sink.pool("host:1", 3, 100)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"sglr_client_{name}", labels)

    chat = {"operation": "chat", "model": "m"}
    assert value("requests_total", **chat) == 1
    assert value("requests_ended_total", operation="chat", outcome="ok") == 1
    assert value("retries_total", operation="chat", kind="server") == 1
    assert value("tokens_total", model="m", kind="prompt") == 7
    assert value("tokens_total", model="m", kind="completion") == 5
    assert value("request_duration_seconds_sum", **chat) == 2.0
    assert value("time_to_first_token_seconds_bucket", le="0.5", **chat) == 1
    assert value("time_per_output_token_seconds_bucket", le="0.05", **chat) == 1
    assert value("pool_connections", host="host:1", state="in_use") == 3
    assert value("pool_connections", host="host:1", state="limit") == 100
