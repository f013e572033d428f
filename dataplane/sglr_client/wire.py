"""The blocking wire: performs the steps of a flow with httpx, in the caller's thread."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any

import httpx2

from sglr_client.deadlines import is_over, within
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


class Wire:
    """One call's use of the network; holds at most one connection."""

    def __init__(
        self, http: httpx2.Client, address: Address, limits: Limits, pool: PoolUse
    ) -> None:
        """Send with *http* to *address*."""
        self._http = http
        self._address = address
        self._limits = limits
        self._pool = pool
        self._response: httpx2.Response | None = None
        self._counted = False
        self._parts: Iterator[bytes] = iter(())

    def __repr__(self) -> str:
        return f"<Wire {self._response or 'idle'}>"

    def perform(self, step: Send | Read | Sleep) -> Any:
        """Return what *step* gives.

        Raises:
            ClientError: The network or the time did not suffice.
        """
        if isinstance(step, Sleep):
            self.hang_up()
            time.sleep(step.seconds)
            return None
        with within(step.seconds):
            try:
                return self._send(step) if isinstance(step, Send) else next(self._parts, b"")
            except httpx2.TransportError as error:
                if isinstance(error, httpx2.TimeoutException) and is_over():
                    raise total_passed() from error
                in_body = isinstance(step, Read)
                raise translated(error, in_body=in_body, limits=self._limits) from error

    def hang_up(self) -> None:
        """Give the connection back, or close it if the answer was not read to its end."""
        if self._counted:
            self._counted = False
            self._pool.change(-1)
        response, self._response = self._response, None
        if response is not None:
            self._parts = iter(())
            response.close()

    def _send(self, step: Send) -> Head:
        self.hang_up()
        if self._http.is_closed:
            raise ClientClosedError("The client is closed.")
        request = request_of(step, self._address, self._http.headers)
        self._pool.change(1)
        self._counted = True
        self._response = self._http.send(request, stream=True)
        await_body(request, step)
        self._parts = self._response.iter_bytes()
        return head_of(self._response)


def walk(flow: Flow, wire: Wire) -> Generator[Any]:
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
                given = wire.perform(step)
            except ClientError as error:
                failure = error
    except StopIteration:
        return
    finally:
        flow.close()
        wire.hang_up()
