"""The router process: serves until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from sglr_dataplane.api.admin import serving_admin
from sglr_dataplane.api.server import (
    DrainingServer,
    address_of,
    follow_certificate,
    listen,
    new_server,
)
from sglr_dataplane.app.router import FleetEndedError, Inherited, Router

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from sglr_dataplane.config import RouterConfig
    from sglr_dataplane.fleet.intake_config import IntakeConfig

logger = logging.getLogger(__name__)


async def serve(
    config: RouterConfig,
    *,
    on_listening: Callable[[str, Callable[[], None]], None],
    operator: IntakeConfig | None = None,
    inherited: Inherited | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT, or until stopped.

    Args:
        config: What to serve, and where.
        on_listening: Called once connections are accepted, with ``host:port`` and a function that
            ends serving: running answers are finished first.
        operator: Who says which backends exist; None reads the manifest instead.
        inherited: What this process has from its supervisor; None: it is alone.

    Raises:
        AddressInUseError: The address cannot be listened on.
        ManifestError: The manifest cannot be read at the start.
        KeysFileError: Nor can the file with keys.
        TlsFilesError: Nor can the certificate.
        AdminRefusedError: The admin port would be open to everybody.
        TracingMissingError: Traces are asked for, and nothing can make them.
        FleetEndedError: What follows the backends broke; answers that ran were finished.
    """
    router = Router(config, operator, inherited)
    router.keys.load()
    if operator is None:
        # A manifest that is wrong from the start ends the process, with its sentence.
        router.load_manifest()
    listener = inherited.listener if inherited is not None else listen(config.host, config.port)
    server = new_server(router.app, router.drain, config.tls, config.limits)
    address = address_of(listener)
    router.on_failure = server.stop
    async with _beside(router, config, server, inherited):
        with server.taking_signals():
            logger.info("listening", extra={"address": address})
            on_listening(address, server.stop)
            await server.serve(sockets=[listener])
    if router.failure is not None:
        raise FleetEndedError("The router stopped: its fleet broke.") from router.failure


@asynccontextmanager
async def _beside(
    router: Router, config: RouterConfig, server: DrainingServer, inherited: Inherited | None
) -> AsyncGenerator[None]:
    """Serve the admin and gRPC ports, and follow the certificate, within the block."""
    async with AsyncExitStack() as stack:
        if config.tls is not None:
            following = follow_certificate(server, config.tls, config.reload_interval)
            stack.push_async_callback(_ended, asyncio.create_task(following))
        if config.admin is not None:
            await stack.enter_async_context(
                serving_admin(
                    config.admin,
                    router.registry,
                    router.drain,
                    clock=time.monotonic,
                    listener=inherited.admin if inherited is not None else None,
                    siblings=inherited.siblings if inherited is not None else None,
                )
            )
        if config.grpc is not None:
            # Its gRPC stack is 15 MB that routers without it need not carry.
            from sglr_dataplane.inference import serving_inference

            await stack.enter_async_context(
                serving_inference(
                    config.grpc,
                    router.app,
                    tls=config.tls,
                    max_body_bytes=config.limits.max_body_bytes,
                )
            )
        yield


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
