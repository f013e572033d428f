"""Calls of both clients against the mock server, where all goes well."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from sglr_client import AsyncClient, ChatChunk, Client, ClientClosedError, Limits
from sglr_client.testing import Hang, MockServer, Raw, Say
from support.client_doors import HI, Door, eventually


async def test_a_chat_is_answered(door: Door, mock_server: MockServer) -> None:
    """The answer is typed, and the server saw what was asked."""
    mock_server.play(Say("Hello you", reasoning="hm"))

    answer = await door.chat(temperature=0.5)

    assert answer.text == "Hello you"
    assert answer.choices[0].message.reasoning_content == "hm"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3
    (seen,) = mock_server.requests
    assert (seen.method, seen.path) == ("POST", "/v1/chat/completions")
    assert seen.body == {"model": "m", "messages": HI, "temperature": 0.5}


async def test_a_chat_is_streamed(door: Door, mock_server: MockServer) -> None:
    """Chunk by chunk, with a last one that carries usage when asked for."""
    mock_server.play(Say("one two", calls=[("f", '{"a":1}')]))

    received = await door.stream(stream_options={"include_usage": True})

    assert received.error is None
    assert received.text == "one two"
    calls = [call for c in received.chunks for p in c.choices for call in p.delta.tool_calls]
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        ("call_0", "f", '{"a":1}')
    ]
    assert received.chunks[-1].choices == []
    assert received.usage.completion_tokens == 2


async def test_raw_chunks_are_the_servers_bytes(door: Door, mock_server: MockServer) -> None:
    """Not parsed, not written anew."""
    chunk = (
        b'{ "choices" : [{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}] , "x":1.0 }'
    )
    mock_server.play(Raw([b"data: " + chunk + b"\n\n", b"data: [DONE]\n\n"]))

    assert (await door.stream(raw=True)).chunks == [chunk]


async def test_completions_embeddings_and_models(door: Door, mock_server: MockServer) -> None:
    """The rest of the API."""
    mock_server.models = ["a", "b/c"]
    mock_server.play(Say("done"))

    completion = await door.ask("completions", "m", "Say it")
    vectors = await door.ask("embeddings", "m", ["x", "y"])
    models = await door.ask("models")

    assert completion.text == "done"
    assert [vector.embedding[0] for vector in vectors.data] == [0.0, 1.0]
    assert [model.id for model in models.data] == ["a", "b/c"]


async def test_completions_are_streamed(mock_server: MockServer) -> None:
    """By both clients, one answer for each prompt."""
    mock_server.default = Say("to be")
    with Client(mock_server.url) as client:
        blocking = await asyncio.to_thread(list, client.completions_stream("m", "Say it"))
    async with AsyncClient(mock_server.url) as another:
        awaited = [chunk async for chunk in another.completions_stream("m", "Say it")]

    assert "".join(chunk.text for chunk in blocking) == "to be"
    assert "".join(chunk.text for chunk in awaited) == "to be"
    assert blocking[-1].choices[0].finish_reason == "stop"


async def test_any_path_can_be_posted_to(door: Door, mock_server: MockServer) -> None:
    """For what the API does not name."""
    mock_server.play(Raw([b'{"tokens":[1,2]}'], content_type="application/json"))

    assert await door.ask("post", "/v1/tokenize", {"prompt": "x"}) == {"tokens": [1, 2]}


async def test_headers_and_key_are_sent(open_door: Any, mock_server: MockServer) -> None:
    """The client's with each request, the call's over them."""
    door = open_door(api_key="secret", headers={"X-Team": "blue", "X-Kind": "a"})

    await door.chat(headers={"x-kind": "b"})

    headers = mock_server.requests[0].headers
    assert headers["authorization"] == "Bearer secret"
    assert (headers["x-team"], headers["x-kind"]) == ("blue", "b")
    assert headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_the_base_url_may_end_in_v1(
    open_door: Any, mock_server: MockServer, suffix: str
) -> None:
    """Hand-typed URLs come in all forms."""
    door = open_door(mock_server.url + suffix)

    await door.chat()

    assert (await door.ask("health")).is_up
    assert [seen.path for seen in mock_server.requests] == ["/v1/chat/completions", "/health"]


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://", ""])
def test_a_base_url_must_be_one(url: str) -> None:
    """The wrong value is named."""
    with pytest.raises(ValueError, match="base_url"):
        Client(url)


async def test_connections_are_used_again(door: Door, mock_server: MockServer) -> None:
    """Answers and streams that were read to their end give theirs back."""
    for _ in range(3):
        await door.chat()
        await door.stream()

    assert mock_server.connections == 1


async def test_leaving_a_stream_stops_the_server(door: Door, mock_server: MockServer) -> None:
    """The connection is closed: the server need not generate for nobody."""
    mock_server.play(Say("a b c d e f g h", gap=0.05))

    received = await door.stream(stop_after=2)

    assert len(received.chunks) == 2
    await eventually(mock_server.requests[0].left.is_set)


async def test_a_callback_can_stop_the_stream(mock_server: MockServer) -> None:
    """By returning False; anything else goes on. Functions and coroutine functions."""
    mock_server.default = Say("a b c d", gap=0.01)
    seen: list[str] = []

    def until_b(chunk: ChatChunk) -> bool:
        seen.append(chunk.text)
        return "b" not in chunk.text

    async def until_c(chunk: ChatChunk) -> bool:
        return "c" not in chunk.text

    with Client(mock_server.url) as client:
        ended = await asyncio.to_thread(client.chat_stream("m", HI).run, until_b)
        whole = await asyncio.to_thread(client.chat_stream("m", HI).run, lambda _: None)
    async with AsyncClient(mock_server.url) as another:
        stopped = await another.chat_stream("m", HI).run(until_c)

    assert (ended, whole, stopped) == (False, True, False)
    assert seen == ["", "a", " b"]


async def test_a_forgotten_async_stream_is_closed(mock_server: MockServer) -> None:
    """Breaking out of the loop is enough, though ``async with`` is the better manner."""
    mock_server.play(Say("a b c d e f g h", gap=0.05))
    async with AsyncClient(mock_server.url) as client:
        async for _ in client.chat_stream("m", HI):
            break
        await eventually(mock_server.requests[0].left.is_set)


async def test_cancelling_a_task_cancels_its_call(mock_server: MockServer) -> None:
    """Also while nothing has come yet: A08, seen from the client's side."""
    mock_server.play(Hang())
    async with AsyncClient(mock_server.url) as client:
        asking = asyncio.create_task(client.chat("m", HI))
        await eventually(lambda: mock_server.in_flight == 1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await eventually(mock_server.requests[0].left.is_set)

        assert (await client.chat("m", HI)).text == "Hello!"


async def test_closing_waits_for_calls_in_flight(mock_server: MockServer) -> None:
    """They get their answers; a call after that gets an error."""
    mock_server.default = Say("late", wait=0.2)
    client = Client(mock_server.url)
    another = AsyncClient(mock_server.url)
    asking = [
        asyncio.create_task(asyncio.to_thread(client.chat, "m", HI)),
        asyncio.create_task(another.chat("m", HI)),
    ]
    await eventually(lambda: mock_server.in_flight == 2)
    await asyncio.to_thread(client.close)
    await another.aclose()

    assert [task.result().text for task in asking] == ["late", "late"]
    with pytest.raises(ClientClosedError):
        client.chat("m", HI)
    with pytest.raises(ClientClosedError):
        await another.chat("m", HI)


async def test_closing_does_not_wait_for_a_stream_of_ones_own(mock_server: MockServer) -> None:
    """It could not go on meanwhile; it is cut."""
    mock_server.default = Say("a b c", gap=0.05)

    def leave_open() -> object:
        with Client(mock_server.url) as client:
            stream = client.chat_stream("m", HI)
            next(stream)
        return stream

    kept = await asyncio.wait_for(asyncio.to_thread(leave_open), 5.0)
    async with asyncio.timeout(5.0), AsyncClient(mock_server.url) as another:
        stream = another.chat_stream("m", HI)
        await anext(stream)

    assert kept is not None
    for request in mock_server.requests:
        await eventually(request.left.is_set)
    await stream.aclose()


async def test_closing_cuts_what_outlives_its_grace(
    open_door: Any, mock_server: MockServer
) -> None:
    """A call that hangs does not hold the program."""
    mock_server.play(Hang())
    async with AsyncClient(mock_server.url) as client:
        asking = asyncio.create_task(client.chat("m", HI))
        await eventually(lambda: mock_server.in_flight == 1)
        await client.aclose(grace=0.01)
        await eventually(mock_server.requests[0].left.is_set)
        asking.cancel()
        await asyncio.wait([asking], timeout=5)


async def test_your_own_transport_is_used() -> None:
    """For proxies, and for tests without a socket."""

    def answered(request: httpx2.Request) -> httpx2.Response:
        content = json.dumps({"choices": [{"message": {"content": request.url.host}}]})
        return httpx2.Response(200, content=content)

    with Client("http://elsewhere.test", http=httpx2.MockTransport(answered)) as client:
        blocking = client.chat("m", HI)
    async with AsyncClient("http://elsewhere.test", http=httpx2.MockTransport(answered)) as another:
        awaited = await another.chat("m", HI)

    assert (blocking.text, awaited.text) == ("elsewhere.test", "elsewhere.test")


async def test_one_blocking_client_serves_many_threads(mock_server: MockServer) -> None:
    """Thirty at once, within its own limit of ten connections."""
    mock_server.default = Say("ok", wait=0.02)
    with Client(mock_server.url, limits=Limits(connections=10)) as client:
        answers = await asyncio.gather(
            *(asyncio.to_thread(client.chat, "m", HI) for _ in range(30))
        )

    assert [answer.text for answer in answers] == ["ok"] * 30
    assert mock_server.connections <= 10
