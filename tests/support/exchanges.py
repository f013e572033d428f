"""Exchanges without a server."""

from __future__ import annotations

from typing import Any, NoReturn

from sglr_dataplane.api.exchange import Exchange


def an_exchange(
    path: str = "/v1/chat/completions",
    headers: list[tuple[bytes, bytes]] | None = None,
    method: str = "POST",
) -> Exchange:
    """Return one that nothing is received of and nothing must be sent to; call within a task."""
    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": headers or [],
        "state": {},
    }
    return Exchange(scope, _unused, _unused, arrived=0.0)


async def _unused(*_: object) -> NoReturn:
    raise AssertionError
