"""TLS and HTTP/2; the certificates are the tests' own and valid for 100 years."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import support.h2peer
from sglr_client import Limits, TlsError
from sglr_client.testing import MockServer, Say
from support.client_doors import failure_of
from support.h2peer import PeerConnection, h2_peer

PEMS = Path(support.h2peer.__file__).parent / "h2tls"
CA, STRANGER = str(PEMS / "ca.pem"), str(PEMS / "stranger.pem")
WORKER, ROUTER = str(PEMS / "worker.pem"), str(PEMS / "router.pem")
BODY = (
    b'data: {"choices":[{"delta":{"content":"over two"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


def server_context(*, asks: bool = False) -> ssl.SSLContext:
    """Return a server's context; *asks* for the client's certificate if told so."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(WORKER)
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(CA)
    return context


def client_context(certificate: str = "") -> ssl.SSLContext:
    """Return a client's context that trusts the tests' authority."""
    context = ssl.create_default_context(cafile=CA)
    if certificate:
        context.load_cert_chain(certificate)
    return context


@pytest.fixture(params=[False, True], ids=["tls", "mutual"])
def secure(request: pytest.FixtureRequest) -> Iterator[MockServer]:
    """A mock server over TLS, that asks for a certificate or does not."""
    with MockServer(tls=server_context(asks=request.param)) as server:
        yield server


async def test_calls_and_streams_go_over_tls(open_door: Any, secure: MockServer) -> None:
    """With the authority that is given, and our certificate for a server that asks."""
    secure.default = Say("sealed")
    door = open_door(secure.url, tls=client_context(ROUTER))

    assert (await door.chat()).text == "sealed"
    assert (await door.stream()).text == "sealed"
    assert secure.connections == 1


async def test_an_unknown_authority_is_refused(open_door: Any) -> None:
    """Once: repeating would not make it known."""
    with MockServer(tls=server_context()) as server:
        error = await failure_of(open_door(server.url))

        assert isinstance(error, TlsError)
        assert server.requests == []


async def test_verification_can_be_switched_off(open_door: Any) -> None:
    """For tests."""
    with MockServer(tls=server_context()) as server:
        assert (await open_door(server.url, tls=False).chat()).text == "Hello!"


async def test_http2_is_spoken_where_it_is_agreed_on(open_door: Any) -> None:
    """Two streams, one connection."""
    context = server_context()
    context.set_alpn_protocols(["h2"])

    async def answer(connection: PeerConnection) -> None:
        for _ in range(2):
            stream_id = await connection.request()
            head = [(":status", "200"), ("content-type", "text/event-stream")]
            connection.h2.send_headers(stream_id, head)
            connection.h2.send_data(stream_id, BODY, end_stream=True)
            connection.flush()

    async with h2_peer(answer, tls=context) as peer:
        door = open_door(
            f"https://127.0.0.1:{peer.port}", tls=client_context(), limits=Limits(http2=True)
        )
        texts = [(await door.stream()).text for _ in range(2)]
        await door.aclose()

        assert texts == ["over two", "over two"]
        assert len(peer.connections) == 1
