"""How requests to an API server look, and its answers: what every fake of one needs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from aiohttp import web

Body = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One request as the server saw it; *watch* is a verb of its own, as in RBAC."""

    verb: str
    group: str
    plural: str
    namespace: str
    name: str
    subresource: str
    query: dict[str, str]
    body: Body | None


def group_entry(name: str, version: str) -> Body:
    """Return a group's entry of discovery."""
    found = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [found], "preferredVersion": found}


def resource_entry(plural: str) -> Body:
    """Return a resource's entry of discovery."""
    return {
        "name": plural,
        "singularName": plural.removesuffix("s"),
        "kind": plural.capitalize(),
        "namespaced": plural not in {"namespaces", "customresourcedefinitions"},
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
    }


async def write_line(response: web.StreamResponse, kind: str, body: Body) -> None:
    """Write one event of a watch."""
    await response.write(json.dumps({"type": kind, "object": body}).encode() + b"\n")


def is_selected(call: Call, body: Body) -> bool:
    """Return whether a list or watch of *call* shows *body*."""
    meta = body["metadata"]
    if call.namespace and meta.get("namespace") != call.namespace:
        return False
    have = meta.get("labels") or {}
    for term in filter(None, call.query.get("labelSelector", "").split(",")):
        name, sign, value = term.partition("=")
        if name not in have or (sign and have[name] != value):
            return False
    return True


def status_answer(
    code: int, reason: str, message: str, headers: dict[str, str] | None = None
) -> web.Response:
    """Return a Status, as API servers refuse."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code, headers=headers)


async def call_of(request: web.Request) -> Call:
    """Return *request* as RBAC sees it."""
    parts = request.path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", "", ""][:3]
    verbs = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}
    verb = verbs[request.method]
    if verb == "get" and not name:
        verb = "watch" if request.query.get("watch") in {"true", "1"} else "list"
    body = json.loads(await request.read()) if request.can_read_body else None
    group = "" if parts[0] == "api" else parts[1]
    return Call(verb, group, plural, namespace, name, subresource, dict(request.query), body)
