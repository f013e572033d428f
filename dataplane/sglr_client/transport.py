"""What both wires share of HTTP: URLs, requests, pools, and the names of what fails."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from sglr_client.errors import (
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    DeadlineError,
    TlsError,
)
from sglr_client.limits import Limits
from sglr_client.steps import Head, Send

Tls = ssl.SSLContext | bool
"""A context; True: the system's authorities; False: no verification, for tests only."""


class InvalidRequestPartError(ClientError):
    """A header or URL of ours cannot be sent."""

    kind = "unsendable"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is.

    Attributes:
        root: Scheme, host, port and path prefix, without a trailing slash or ``/v1``.
    """

    root: str

    @classmethod
    def of(cls, base_url: str) -> Address:
        """Read *base_url*, with or without ``/v1``.

        Raises:
            ValueError: It is not an absolute http or https URL.
        """
        url = httpx2.URL(base_url)
        if url.scheme not in {"http", "https"} or not url.host:
            raise ValueError(
                f"base_url is {base_url!r}; expected a URL such as 'http://localhost:8080'."
            )
        return cls(base_url.rstrip("/").removesuffix("/v1"))

    @property
    def host(self) -> str:
        """The host and port, for people and metrics."""
        return httpx2.URL(self.root).netloc.decode("ascii")

    def url(self, path: str) -> str:
        """Return the URL of *path*."""
        return self.root + path


def default_headers(api_key: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return the headers of each request; *headers* win."""
    # Compression would hold small pieces of a stream back, and costs more than it saves here.
    ours = {"accept-encoding": "identity", "user-agent": "sglr-client"}
    if api_key is not None:
        ours["authorization"] = f"Bearer {api_key}"
    return {**ours, **{name.lower(): value for name, value in (headers or {}).items()}}


def tls_context(tls: Tls, address: Address) -> ssl.SSLContext:
    """Return the context that *tls* stands for, for connections to *address*."""
    if isinstance(tls, ssl.SSLContext):
        return tls
    if address.root.startswith("http:"):
        # Never used; it trusts nobody. Reading the system's authorities takes tens of milliseconds.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.create_default_context()
    if not tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def pool_limits(limits: Limits) -> httpx2.Limits:
    """Return *limits* in the transport's terms: every connection may be kept."""
    return httpx2.Limits(
        max_connections=limits.connections,
        max_keepalive_connections=limits.connections,
        keepalive_expiry=limits.idle_expiry,
    )


def request_of(send: Send, address: Address, headers: Mapping[str, str]) -> httpx2.Request:
    """Return the request; its timeouts are those up to the answer's head, see `await_body`."""
    call, timeouts = send.call, send.timeouts
    own = {name.lower(): value for name, value in call.headers.items()}
    merged = {**headers, "accept": "text/event-stream" if call.stream else "application/json"}
    if call.body is not None:
        merged["content-type"] = "application/json"
    waits = {
        "pool": None if send.seconds is None else send.seconds * _POOL_SHARE,
        "connect": _shorter(timeouts.handshake, send.seconds),
        "write": send.seconds,
        "read": _shorter(timeouts.headers, send.seconds) if call.stream else send.seconds,
    }
    return httpx2.Request(
        "GET" if call.body is None else "POST",
        address.url(call.path),
        content=call.body,
        headers={**merged, **own},
        extensions={"timeout": waits},
    )


def await_body(request: httpx2.Request, send: Send) -> None:
    """Change the request's read timeout from that for the head to that between two pieces."""
    # The transport looks it up when the body's first piece is asked for.
    request.extensions["timeout"]["read"] = _shorter(send.timeouts.idle, send.seconds)


def head_of(response: httpx2.Response) -> Head:
    """Return the beginning of *response*."""
    return Head(response.status_code, response.headers)


def translated(error: Exception, *, in_body: bool, limits: Limits) -> ClientError:
    """Return what *error*, raised by the transport, is for the caller."""
    if isinstance(error, httpx2.PoolTimeout):
        return DeadlineError(
            "pool",
            f"All {limits.connections} connections stayed in use;"
            " Limits(connections=…) says how many there may be.",
        )
    if isinstance(error, httpx2.ConnectTimeout):
        return DeadlineError("connect", "No connection came about in time.")
    if isinstance(error, httpx2.TimeoutException):
        waited_for = "the next piece of the answer" if in_body else "the answer's head"
        return DeadlineError(
            "idle" if in_body else "headers", f"The wait for {waited_for} was too long."
        )
    return _broken(error)


def _broken(error: Exception) -> ClientError:
    if isinstance(error, httpx2.ConnectError):
        reason = f"No connection: {error}."
        return TlsError(reason) if _is_tls(error) else ConnectFailedError(reason)
    if isinstance(error, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
        return InvalidRequestPartError(f"The request cannot be sent: {error}.")
    return ConnectionLostError(
        f"The connection ended before the answer: {error or type(error).__name__}."
    )


def total_passed() -> DeadlineError:
    """Return the error of a call whose whole time has passed."""
    return DeadlineError("total", "The call did not end within its time.")


class PoolUse:
    """Counts the connections in use and tells the sink."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        """Tell each new count to *tell*."""
        self._tell = tell
        self._in_use = 0
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<PoolUse {self._in_use}>"

    def change(self, by: int) -> None:
        """Count *by* more."""
        with self._lock:
            self._in_use += by
            self._tell(self._in_use)


def _shorter(one: float | None, other: float | None) -> float | None:
    bounds = [seconds for seconds in (one, other) if seconds is not None]
    return min(bounds) if bounds else None


_POOL_SHARE: Final = 0.9
"""Of a call's time, to wait for a connection to be free. Later there would be no time left for an
answer, and the error would not say what was missing."""
_TLS_ERRORS: Final = (ssl.SSLError, ssl.CertificateError)


def _is_tls(error: BaseException) -> bool:
    cause: Any = error
    while cause is not None:
        if isinstance(cause, _TLS_ERRORS):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
