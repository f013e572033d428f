"""The admin port: what operators look at, and nobody else."""

from __future__ import annotations

import asyncio
import hmac
import logging
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from sglr_dataplane.api.http_protocol import BoundedProtocol
from sglr_dataplane.api.server import address_of, listen
from sglr_dataplane.fleet.across import backends_together
from sglr_dataplane.fleet.observe import describe

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator, Callable, Generator

    from starlette.requests import Request

    from sglr_dataplane.api.drain import Drain
    from sglr_dataplane.config import AdminConfig
    from sglr_dataplane.fleet.registry import Registry
    from sglr_dataplane.fleet.siblings import Siblings


logger = logging.getLogger(__name__)

_CLOSING_SECONDS: Final = 2.0


class AdminRefusedError(Exception):
    """The admin port would be open to everybody, or its token cannot be read."""


class Admin:
    """``/debug/workers``: every backend, its queue and its workers, as this router sees them."""

    def __init__(
        self,
        registry: Registry,
        drain: Drain,
        *,
        token: str | None,
        clock: Callable[[], float],
        siblings: Siblings | None = None,
    ) -> None:
        """Answer from *registry*.

        Args:
            registry: Who there is.
            drain: Whether the process is ending.
            token: What callers must show; None lets everybody ask, on loopback only.
            clock: The fleet's.
            siblings: The router's other processes, which are answered for as well.
        """
        self._siblings = siblings
        self._registry = registry
        self._drain = drain
        self._token = token
        self._clock = clock
        self.app = Starlette(routes=[Route("/debug/workers", self.workers)])

    async def workers(self, request: Request) -> Response:
        """Return the fleet as JSON."""
        if not self._may_ask(request):
            return Response(
                b'{"error":{"message":"The admin token is needed."}}',
                401,
                {"WWW-Authenticate": "Bearer"},
                "application/json",
            )
        others = await asyncio.to_thread(self._siblings.others) if self._siblings else []
        own = describe(self._registry, self._clock())
        content = {
            "phase": self._drain.phase.value,
            "processes": 1 + len(others),
            "requests": self._drain.active + sum(other.requests for other in others),
            "backends": backends_together([own, *(other.backends for other in others)]),
        }
        return Response(orjson.dumps(content), media_type="application/json")

    def _may_ask(self, request: Request) -> bool:
        if self._token is None:
            return True
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(shown.encode(), self._token.encode())


@asynccontextmanager
async def serving_admin(
    config: AdminConfig,
    registry: Registry,
    drain: Drain,
    *,
    clock: Callable[[], float],
    listener: socket.socket | None = None,
    siblings: Siblings | None = None,
) -> AsyncGenerator[str]:
    """Serve the admin port within the block, and return where.

    With *siblings* every process serves it, on the *listener* that all have, and each for all.

    Raises:
        AdminRefusedError: It would be open to everybody.
        AddressInUseError: It cannot listen there.
    """
    admin = Admin(registry, drain, token=admin_token(config), clock=clock, siblings=siblings)
    if listener is None:
        listener = listen(config.host, config.port, "--admin-port")
    server = _Quiet(
        uvicorn.Config(
            admin.app,
            loop="none",
            http=BoundedProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
        )
    )
    task = asyncio.create_task(server.serve(sockets=[listener]))
    logger.info("admin listening", extra={"address": address_of(listener)})
    try:
        yield address_of(listener)
    finally:
        server.should_exit = True
        await asyncio.wait({task}, timeout=_CLOSING_SECONDS)
        task.cancel()


class _Quiet(uvicorn.Server):
    """uvicorn's server without its signals: they are the main port's."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Take none."""
        yield


def admin_token(config: AdminConfig) -> str | None:
    """Return what callers of the admin port must show; None lets everybody ask.

    Raises:
        AdminRefusedError: It would be open to everybody, or its token cannot be read.
    """
    if config.token_file is None:
        if config.host not in {"127.0.0.1", "::1", "localhost"}:
            raise AdminRefusedError(
                f"The admin port on {config.host} needs --admin-token-file: it shows addresses."
            )
        return None
    try:
        token = Path(config.token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AdminRefusedError(f"The admin token {config.token_file!r} is unreadable.") from error
    if not token:
        raise AdminRefusedError(f"The admin token {config.token_file!r} is empty.")
    return token
