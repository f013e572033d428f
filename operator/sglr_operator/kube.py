"""Typed reads and writes of the API server, over ``kubernetes.aio``.

Bodies are decoded straight into the structs of :mod:`sglr_operator.objects`: the client's own
models hold every field of every object and cost ten times as much.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec

from sglr_operator.config import WatchConfig
from sglr_operator.errors import StatusError, UnreachableError, status_error
from sglr_operator.reflector import Event, Key, Listing
from sglr_operator.resources import Resource

logger = logging.getLogger(__name__)

T = TypeVar("T")

_OK = range(200, 300)
_STRAY_BODY = 4096
"""Bytes of an error's body that are read when it is no Status object."""


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    next: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    name: str = ""
    namespace: str = ""


class _Stub(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""


class _ApiResource(msgspec.Struct, frozen=True):
    name: str


class _ApiResources(msgspec.Struct, frozen=True):
    resources: list[_ApiResource] | None = None


class RestClient(Protocol):
    """What is used of ``kubernetes.aio.client.ApiClient``, whose own signatures are untyped."""

    configuration: Any

    async def update_params_for_auth(  # noqa: D102  # the client's documentation holds
        self,
        headers: Any,
        queries: Any,
        auth_settings: Any,
        resource_path: Any,
        method: Any,
        body: Any,
        /,
    ) -> None: ...

    async def call_api(  # noqa: D102  # same
        self,
        method: Any,
        url: Any,
        header_params: Any = None,
        body: Any = None,
        /,
        *,
        _request_timeout: Any = None,
    ) -> Any: ...


class Kube:
    """The API server, as this operator asks it. The caller closes the client."""

    def __init__(self, client: RestClient, *, timeout: float = 10.0) -> None:
        """Ask through *client*; every call but a watch has *timeout* seconds."""
        self._client = client
        self._timeout = timeout

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """Return the body of ``GET path``."""
        return await self._call("GET", path, query=query)

    async def create(self, path: str, body: dict[str, Any]) -> bytes:
        """Return what was created from *body*."""
        return await self._call("POST", path, body=body)

    async def replace(self, path: str, body: dict[str, Any]) -> bytes:
        """Return what replaced the object; its resourceVersion in *body* must be the newest."""
        return await self._call("PUT", path, body=body)

    async def apply(self, path: str, body: dict[str, Any], *, manager: str) -> bytes:
        """Apply *body* by server-side apply as *manager*, taking over fields others hold."""
        query = {"fieldManager": manager, "force": "true"}
        return await self._call(
            "PATCH", path, query=query, body=body, content="application/apply-patch+yaml"
        )

    async def serves(self, resource: Resource) -> bool:
        """Return whether the API server serves *resource* now."""
        try:
            body = await self.get(resource.root)
        except StatusError as error:
            if error.code == 404:  # noqa: PLR2004  # HTTP's number
                return False
            raise
        found = msgspec.json.decode(body, type=_ApiResources).resources or []
        return any(item.name == resource.plural for item in found)

    async def lines(
        self, path: str, query: Mapping[str, str], *, connect: float
    ) -> AsyncGenerator[bytes]:
        """Yield the lines of a watch; the caller bounds the time between them."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect)
        async with self._response("GET", path, query=query, timeout=timeout) as response:
            await _refuse(response)
            buffer = b""
            async for piece in response.content.iter_any():
                *complete, buffer = (buffer + piece).split(b"\n")
                for line in complete:
                    if line:
                        yield line

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: dict[str, Any] | None = None,
        content: str = "application/json",
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        async with self._response(
            method, path, query=query, body=body, content=content, timeout=timeout
        ) as response:
            await _refuse(response)
            return await response.read()

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # it is aiohttp's own, per phase
        query: Mapping[str, str] | None = None,
        body: dict[str, Any] | None = None,
        content: str = "application/json",
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Yield the response, released at the end; its body failing also is UnreachableError."""
        url = f"{self._client.configuration.host}{path}"
        if query:
            url = f"{url}?{urlencode(query)}"
        # The API server's own keys come as a kind of JSON of their own, or are refused with 406.
        accept = "application/json, application/jwk-set+json"
        headers = {"Accept": accept, "Content-Type": content}
        try:
            await self._client.update_params_for_auth(
                headers, [], ["BearerToken"], path, method, body
            )
            answer = await self._client.call_api(
                method, url, headers, body, _request_timeout=timeout
            )
            response: aiohttp.ClientResponse = answer.response
            try:
                yield response
            finally:
                # close, not release: a watch that is cut off still has data on its way.
                response.close() if not response.content.at_eof() else response.release()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(
                f"{method} {path} got no complete answer from the API server:"
                f" {type(error).__name__} {error}"
            ) from error


@dataclass(frozen=True, slots=True)
class KubeSource(Generic[T]):
    """Lists and watches one resource; the :class:`~sglr_operator.reflector.Source` of the house.

    An object that does not decode as *kind* is logged and left out: one bad object must not hide
    the others.
    """

    kube: Kube
    resource: Resource
    kind: type[T]
    config: WatchConfig
    chance: Callable[[], float]
    """Returns a number in [0, 1)."""
    namespace: str = ""
    """Empty: all namespaces."""
    selector: str = ""
    """A label selector, evaluated by the API server."""

    async def list(self) -> Listing[T]:
        """Return everything there is, page by page, at the first page's version."""
        objects: dict[Key, T] = {}
        query = self._query() | {"limit": str(self.config.page)}
        while True:
            async with _deadline(self.config.list_timeout, self.resource.plural):
                body = await self.kube.get(self.resource.path(self.namespace), query)
            page = msgspec.json.decode(body, type=_Page)
            for raw in page.items or ():
                key, value = self._decode(raw)
                if value is not None:
                    objects[key] = value
            if not page.metadata.next:
                return Listing(objects, page.metadata.resource_version)
            query["continue"] = page.metadata.next

    async def watch(self, version: str) -> AsyncGenerator[Event[T]]:
        """Yield what changed since *version*."""
        spread = 0.9 + 0.2 * self.chance()
        query = self._query() | {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(self.config.server_timeout * spread))),
        }
        lines = self.kube.lines(
            self.resource.path(self.namespace), query, connect=self.config.connect_timeout
        )
        try:
            async for line in lines:
                yield self._event(line)
        finally:
            await lines.aclose()

    def _query(self) -> dict[str, str]:
        return {"labelSelector": self.selector} if self.selector else {}

    def _event(self, text: bytes) -> Event[T]:
        try:
            line = msgspec.json.decode(text, type=_Line)
            if line.type == "ERROR":
                status = msgspec.json.decode(line.object, type=_Status)
                raise status_error(status.code, status.reason, status.message)
            stub = msgspec.json.decode(line.object, type=_Stub)
        except msgspec.MsgspecError as error:
            raise UnreachableError(
                f"The watch of {self.resource.plural} delivered a line that is no event: {error}"
            ) from error
        version = stub.metadata.resource_version
        if line.type == "BOOKMARK":
            return Event(version)
        if line.type == "DELETED":
            return Event(version, (stub.metadata.namespace, stub.metadata.name))
        key, value = self._decode(line.object)
        return Event(version, key, value)

    def _decode(self, raw: msgspec.Raw) -> tuple[Key, T | None]:
        stub = msgspec.json.decode(raw, type=_Stub).metadata
        key = (stub.namespace, stub.name)
        try:
            return key, msgspec.json.decode(raw, type=self.kind)
        except msgspec.ValidationError as error:
            logger.warning(
                "object left out",
                extra={"resource": self.resource.plural, "object": key, "problem": str(error)},
            )
            return key, None


@asynccontextmanager
async def _deadline(seconds: float, plural: str) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise UnreachableError(
            f"A page of {plural} took longer than {seconds} s to arrive."
        ) from error


async def _refuse(response: aiohttp.ClientResponse) -> None:
    """Raise what an answer that is no success means."""
    if response.status in _OK:
        return
    body = (await response.read())[:_STRAY_BODY]
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        status = _Status(message=body.decode("utf-8", "replace").strip())
    raise status_error(
        response.status,
        status.reason or response.reason or "",
        status.message,
        retry_after=_seconds(response.headers.get("Retry-After")),
    )


def _seconds(text: str | None) -> float | None:
    """Return a Retry-After header's seconds; None for a date, which no API server sends."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
