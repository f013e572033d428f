"""TLS, mutual TLS, ALPN and IPv6; the certificates are the tests' own and valid for 100 years."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import h2.events
import pytest

import support.h2peer
from sglr_dataplane.engine.channel import tls_context
from sglr_dataplane.engine.h2.status import CallError
from support.h2calls import a_channel, echo, say
from support.h2peer import h2_peer

PEMS = Path(support.h2peer.__file__).parent / "h2tls"
CA, STRANGER = str(PEMS / "ca.pem"), str(PEMS / "stranger.pem")
WORKER, ROUTER = str(PEMS / "worker.pem"), str(PEMS / "router.pem")


def a_server(*, protocols: tuple[str, ...] = ("h2",), asks: bool = False) -> ssl.SSLContext:
    """Return a worker's context; *asks* for the router's certificate if told so."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(WORKER)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(CA)
    return context


async def test_a_call_over_tls_is_checked_and_agreed_on_by_alpn() -> None:
    """The worker's certificate names its address and comes from the given authority."""
    async with (
        h2_peer(echo, tls=a_server()) as peer,
        a_channel(peer, tls=tls_context(ca=CA)) as channel,
    ):
        assert await say(channel, bytes(300_000)) == b"ok"


async def test_the_name_of_the_certificate_can_differ_from_the_address() -> None:
    """Pods are called by address, and certified by name."""
    async with (
        h2_peer(echo, tls=a_server()) as peer,
        a_channel(peer, tls=tls_context(ca=CA), server_name="worker.test") as channel,
    ):
        assert await say(channel) == b"ok"


async def test_mutual_tls_shows_the_routers_certificate() -> None:
    """A worker that asks gets the router's certificate, and serves it."""
    context = tls_context(ca=CA, certificate=ROUTER)
    async with (
        h2_peer(echo, tls=a_server(asks=True)) as peer,
        a_channel(peer, tls=context) as channel,
    ):
        assert await say(channel) == b"ok"


async def test_without_its_certificate_a_router_is_not_served() -> None:
    """A worker that asks for a certificate refuses who has none."""
    async with (
        h2_peer(echo, tls=a_server(asks=True)) as peer,
        a_channel(peer, tls=tls_context(ca=CA)) as channel,
    ):
        with pytest.raises(CallError, match="failed to connect"):
            await say(channel)


@pytest.mark.parametrize(
    ("ca", "server_name"),
    [(STRANGER, None), (CA, "other.test")],
    ids=["another authority", "another name"],
)
async def test_a_certificate_that_does_not_fit_is_refused(ca: str, server_name: str | None) -> None:
    """Nothing is sent to a worker that cannot prove who it is."""
    async with (
        h2_peer(echo, tls=a_server()) as peer,
        a_channel(peer, tls=tls_context(ca=ca), server_name=server_name) as channel,
    ):
        with pytest.raises(CallError, match="failed to connect") as failure:
            await say(channel)

    assert not failure.value.sent


@pytest.mark.parametrize("protocols", [(), ("http/1.1",)], ids=["no ALPN", "HTTP/1.1 only"])
async def test_a_peer_that_does_not_agree_on_http2_is_refused(protocols: tuple[str, ...]) -> None:
    """RFC 9113, 3.3: over TLS, HTTP/2 is agreed on, not assumed."""
    async with (
        h2_peer(echo, tls=a_server(protocols=protocols)) as peer,
        a_channel(peer, tls=tls_context(ca=CA)) as channel,
    ):
        with pytest.raises(CallError, match="failed to connect"):
            await say(channel)


async def test_plain_text_to_a_tls_port_fails() -> None:
    """A forgotten setting is an error at once, not a wait."""
    async with h2_peer(echo, tls=a_server()) as peer, a_channel(peer) as channel:
        with pytest.raises(CallError, match="failed to connect"):
            await say(channel)


def has_ipv6() -> bool:
    """Return whether this machine has an IPv6 loopback."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 loopback here")
async def test_a_worker_can_have_an_ipv6_address() -> None:
    """The authority has brackets, the connection has none."""
    async with h2_peer(echo, host="::1") as peer, a_channel(peer, host="::1") as channel:
        assert await say(channel) == b"ok"

        (request,) = peer.connections[0].events(h2.events.RequestReceived)
    assert (b":authority", b"[::1]:%d" % peer.port) in request.headers
