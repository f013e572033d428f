"""A blocking HTTP transport whose every wait ends when the call's time does.

httpx's own timeouts bound single reads: a server that trickles bytes outlives any of them. Here
the thread that makes a call says until when, and each wait of the socket is cut to that.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import httpcore2
import httpx2

_until: ContextVar[float | None] = ContextVar("sglr_client_until", default=None)

_SHORTEST: Final = 1e-3
"""Seconds; a socket timeout of 0 would mean "do not wait", which is another error."""


@contextmanager
def within(seconds: float | None) -> Generator[None]:
    """Let no wait of this thread's transports last longer than *seconds* from now; None: any."""
    token = _until.set(None if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


def is_over() -> bool:
    """Say whether the time of `within` has passed."""
    until = _until.get()
    return until is not None and time.monotonic() >= until - _SHORTEST


def cut(timeout: float | None) -> float | None:
    """Return *timeout*, or what is left of the time of `within` if that is shorter."""
    until = _until.get()
    if until is None:
        return timeout
    left = max(_SHORTEST, until - time.monotonic())
    return left if timeout is None else min(left, timeout)


class DeadlineStream(httpcore2.NetworkStream):
    """A socket whose waits are cut."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        """Wrap *stream*."""
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what there is, at least one byte; ``b""`` at the end."""
        return self._stream.read(max_bytes, cut(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of *buffer*."""
        self._stream.write(buffer, cut(timeout))

    def close(self) -> None:
        """Close the socket."""
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.NetworkStream:
        """Return the stream inside TLS."""
        inner = self._stream.start_tls(ssl_context, server_hostname, cut(timeout))
        return DeadlineStream(inner)

    def get_extra_info(self, info: str) -> Any:
        """Return what the socket knows."""
        return self._stream.get_extra_info(info)


class DeadlineBackend(httpcore2.SyncBackend):
    """Connects, with waits that are cut."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        """Return a connected stream."""
        return DeadlineStream(
            super().connect_tcp(host, port, cut(timeout), local_address, socket_options)
        )


_NAMES: Final = (
    "ConnectError",
    "ConnectTimeout",
    "LocalProtocolError",
    "PoolTimeout",
    "ReadError",
    "ReadTimeout",
    "RemoteProtocolError",
    "UnsupportedProtocol",
    "WriteError",
    "WriteTimeout",
)
_CLASSES: Final[dict[type[Exception], type[httpx2.TransportError]]] = {
    getattr(httpcore2, name): getattr(httpx2, name) for name in _NAMES
}


@contextmanager
def _renamed() -> Generator[None]:
    """Raise the pool's errors under httpx's names."""
    try:
        yield
    except tuple(_CLASSES) as error:
        raise _CLASSES[type(error)](str(error)) from error


class _Body(httpx2.SyncByteStream):
    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        with _renamed():
            yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


class DeadlineTransport(httpx2.BaseTransport):
    """A connection pool with `within`; for any number of threads."""

    def __init__(self, context: ssl.SSLContext, limits: httpx2.Limits, *, http2: bool) -> None:
        """Begin without connections."""
        self._pool = httpcore2.ConnectionPool(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            http2=http2,
            network_backend=DeadlineBackend(),
        )

    def __repr__(self) -> str:
        return f"<DeadlineTransport {self._pool!r}>"

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send *request* and return its answer, the body unread."""
        sent = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _renamed():
            answer = self._pool.handle_request(sent)
        return httpx2.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer),
            extensions=answer.extensions,  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]  # httpcore2 says dict, of nothing
        )

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()
