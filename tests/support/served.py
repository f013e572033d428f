"""The router's HTTP server around any application, on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from sglr_dataplane.api.server import listen

if TYPE_CHECKING:
    from uvicorn import Server

_SECONDS: Final = 10.0


@asynccontextmanager
async def served(server: Server) -> AsyncGenerator[int]:
    """Run *server* for as long as the block lasts, and yield its port."""
    listener = listen("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, _SECONDS)
        listener.close()
