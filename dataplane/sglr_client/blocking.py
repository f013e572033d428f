"""A transport that is written for asyncio, for a blocking client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

import httpx2

from sglr_client.deadlines import cut

T = TypeVar("T")


class Blocking(httpx2.BaseTransport):
    """Runs an asyncio transport on a loop in a thread of its own; its waits end when a call's do."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, *, name: str) -> None:
        """Run *transport*, and close it at the end; the thread is called after *name*."""
        self._transport = transport
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"sglr-client-{name}", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Blocking {self._transport!r}>"

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the answer to *request*.

        Raises:
            httpx2.TransportError: There was none, or not in time.
        """
        response = self.within(request, self._transport.handle_async_request(request))
        body = response.stream
        assert isinstance(body, httpx2.AsyncByteStream)  # noqa: S101  # of an asyncio transport
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Body(body, request, self),
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what *work* returns, done on the transport's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def within(self, request: httpx2.Request, work: Coroutine[Any, Any, T]) -> T:
        """Return what *work* returns, in the time *request* has for the next piece."""
        waits = request.extensions.get("timeout", {})
        return self.run(_within(cut(waits.get("read")), work))

    def close(self) -> None:
        """Close the transport and end the thread."""
        if self._loop.is_closed():
            return
        self.run(self._transport.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Body(httpx2.SyncByteStream):
    def __init__(
        self, body: httpx2.AsyncByteStream, request: httpx2.Request, transport: Blocking
    ) -> None:
        self._body = body
        self._request = request
        self._transport = transport

    def __iter__(self) -> Iterator[bytes]:
        parts = aiter(self._body)
        while part := self._transport.within(self._request, _next(parts)):
            yield part

    def close(self) -> None:
        self._transport.run(self._body.aclose())


async def _next(parts: AsyncIterator[bytes]) -> bytes:
    return await anext(parts, b"")


async def _within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise httpx2.ReadTimeout("The wait was too long.") from error
