"""A Kubernetes API server for tests, which fails the ways real ones do.

It keeps objects, versions and an event log in memory, and serves lists, pages, watches with
bookmarks, creates, replaces with optimistic locking and server-side apply over HTTP on loopback.
Tests change the truth directly (:meth:`FakeApi.put`, :meth:`FakeApi.delete`) and queue faults.
"""

from __future__ import annotations

import asyncio
import copy
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

from aiohttp import web

from support.kube_wire import (
    Body,
    Call,
    call_of,
    group_entry,
    is_selected,
    resource_entry,
    status_answer,
    write_line,
)

Key = tuple[str, str]

FaultKind = Literal[
    "429",  # too many requests, Retry-After: 0
    "500",
    "403",
    "410",  # as an HTTP status
    "410 event",  # a watch's ERROR line
    "504 version",  # "Too large resource version" as an HTTP status
    "reset",  # the connection is cut before an answer
    "drop",  # the watch is cut, after what it had to say
    "half-open",  # the watch answers and then never says anything
    "stale",  # the list is the one before the last change
    "duplicate",  # the watch replays ADDED for every object it listed
    "bookmarks only",  # the watch swallows events but keeps sending bookmarks
    "delay",  # the answer comes 0.1 s late
]
WATCH_ONLY = {"410 event", "drop", "half-open", "duplicate", "bookmarks only"}
LIST_ONLY = {"stale"}


@dataclass
class Fault:
    """Fail the next *times* requests for *plural*; '' matches every resource."""

    kind: FaultKind
    plural: str = ""
    times: int = 1
    verb: Literal["", "list", "watch", "get", "post", "put", "patch"] = ""


@dataclass
class _Table:
    """One resource: what exists, what existed before the last change, and every event."""

    objects: dict[Key, Body] = field(default_factory=dict)
    before: dict[Key, Body] = field(default_factory=dict)
    before_version: int = 0
    log: list[tuple[int, str, Body]] = field(default_factory=list)


class FakeApi:
    """The server; use :func:`running_api`."""

    def __init__(self) -> None:
        """Start empty, at version 1."""
        self.version = 1
        self.compacted = 0
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.url = ""
        self.is_away = False
        """Cuts every new request without an answer, discovery included."""
        self.bookmark_every = 0.05
        self.bookmarks = 0
        self.has_bookmarks = True
        """False: none are sent, as by servers before 1.21 about what nobody wrote."""
        self.allowed: Callable[[Call], bool] = lambda _call: True
        self.served = {
            "/api/v1": ["pods", "services", "events", "namespaces", "configmaps"],
            "/apis/discovery.k8s.io/v1": ["endpointslices"],
            "/apis/sglr.dev/v1alpha1": ["sglangbackends"],
            "/apis/coordination.k8s.io/v1": ["leases"],
            "/apis/apiextensions.k8s.io/v1": ["customresourcedefinitions"],
        }
        self.pruned: tuple[str, ...] = ()
        """Fields of a status that the schema does not have, and that are dropped."""
        self.openapi: Body | None = None
        """How sglr.dev/v1alpha1 is described; None: not at all, as by old servers."""
        self.tokens: dict[str, Body] = {}
        """Token → the status a TokenReview answers."""
        self._tables: dict[str, _Table] = {}
        self._uids = 0

    # What tests do to the truth.

    def objects(self, plural: str) -> dict[Key, Body]:
        """Return what exists of *plural*."""
        return self._table(plural).objects

    def put(self, plural: str, body: Body) -> Body:
        """Create or replace an object, as the API server would, and tell watches."""
        table = self._table(plural)
        self._remember(table)
        stored = copy.deepcopy(body)
        meta = stored.setdefault("metadata", {})
        meta.setdefault("namespace", "default")
        key = (meta["namespace"], meta["name"])
        old = table.objects.get(key)
        self._fill_in(stored, old)
        self._record(table, "MODIFIED" if old else "ADDED", stored)
        table.objects[key] = stored
        return stored

    def delete(self, plural: str, name: str, namespace: str = "default") -> None:
        """Delete an object and tell watches."""
        table = self._table(plural)
        self._remember(table)
        gone = copy.deepcopy(table.objects.pop((namespace, name)))
        self._record(table, "DELETED", gone)

    def forget(self, plural: str, name: str, namespace: str = "default") -> None:
        """Delete an object without any watch ever saying so."""
        table = self._table(plural)
        self._remember(table)
        self.version += 1
        del table.objects[(namespace, name)]

    def fail(self, kind: FaultKind, plural: str = "", times: int = 1, verb: Any = "") -> None:
        """Queue a fault."""
        self.faults.append(Fault(kind, plural, times, verb))

    def compact(self) -> None:
        """Forget all events so far: older versions are answered with 410."""
        self.compacted = self.version
        for table in self._tables.values():
            table.log.clear()

    def count(self, verb: str, plural: str) -> int:
        """Return how many requests of one verb came for *plural*."""
        return sum(call.verb == verb and call.plural == plural for call in self.calls)

    # The state behind it.

    def _table(self, plural: str) -> _Table:
        return self._tables.setdefault(plural, _Table())

    def _remember(self, table: _Table) -> None:
        table.before = dict(table.objects)
        table.before_version = self.version

    def _fill_in(self, body: Body, old: Body | None) -> None:
        meta = body["metadata"]
        if old is None:
            self._uids += 1
            meta.setdefault("uid", f"uid-{self._uids}")
            meta.setdefault("creationTimestamp", f"2026-01-01T00:00:{self._uids % 60:02d}Z")
            meta.setdefault("generation", 1)
            return
        for name in ("uid", "creationTimestamp"):
            meta.setdefault(name, old["metadata"][name])
        if "status" in old:
            # A write to the object leaves its status subresource alone.
            body.setdefault("status", copy.deepcopy(old["status"]))
        same = old.get("spec") == body.get("spec")
        meta["generation"] = old["metadata"]["generation"] + (0 if same else 1)

    def _record(self, table: _Table, kind: str, body: Body) -> None:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        table.log.append((self.version, kind, copy.deepcopy(body)))

    # HTTP.

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        if self.is_away:
            assert request.transport is not None
            request.transport.abort()
        path = request.path
        discovered = self._discover(path.rstrip("/"))
        if discovered is not None:
            return web.json_response(discovered)
        # /apis/GROUP/VERSION, or what old servers do not describe.
        if path.startswith("/openapi") or (path.startswith("/apis/") and path.count("/") <= 3):
            return status_answer(404, "NotFound", "no such group")
        call = await call_of(request)
        if not call.plural:
            return status_answer(404, "NotFound", "no such group")
        self.calls.append(call)
        if not self.allowed(call):
            return status_answer(403, "Forbidden", f"cannot {call.verb} {call.plural}")
        if call.plural != "tokenreviews" and not self._is_served(path, call.plural):
            return status_answer(
                404, "NotFound", "the server could not find the requested resource"
            )
        return await self._answer(request, call)

    async def _answer(self, request: web.Request, call: Call) -> web.StreamResponse:
        fault = self._fault(call)
        refusal = await self._refusal(request, fault)
        if refusal is not None:
            return refusal
        if call.verb == "watch":
            return await self._watch(request, call, fault)
        return self._respond(call, fault)

    def _discover(self, path: str) -> Body | None:
        """Return what discovery says at *path*; None when it is no path of discovery."""
        if path in {"/version", "/api"}:
            return {"major": "1", "minor": "30", "versions": ["v1"]}
        if path == "/apis":
            groups = [root.split("/")[2:] for root in self.served if root.startswith("/apis/")]
            return {"groups": [group_entry(name, version) for name, version in groups]}
        if path == "/openapi/v3/apis/sglr.dev/v1alpha1":
            return self.openapi
        if path not in self.served:
            return None
        return {
            "kind": "APIResourceList",
            "resources": list(map(resource_entry, self.served[path])),
        }

    def _is_served(self, path: str, plural: str) -> bool:
        return any(path.startswith(root) and plural in have for root, have in self.served.items())

    def _fault(self, call: Call) -> str:
        for fault in self.faults:
            if fault.plural not in {"", call.plural} or fault.verb not in {"", call.verb}:
                continue
            if fault.kind in WATCH_ONLY and call.verb != "watch":
                continue
            if fault.kind in LIST_ONLY and call.verb != "list":
                continue
            fault.times -= 1
            if fault.times <= 0:
                self.faults.remove(fault)
            return fault.kind
        return ""

    async def _refusal(self, request: web.Request, fault: str) -> web.StreamResponse | None:
        if fault == "delay":
            await asyncio.sleep(0.1)
        if fault == "reset":
            assert request.transport is not None
            request.transport.abort()
            return web.Response(status=500)
        if fault == "504 version":
            return status_answer(504, "Timeout", "Too large resource version: 9, current: 3")
        if fault in {"403", "410", "429", "500"}:
            headers = {"Retry-After": "0"} if fault == "429" else {}
            return status_answer(int(fault), f"Fault{fault}", "as the test wanted", headers=headers)
        return None

    def _respond(self, call: Call, fault: str) -> web.Response:
        if call.verb == "list":
            return self._list(call, stale=fault == "stale")
        if call.verb == "create":
            return self._create(call)
        found = self._table(call.plural).objects.get((call.namespace, call.name))
        if call.verb == "patch":
            return self._apply(call, found)
        if found is None:
            return status_answer(404, "NotFound", f"{call.plural} {call.name!r} not found")
        return self._replace(call, found) if call.verb == "update" else web.json_response(found)

    def _replace(self, call: Call, found: Body) -> web.Response:
        assert call.body is not None
        version = call.body["metadata"].get("resourceVersion")
        if version not in {None, found["metadata"]["resourceVersion"]}:
            return status_answer(409, "Conflict", "the object has been modified")
        return web.json_response(self.put(call.plural, call.body))

    def _list(self, call: Call, *, stale: bool) -> web.Response:
        table = self._table(call.plural)
        objects, version = table.objects, self.version
        if stale and table.before_version:
            objects, version = table.before, table.before_version
        items = [body for _, body in sorted(objects.items()) if is_selected(call, body)]
        start = int(call.query.get("continue", "0"))
        stop = start + int(call.query.get("limit", "100000"))
        meta = {"resourceVersion": str(version)}
        if stop < len(items):
            meta["continue"] = str(stop)
        return web.json_response({"kind": "List", "metadata": meta, "items": items[start:stop]})

    def _create(self, call: Call) -> web.Response:
        assert call.body is not None
        if call.plural == "tokenreviews":
            token = call.body["spec"]["token"]
            return web.json_response(
                call.body | {"status": self.tokens.get(token, {"authenticated": False})}
            )
        call.body.setdefault("metadata", {}).setdefault("namespace", call.namespace)
        meta = call.body["metadata"]
        if (meta["namespace"], meta["name"]) in self._table(call.plural).objects:
            return status_answer(409, "AlreadyExists", f"{call.plural} exists")
        return web.json_response(self.put(call.plural, call.body), status=201)

    def _apply(self, call: Call, found: Body | None) -> web.Response:
        assert call.body is not None
        if found is None and call.subresource:
            return status_answer(404, "NotFound", f"{call.plural} {call.name!r} not found")
        merged = copy.deepcopy(found or {"metadata": {"name": call.name}})
        merged["metadata"]["namespace"] = call.namespace
        for part in ("status",) if call.subresource == "status" else ("spec", "data", "binaryData"):
            if part in call.body:
                merged[part] = {k: v for k, v in call.body[part].items() if k not in self.pruned}
        if found is not None and merged == found:
            return web.json_response(found)
        return web.json_response(self.put(call.plural, merged))

    async def _watch(self, request: web.Request, call: Call, fault: str) -> web.StreamResponse:
        version = int(call.query.get("resourceVersion") or 0)
        if version < self.compacted:
            return status_answer(410, "Expired", f"too old resource version: {version}")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with suppress(ConnectionError, asyncio.CancelledError):
            await self._stream(response, call, version, fault)
        if request.transport is not None and fault == "drop":
            request.transport.abort()
        return response

    async def _stream(
        self, response: web.StreamResponse, call: Call, version: int, fault: str
    ) -> None:
        if fault == "410 event":
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await write_line(response, "ERROR", status)
            return
        if fault == "duplicate":
            await self._replay(response, call)
        if fault == "half-open":
            await asyncio.Event().wait()
        ends = asyncio.get_running_loop().time() + float(call.query.get("timeoutSeconds", "300"))
        while asyncio.get_running_loop().time() < ends:
            if version < self.compacted:
                # etcd compaction under a running watch: the real server ends it the same way.
                await self._stream(response, call, version, "410 event")
                return
            log = self._table(call.plural).log
            fresh = log[bisect_right(log, version, key=itemgetter(0)) :]
            for number, kind, body in fresh:
                version = number
                if is_selected(call, body) and fault != "bookmarks only":
                    await write_line(response, kind, body)
            if fault == "drop" and fresh:
                return
            version = max(version, self.version)
            if self.has_bookmarks:
                mark = {"metadata": {"resourceVersion": str(version)}}
                await write_line(response, "BOOKMARK", mark)
                self.bookmarks += 1
            await self._sleep_until_newer(version)

    async def _replay(self, response: web.StreamResponse, call: Call) -> None:
        for body in list(self._table(call.plural).objects.values()):
            if is_selected(call, body):
                await write_line(response, "ADDED", body)

    async def _sleep_until_newer(self, version: int) -> None:
        ends = asyncio.get_running_loop().time() + self.bookmark_every
        while self.version <= version and asyncio.get_running_loop().time() < ends:  # noqa: ASYNC110  # tests change the version from plain functions
            await asyncio.sleep(0.002)


@asynccontextmanager
async def running_api() -> AsyncGenerator[FakeApi]:
    """Serve a :class:`FakeApi` on loopback."""
    api = FakeApi()
    app = web.Application(client_max_size=2**24)
    app.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()
