"""The client library's interface in process: straight to workers, without an HTTP front.

A router runs inside the program: the same templates, policies, retries, breakers and limits, and
nothing listens. What answers over HTTP answers here, because a call is a request to the router's
own application.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Unpack

import httpx2

from sglr_client import AsyncClient, Client
from sglr_client.blocking import Blocking
from sglr_client.settings import Settings
from sglr_dataplane.api.bridge import AnswerLostError, AsgiCall
from sglr_dataplane.app import Router
from sglr_dataplane.config import RouterConfig

_URL: Final = "http://in-process"


@asynccontextmanager
async def direct_async_client(
    manifest: str | Path, config: RouterConfig | None = None, **settings: Unpack[Settings]
) -> AsyncGenerator[AsyncClient]:
    """Yield an asyncio client of the backends in *manifest*, whose workers it asks directly.

    ``await client.wait_for_model(name, timeout)`` returns once one can answer.

    Args:
        manifest: Path of a file with SGLangBackend documents; reloaded when it changes.
        config: The router's limits, cache and log; its ports and keys have no part in it.
        settings: See ``sglr_client.settings.Settings``.

    Raises:
        ManifestError: The manifest cannot be read.
    """
    transport = DirectTransport(manifest, config)
    async with AsyncClient(_URL, http=transport, **settings) as client:
        await transport.open()
        yield client


@contextmanager
def direct_client(
    manifest: str | Path, config: RouterConfig | None = None, **settings: Unpack[Settings]
) -> Generator[Client]:
    """Yield a blocking client of the backends in *manifest*; see `direct_async_client`."""
    transport = DirectTransport(manifest, config)
    blocking = Blocking(transport, name="direct")
    with Client(_URL, http=blocking, **settings) as client:
        blocking.run(transport.open())
        yield client


class DirectTransport(httpx2.AsyncBaseTransport):
    """Carries a client's calls to a router of its own, in the running loop."""

    def __init__(self, manifest: str | Path, config: RouterConfig | None = None) -> None:
        """Route to the backends in *manifest*; nothing runs before `open`."""
        self._router = Router(replace(config or RouterConfig(), manifest=str(manifest), keys=None))
        self._running = AsyncExitStack()

    async def open(self) -> None:
        """Read the manifest and begin to look for workers.

        Raises:
            ManifestError: The manifest cannot be read.
        """
        self._router.load_manifest()
        await self._running.enter_async_context(self._router.running())

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the router's answer to *request*.

        Raises:
            httpx2.ReadError: It failed without one; its log has the reason.
        """
        call = AsgiCall(
            self._router.app,
            method=request.method,
            path=request.url.path,
            headers=list(request.headers.raw),
            body=await request.aread(),
            protocol="direct",
        )
        await call.__aenter__()
        try:
            head = await call.head()
        except BaseException as error:
            await call.__aexit__(type(error), error, None)
            if isinstance(error, AnswerLostError):
                raise httpx2.ReadError("The router failed without an answer.") from error
            raise
        return httpx2.Response(head.status, headers=head.headers, stream=_Parts(call))

    async def aclose(self) -> None:
        """End what follows the workers, and the connections to them."""
        await self._running.aclose()


class _Parts(httpx2.AsyncByteStream):
    def __init__(self, call: AsgiCall) -> None:
        self._call = call

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._call.parts():
                yield part
        except AnswerLostError as error:
            raise httpx2.ReadError("The router failed before the answer was complete.") from error

    async def aclose(self) -> None:
        await self._call.__aexit__(None, None, None)
