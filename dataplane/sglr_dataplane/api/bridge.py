"""One request to the router's own ASGI application, made without a socket.

What surrounds HTTP requests (ids, keys, limits, drain, metrics, the access line) surrounds these
too, because it is the same application: there is no second path that could differ.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from types import TracebackType

    from starlette.types import ASGIApp, Message

logger = logging.getLogger(__name__)

Headers = list[tuple[bytes, bytes]]

_PARTS: Final = 4
"""Writes that may wait for a slow client before the application waits too."""
_FAREWELL_SECONDS: Final = 10.0
"""For the application to end its worker's call after the client left."""


@dataclass(frozen=True, slots=True)
class Head:
    """How an answer begins."""

    status: int
    headers: Headers

    def header(self, name: bytes) -> str | None:
        """Return the header *name*, given in lower case; None where it is absent."""
        return next((v.decode("latin-1") for k, v in self.headers if k.lower() == name), None)


class AnswerLostError(Exception):
    """The application failed, and had no answer, or not all of one."""


class AsgiCall:
    """A request that runs while its context is entered; leaving it early cancels the request."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        method: str,
        path: str,
        headers: Headers,
        body: bytes = b"",
        protocol: str,
    ) -> None:
        """Ask *app* for *path*; nothing runs yet. The access line says which *protocol* it came by."""
        self._app = app
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "2",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": headers,
            "client": None,
            "server": None,
            "state": {"facts": {"protocol": protocol}},
        }
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self._head: asyncio.Future[Head | None] = asyncio.get_running_loop().create_future()
        self._sent, self._parts = anyio.create_memory_object_stream[bytes](_PARTS)
        self._task: asyncio.Task[None] | None = None
        self._is_complete = False

    async def __aenter__(self) -> Self:
        """Begin."""
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Leave: what still runs learns that nobody listens, and is waited for."""
        self._gone.set()
        self._parts.close()
        assert self._task is not None  # noqa: S101  # entered
        _, late = await asyncio.wait({self._task}, timeout=_FAREWELL_SECONDS)
        for task in late:
            task.cancel()

    async def head(self) -> Head:
        """Return how the answer begins, once it does.

        Raises:
            AnswerLostError: The application ended without one; the log has the reason.
        """
        head = await asyncio.shield(self._head)
        if head is None:
            raise AnswerLostError
        return head

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the answer's body as it is written.

        Raises:
            AnswerLostError: The application ended before it was complete; the log has the reason.
        """
        async for part in self._parts:
            yield part
        assert self._task is not None  # noqa: S101  # entered
        await asyncio.wait({self._task})
        if not self._is_complete:
            raise AnswerLostError

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        except Exception:
            logger.exception("request failed unexpectedly", extra={"path": self._scope["path"]})
        else:
            self._is_complete = True
        finally:
            if not self._head.done():
                self._head.set_result(None)
            self._sent.close()

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._head.set_result(Head(message["status"], list(message.get("headers", ()))))
            return
        if body := message.get("body", b""):
            try:
                await self._sent.send(body)
            except anyio.BrokenResourceError:
                return  # nobody listens any more; a socket's server is silent about it too
        if not message.get("more_body", False):
            self._sent.close()


async def read_all(parts: AsyncIterator[bytes]) -> bytes:
    """Return *parts* as one."""
    return b"".join([part async for part in parts])


def json_headers(given: Iterable[tuple[str, str]]) -> Headers:
    """Return the headers of a JSON request that also has those *given*."""
    named = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in given]
    return [(b"content-type", b"application/json"), *named]
