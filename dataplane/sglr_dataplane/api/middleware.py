"""What surrounds every request: its id, its path as meant, its log line and its metrics."""

from __future__ import annotations

import logging
import re
from binascii import hexlify
from http import HTTPStatus
from os import urandom
from typing import TYPE_CHECKING, Final

from sglr_dataplane.api.faults import ClientGoneError
from sglr_dataplane.log import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from sglr_dataplane.metrics import RouterMetrics

logger = logging.getLogger("sglr_dataplane.access")

_VISIBLE_ASCII: Final = re.compile(rb"[!-~]{1,128}")
_EXTRA_SLASHES: Final = re.compile(r"^/+v1/+models(?=/|$)")
QUIET: Final = frozenset({"/livez", "/readyz", "/health", "/metrics"})
"""Paths that probes and scrapes ask for, every few seconds; they say nothing about users."""
# Metric labels must be bounded: whatever is not a route shares one value.
_ROUTES: Final = (
    frozenset(
        {
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/responses",
            "/v1/embeddings",
            "/v1/tokenize",
            "/v1/detokenize",
            "/tokenize",
            "/detokenize",
            "/v1/rerank",
            "/rerank",
            "/v1/score",
            "/score",
            "/v1/classify",
            "/classify",
            "/v1/models",
            "/generate",
            "/openapi.json",
            "/version",
        }
    )
    | QUIET
)


def route_of(path: str) -> str:
    """Return the route of *path*; ``other`` for what is none."""
    if path in _ROUTES:
        return path
    return "/v1/models/{id}" if path.startswith("/v1/models/") else "other"


class RequestId:
    """Gives every request an id and puts it on the answer, errors and streams included."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap *app*."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the client's ``x-request-id`` where it is 1 to 128 visible characters, else make one."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = _first(scope["headers"], b"x-request-id")
        request_id = given if _VISIBLE_ASCII.fullmatch(given) else b"req_" + hexlify(urandom(12))
        scope.setdefault("state", {})["request_id"] = request_id.decode()

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        await self._app(scope, receive, named)


def _first(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> bytes:
    """Return the first value of the header *wanted*; ``b""`` when there is none."""
    for name, value in headers:
        if name == wanted:
            return value
    return b""


class PathAsMeant:
    """Serves ``/v1//models`` and trailing slashes as what they mean, without a redirect.

    Slashes collapse before ``models`` only: a model's id may begin with one.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Wrap *app*."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Rewrite the path and go on."""
        if scope["type"] == "http":
            path = _EXTRA_SLASHES.sub("/v1/models", scope["path"])
            if not path.startswith("/v1/models/") or path == "/v1/models/":
                path = path.rstrip("/") or "/"
            scope["path"] = path
        await self._app(scope, receive, send)


class Access:
    """Counts and times every request and writes one line about it: never its content."""

    def __init__(
        self, app: ASGIApp, *, metrics: RouterMetrics, clock: Callable[[], float], log: bool
    ) -> None:
        """Wrap *app*; *clock* gives seconds from any fixed point."""
        self._app = app
        self._metrics = metrics
        self._clock = clock
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application between two readings of the clock."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = self._clock()
        scope["state"]["arrived"] = begin
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        quiet = scope["path"] in QUIET
        if not quiet:
            self._metrics.in_flight.inc()
        try:
            await self._app(scope, receive, watched)
        except ClientGoneError:
            # 499 is nginx's word for a client that left; nobody receives it.
            scope["state"]["failure"] = "client_closed_request"
            status = status or 499
        finally:
            if not quiet:
                self._metrics.in_flight.dec()
            self._tell(scope, status, self._clock() - begin, quiet=quiet)

    def _tell(self, scope: Scope, status: int, seconds: float, *, quiet: bool) -> None:
        failure = scope["state"].get("failure")
        route = route_of(scope["path"])
        outcome = failure or _outcome(status)
        self._metrics.requests.labels(route, outcome).inc()
        self._metrics.duration.labels(route).observe(seconds)
        if self._log and not quiet:
            tell(
                logger,
                "request",
                {
                    "request_id": scope["state"]["request_id"],
                    "method": scope["method"],
                    "path": route,
                    "status": status,
                    "seconds": round(seconds, 4),
                    "failure": failure,
                    **scope["state"].get("facts", {}),
                },
            )


def _outcome(status: int) -> str:
    """Return how a request ended that no error class speaks for."""
    if 0 < status < HTTPStatus.BAD_REQUEST:
        return "ok"
    # A probe's honest answer is no failure of a request.
    return "not_ready" if status == HTTPStatus.SERVICE_UNAVAILABLE else "internal_error"
