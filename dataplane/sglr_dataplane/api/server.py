"""The HTTP server: uvicorn with an ending of its own, and its listening socket."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from sglr_dataplane.api.http_protocol import BoundedProtocol
from sglr_dataplane.config import Limits

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from sglr_dataplane.api.drain import Drain
    from sglr_dataplane.config import ServerTls

logger = logging.getLogger(__name__)

_DEFAULTS: Final = Limits()
_BACKLOG: Final = 2048
_KEEP_ALIVE_SECONDS: Final = 120
"""Above the 60 to 75 s after which common load balancers close an idle connection: the side that
closes first must not be ours."""
_UNSENT: Final = 128 * 1024
"""Bytes that the kernel takes for a client that reads more slowly than its worker writes. Without
a limit it takes 2.6 MiB for each (500 clients that never read: 1.3 GiB); what is on its way in the
network does not count, so nobody who reads is slower for it."""
_CLOSING_SECONDS: Final = 3
"""For connections whose answer is complete: only tidiness waits."""


class AddressInUseError(Exception):
    """The address to listen on is taken, or not one of this machine's."""


class TlsFilesError(Exception):
    """The certificate or the key to serve with cannot be used."""


class DrainingServer(uvicorn.Server):
    """A server that drains at the first signal, with its listener open, and exits at the second.

    uvicorn alone closes its listener at once, and raises the signal again at the end.
    """

    def __init__(self, config: uvicorn.Config, drain: Drain) -> None:
        """Serve until *drain* is over."""
        super().__init__(config)
        self._drain = drain
        self._draining: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Take none: :meth:`taking_signals` does, before anybody can send one."""
        yield

    @contextmanager
    def taking_signals(self) -> Generator[None]:
        """Drain on SIGTERM and SIGINT within the block, where a main thread's loop can take them."""
        loop = asyncio.get_running_loop()
        taken: list[signal.Signals] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, self._heard, number)
            except (RuntimeError, ValueError):  # not the main thread
                break
            taken.append(number)
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)

    def stop(self, *, settle: bool = False) -> None:
        """Begin to end: finish what runs; with *settle* take new requests for a while."""
        if self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._end(settle=settle))

    def _heard(self, number: signal.Signals) -> None:
        logger.info("signal", extra={"signal": number.name})
        if self._draining is not None:
            self.force_exit = self.should_exit = True
            return
        # Ctrl-C is typed by somebody who waits; SIGTERM comes from what also moves the traffic.
        self.stop(settle=number is signal.SIGTERM)

    async def _end(self, *, settle: bool) -> None:
        try:
            await self._drain.run(settle=settle)
        finally:
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close everything; uvicorn's own, after the drain."""
        await super().shutdown(sockets)
        if self.force_exit:
            # uvicorn leaves it out, and the connections to workers would be reset unannounced.
            await self.lifespan.shutdown()
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.wait({self._draining})


def new_server(
    app: ASGIApp, drain: Drain, tls: ServerTls | None = None, limits: Limits = _DEFAULTS
) -> DrainingServer:
    """Return a server of *app*; of *limits* it holds requests to that of their headers.

    Raises:
        TlsFilesError: The certificate or its key cannot be used.
    """
    options: dict[str, Any] = {}
    if tls is not None:
        options = {
            "ssl_certfile": tls.certificate,
            "ssl_keyfile": tls.key,
            "ssl_ca_certs": tls.client_ca,
            "ssl_cert_reqs": ssl.CERT_REQUIRED if tls.client_ca else ssl.CERT_NONE,
        }
    config = uvicorn.Config(
        app,
        loop="none",
        http=_bounded(limits),
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # who stands before a proxy is nothing that anything here goes by
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_CLOSING_SECONDS,
        **options,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise TlsFilesError(f"The TLS files cannot be used: {error}.") from error
    return DrainingServer(config, drain)


def _bounded(limits: Limits) -> type[BoundedProtocol]:
    """Return the protocol, with requests' headers held to *limits*."""
    held = replace(BoundedProtocol.limits, head_bytes=limits.max_header_bytes)
    return type("BoundedProtocol", (BoundedProtocol,), {"limits": held})


async def follow_certificate(server: uvicorn.Server, tls: ServerTls, interval: float) -> None:
    """Load the certificate of *server* again whenever its files change, for ever.

    Connections that are open keep what they have; the next handshake has the new one.
    """
    stamps = _stamps(tls)
    while True:
        await asyncio.sleep(interval)
        found = await asyncio.to_thread(_stamps, tls)
        if found == stamps:
            continue
        try:
            context = server.config.ssl
            assert context is not None  # noqa: S101  # a server with TLS has one
            context.load_cert_chain(tls.certificate, tls.key)
        except (OSError, ssl.SSLError) as error:
            # The pair may be half-way through its change: the next look sees both.
            logger.warning("certificate not usable yet", extra={"problem": str(error)})
        else:
            stamps = found
            logger.info("certificate loaded")


def _stamps(tls: ServerTls) -> tuple[float, ...]:
    try:
        return tuple(Path(path).stat().st_mtime_ns for path in (tls.certificate, tls.key))
    except OSError:
        return ()


def address_of(listener: socket.socket) -> str:
    """Return ``host:port`` of *listener*, IPv6 hosts in brackets."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """Return a socket that listens; *option* is what the error tells people to change.

    Raises:
        AddressInUseError: It cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise AddressInUseError(
            f"Cannot listen on {host}:{port}: {error.strerror}. Choose another {option}; "
            "0 takes any free one."
        ) from error
    return listener
