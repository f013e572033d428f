"""Health, metrics and the debug page over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from sglr_operator.config import Address

Probe = Callable[[], tuple[str, ...]]
"""Returns what is wrong, one sentence each; nothing when all is well."""


def health_app(
    *, live: Probe, ready: Probe, refresh: Callable[[], None], registry: CollectorRegistry
) -> web.Application:
    """Return /livez, /readyz and /metrics; *refresh* sets gauges just before they are read."""

    async def livez(_request: web.Request) -> web.Response:
        return _verdict(live())

    async def readyz(_request: web.Request) -> web.Response:
        return _verdict(ready())

    async def metrics(_request: web.Request) -> web.Response:
        refresh()
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.add_routes(
        [web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)]
    )
    return app


def debug_app(snapshot: Callable[[], Mapping[str, Any]]) -> web.Application:
    """Return /debug/snapshot: what routers are told and what they answered."""

    async def show(_request: web.Request) -> web.Response:
        body = msgspec.json.format(msgspec.json.encode(snapshot()), indent=2)
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.add_routes([web.get("/debug/snapshot", show)])
    return app


@asynccontextmanager
async def serving(app: web.Application, address: Address) -> AsyncGenerator[Address]:
    """Serve *app*, and yield the address with the port the kernel chose.

    Raises:
        OSError: The address is taken.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, address.host, address.port).start()
        yield Address(address.host, int(runner.addresses[0][1]))
    finally:
        await runner.cleanup()


def _verdict(problems: tuple[str, ...]) -> web.Response:
    if problems:
        return web.Response(text="\n".join(problems) + "\n", status=503)
    return web.Response(text="ok\n")
