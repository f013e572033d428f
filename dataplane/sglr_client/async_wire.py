"""The asyncio wire: performs the steps of a flow with httpx, in the running loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx2

from sglr_client.errors import ClientClosedError, ClientError
from sglr_client.limits import Limits
from sglr_client.steps import Emit, Flow, Head, Read, Send, Sleep
from sglr_client.transport import (
    Address,
    PoolUse,
    await_body,
    head_of,
    request_of,
    total_passed,
    translated,
)


class AsyncWire:
    """One call's use of the network; holds at most one connection."""

    def __init__(
        self, http: httpx2.AsyncClient, address: Address, limits: Limits, pool: PoolUse
    ) -> None:
        """Send with *http* to *address*."""
        self._http = http
        self._address = address
        self._limits = limits
        self._pool = pool
        self._response: httpx2.Response | None = None
        self._counted = False
        self._parts: AsyncIterator[bytes] | None = None

    def __repr__(self) -> str:
        return f"<AsyncWire {self._response or 'idle'}>"

    async def perform(self, step: Send | Read | Sleep) -> Any:
        """Return what *step* gives.

        Raises:
            ClientError: The network or the time did not suffice.
        """
        if isinstance(step, Sleep):
            await self.hang_up()
            await asyncio.sleep(step.seconds)
            return None
        try:
            if step.seconds is None:
                return await self._exchange(step)
            async with asyncio.timeout(step.seconds):
                return await self._exchange(step)
        except TimeoutError as error:
            raise total_passed() from error
        except httpx2.TransportError as error:
            in_body = isinstance(step, Read)
            raise translated(error, in_body=in_body, limits=self._limits) from error

    async def hang_up(self) -> None:
        """Give the connection back, or close it if the answer was not read to its end."""
        if self._counted:
            self._counted = False
            self._pool.change(-1)
        response, self._response = self._response, None
        if response is not None:
            self._parts = None
            await response.aclose()

    async def _exchange(self, step: Send | Read) -> Head | bytes:
        if isinstance(step, Send):
            return await self._send(step)
        return b"" if self._parts is None else await anext(self._parts, b"")

    async def _send(self, step: Send) -> Head:
        await self.hang_up()
        if self._http.is_closed:
            raise ClientClosedError("The client is closed.")
        request = request_of(step, self._address, self._http.headers)
        self._pool.change(1)
        self._counted = True
        self._response = await self._http.send(request, stream=True)
        await_body(request, step)
        self._parts = self._response.aiter_bytes()
        return head_of(self._response)


async def walk(flow: Flow, wire: AsyncWire) -> AsyncGenerator[Any]:
    """Yield what *flow* emits; ending early closes the flow and the connection."""
    given: Any = None
    failure: ClientError | None = None
    try:
        while True:
            step = flow.send(given) if failure is None else flow.throw(failure)
            given = failure = None
            if isinstance(step, Emit):
                yield step.item
                continue
            try:
                given = await wire.perform(step)
            except ClientError as error:
                failure = error
    except StopIteration:
        return
    finally:
        flow.close()
        await wire.hang_up()
