"""The front door: the one ASGI callable that all that surrounds a request is in.

Its id and its path as meant, its trace, the drain, its key, what it fails with, its metrics and its
line in the log. Each of them is told by plain calls; between them and what answers there is nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.routing import Route

from sglr_dataplane.api.access import QUIET
from sglr_dataplane.api.drain import say_last_words
from sglr_dataplane.api.exchange import Exchange
from sglr_dataplane.api.faults import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.routing import Router as Routes
    from starlette.types import Receive, Scope, Send

    from sglr_dataplane.api.access import Access
    from sglr_dataplane.api.auth import Guard
    from sglr_dataplane.api.drain import Drain
    from sglr_dataplane.api.tracing import Tracing

Endpoint = Callable[[Exchange], Awaitable[None]]
"""What answers a request; raises RouterError and ClientGoneError."""

_EXTRA_SLASHES: Final = re.compile(r"^/+v1/+models(?=/|$)")


class FrontDoor:
    """Lets requests in, and out again with an answer."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        others: Routes,
        *,
        guard: Guard,
        drain: Drain,
        access: Access,
        tracing: Tracing | None,
    ) -> None:
        """Stand before *endpoints* and *others*.

        Args:
            endpoints: What answers what is posted to a path, the busiest things there are.
            others: Answers all other paths, and runs the application's lifespan.
            guard: Knows the keys.
            drain: Hears of every request but the quiet ones, and may refuse or end it.
            access: Counts and logs them.
            tracing: Makes a span of each but the quiet ones; None: nobody asks for traces.
        """
        self._endpoints = endpoints
        self._others = others
        self._guard = guard
        self._drain = drain
        self._access = access
        self._tracing = tracing

    @property
    def served(self) -> set[tuple[str, str]]:
        """Every path, with parameters as routes write them, and a method that it is asked with."""
        asked = {(path, "POST") for path in self._endpoints}
        for route in self._others.routes:
            if isinstance(route, Route):
                asked |= {(route.path, method) for method in route.methods or ()}
        return asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever happens to it."""
        if scope["type"] != "http":
            await self._others(scope, receive, send)
            return
        endpoint = self._endpoints.get(scope["path"])
        if endpoint is None or scope["method"] != "POST":
            endpoint = self._find(scope)
        access = self._access
        exchange = Exchange(scope, receive, send, access.clock())
        if exchange.path in QUIET:
            await self._answer_quietly(exchange)
            return
        access.in_flight.inc()
        trace = self._tracing.request(exchange) if self._tracing is not None else None
        try:
            try:
                self._drain.enter(exchange)
                self._guard.admit(exchange)
                await endpoint(exchange)
            except Exception as error:  # noqa: BLE001  # the top of the request's task
                await refuse(exchange, error)
        except asyncio.CancelledError:
            if not self._drain.ends(exchange):
                raise
            await say_last_words(exchange)
        finally:
            if exchange.key is not None:
                self._guard.leave(exchange.key)
            self._drain.leave(exchange)
            if trace is not None:
                trace.end()
            access.in_flight.dec()
            access.tell(exchange)

    def _find(self, scope: Scope) -> Endpoint:
        """Return what answers a request that is none of the busiest, once its path is as meant."""
        path = scope["path"] = _as_meant(scope["path"])
        endpoint = self._endpoints.get(path)
        if endpoint is None:
            scope["app"] = self  # Starlette's routes raise what fails only within an application
            return self._answer_as_others
        return endpoint if scope["method"] == "POST" else _only_post

    async def _answer_as_others(self, exchange: Exchange) -> None:
        await exchange.answer_with(self._others)

    async def _answer_quietly(self, exchange: Exchange) -> None:
        """Answer a probe or a scrape: whoever asks, and to the end."""
        self._guard.disarm(exchange)
        try:
            await exchange.answer_with(self._others)
        except Exception as error:  # noqa: BLE001  # the top of the request's task
            await refuse(exchange, error)
        finally:
            self._access.tell(exchange, is_quiet=True)


async def _only_post(_exchange: Exchange) -> None:
    raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "POST"})


def _as_meant(path: str) -> str:
    """Return *path* without what makes ``/v1//models`` and trailing slashes another path.

    Slashes collapse before ``models`` only: a model's id may begin with one.
    """
    path = _EXTRA_SLASHES.sub("/v1/models", path)
    if not path.startswith("/v1/models/") or path == "/v1/models/":
        path = path.rstrip("/") or "/"
    return path
